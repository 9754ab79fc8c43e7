"""What a user may say about the features of the bag encoder."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from unidex.errors import ConfigError, listed, quoted

Weighting = Literal["idf", "none"]
Normalisation = Literal["row", "kind", "none"]


@dataclass(frozen=True, kw_only=True)
class FeatureSettings:
    """Which features a text has, which of them get an id of their own, and what they weigh.

    Attributes:
        lower_case: "Golden" and "golden" are one word.
        words: runs of letters, digits, marks and underscores.
        parts: the pieces of a word at underscores, case changes and digits ("getHTTPPort2" -> get, HTTP, Port, 2) as
            further words, so that an identifier meets the plain words it is made of.
        bigrams: two words that stand side by side.
        chars: character n-grams of words, whose ends are marked; one that is a whole word only where words are off.
        chars_min: the shortest n-gram, marks included.
        chars_max: the longest n-gram, marks included.
        subwords: tokens of a subword tokenizer, either trained on the data or given.
        subword_vocabulary: number of tokens of a trained tokenizer.
        tokenizer: a tokenizer.json, or a folder that holds one; empty to train one on the data.
        min_df: number of texts and label texts a feature must occur in to get an id of its own.
        max_features: at most so many features get an id of their own, those of most texts first.
        num_buckets: all other features are hashed into so many shared ids; 0 leaves them out.
        weighting: "idf" weighs by ln((1 + N) / (1 + df)) + 1, "none" does not.
        sublinear_tf: n occurrences in a text count 1 + ln(n) instead of n.
        normalise: "row" gives every text the length 1; "kind" first gives each kind of feature its scale as length,
            however many features it has; "none" leaves the weights.
        word_scale: factor on the weights of words; likewise for the other kinds.
        part_scale: factor on the weights of parts.
        bigram_scale: factor on the weights of bigrams.
        char_scale: factor on the weights of character n-grams.
        subword_scale: factor on the weights of subword tokens.
        lead: number of words a text begins with that count again, where it has at least twice as many.
        lead_weight: how much they count, beside 1 of the whole text; 0 switches it off.
        keep_names: remember the text of every feature, so that predictions can be explained.

    >>> FeatureSettings(chars=True, chars_max=4).num_buckets
    0
    >>> FeatureSettings(min_df=0)
    Traceback (most recent call last):
    unidex.errors.ConfigError: features: min_df must be at least 1, but is 0
    """

    lower_case: bool = True
    words: bool = True
    parts: bool = True
    bigrams: bool = True
    chars: bool = False
    chars_min: int = 3
    chars_max: int = 5
    subwords: bool = False
    subword_vocabulary: int = 30_000
    tokenizer: str = ""
    min_df: int = 2
    max_features: int = 1_000_000
    num_buckets: int = 0
    weighting: Weighting = "idf"
    sublinear_tf: bool = True
    normalise: Normalisation = "row"
    word_scale: float = 1.0
    part_scale: float = 1.0
    bigram_scale: float = 1.0
    char_scale: float = 1.0
    subword_scale: float = 1.0
    lead: int = 8
    lead_weight: float = 0.0
    keep_names: bool = True

    def __post_init__(self) -> None:
        if not (self.words or self.bigrams or self.chars or self.subwords):
            raise _error("at least one of words, bigrams, chars, subwords must be on, but all are off")
        if self.parts and not self.words:
            raise _error("parts are further words, but words are off; switch parts off or words on")
        if self.tokenizer and not self.subwords:
            raise _error(f"tokenizer is {quoted(self.tokenizer)}, but subwords are off; switch them on or leave it out")
        for name, lowest in _LOWEST.items():
            if getattr(self, name) < lowest:
                raise _error(f"{name} must be at least {lowest}, but is {getattr(self, name)}")
        if self.chars_max < self.chars_min:
            raise _error(f"chars_max must be at least chars_min ({self.chars_min}), but is {self.chars_max}")
        # Feature ids are 32-bit.
        if self.max_features + self.num_buckets >= 1 << 31:
            raise _error(
                f"max_features + num_buckets must be below 2^31, but is {self.max_features + self.num_buckets}"
            )
        for name, choices in (("weighting", get_args(Weighting)), ("normalise", get_args(Normalisation))):
            if getattr(self, name) not in choices:
                raise _error(f"{name} must be one of {listed(choices)}, but is {quoted(getattr(self, name))}")
        for name in (field.name for field in fields(self) if field.name.endswith("_scale")):
            scale = getattr(self, name)
            if not (math.isfinite(scale) and scale > 0):
                raise _error(f"{name} must be a number > 0, but is {scale}; to leave a kind out, switch it off")

        if not (math.isfinite(self.lead_weight) and self.lead_weight >= 0):
            raise _error(f"lead_weight must be a number of at least 0, but is {self.lead_weight}")

    def as_dict(self) -> dict[str, Any]:
        """Every setting by name, for JSON."""
        return asdict(self)


_LOWEST = {
    "chars_min": 2,  # one mark alone says nothing
    "subword_vocabulary": 1,
    "min_df": 1,
    "max_features": 0,
    "num_buckets": 0,
    "lead": 1,
}


def _error(message: str) -> ConfigError:
    return ConfigError(f"features: {message}")
