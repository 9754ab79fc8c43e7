"""The section [features] of a recipe: what is read of a text."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from unidex.config.section import Section

DETECT = "auto"
Analysis = Literal["words", "stems", "lemmas", "auto"]
# fmt: off
Language = Literal[
    "", "auto", "ar", "ca", "cs", "da", "de", "el", "en", "es", "et", "eu", "fa", "fi", "fr", "ga", "hi", "hu",
    "hy", "id", "it", "lt", "ne", "nl", "no", "pl", "pt", "ro", "ru", "sr", "sv", "ta", "tr",
]
# fmt: on


class Features(Section):
    """Features of a text for the bag encoder; for the inception encoder, which words have a vector of their own."""

    words: bool = Field(True, description="words; without them, the tokens of features.subwords are all there is")
    parts: bool = Field(True, description="parts of identifiers (camelCase, snake_case) as additional words")
    bigrams: bool = Field(True, description="pairs of adjacent words")
    chars: bool = Field(False, description="character n-grams of words")
    chars_min: int = Field(3, ge=2, description="shortest n-gram, including the marks of word ends")
    chars_max: int = Field(5, ge=2, description="longest n-gram")
    subwords: bool = Field(False, description="tokens of a subword tokenizer, trained on the data or given")
    tokenizer: str = Field("", description="a tokenizer.json or a folder that holds one; empty to train one")
    sublinear_tf: bool = Field(
        True, description="a feature that occurs n times in a text counts 1 + ln n times; false: n times"
    )
    language: Language = Field(
        "", description="language of the texts, such as fi, or 'auto' for that of each text; empty: words as they are"
    )
    analyser: Analysis = Field(
        "stems",
        description="what replaces words where features.language is set: 'stems' (Snowball), 'lemmas' (simplemma), "
        "'words' as they are written, or 'auto' for what pays on the validation split",
    )
    compounds: bool = Field(
        False, description="parts of compounds as additional words, where features.language writes them as one word"
    )
    min_df: int = Field(2, ge=1, description="texts a feature must occur in to get a row of its own")
    max_features: int = Field(500_000, ge=1, description="maximum number of rows; the most frequent features first")
    num_buckets: int = Field(
        16_384, ge=0, description="rows that rarer features share by hashing; 0 drops rarer features"
    )
    lead: int = Field(
        8, ge=1, description="number of first words that count again, if the text has at least twice as many"
    )
    lead_weight: float = Field(
        0.0, ge=0, description="weight of the first words; the whole text has weight 1; 0 disables it"
    )
    pretrained: str = Field(
        "",
        description="a frozen encoder whose vector of a text stands beside its words, for both heads and the linear "
        "classifiers: 'minilm', 'wordllama', a folder or a hub name; empty for none. For the bag encoder; a text then "
        "costs one pass of it, and the model needs it to predict",
    )
    pretrained_weight: float = Field(
        1.0, gt=0, description="the length of that vector; the words of a text have length 1"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.tokenizer and not self.subwords:
            raise _error(f"tokenizer is {self.tokenizer!r}, but subwords are off; set features.subwords=true")
        if self.compounds and not self.language:
            raise _error("compounds are those of a language, but none is set; set features.language=auto")
        others = [name for name in ("parts", "bigrams", "chars") if getattr(self, name)]
        if not self.words and (others or not self.subwords):
            found = f"{', '.join(others)} are on" if others else "subwords are off"
            raise _error(f"without words there must be subwords alone, but {found}; set features.words=true")
        if self.pretrained == DETECT:
            raise _error(
                "pretrained must name a frozen encoder, such as minilm, but is 'auto'; set features.pretrained=minilm"
            )
        if self.chars_max < self.chars_min:
            raise _error(f"chars_max must be at least chars_min ({self.chars_min}), but is {self.chars_max}")
        if self.max_features + self.num_buckets >= 1 << 31:
            raise _error("max_features + num_buckets must be below 2^31, as ids of features are 32-bit")
        return self


def _error(message: str) -> PydanticCustomError:
    return PydanticCustomError("settings", "{message}", {"message": message})
