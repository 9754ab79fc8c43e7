"""The section [train] of a recipe: how long and how fast."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from unidex.config.section import Section


class Train(Section):
    """How long and how fast."""

    epochs: int = Field(20, ge=1, description="passes over the texts")
    batch_size: int = Field(
        512, ge=0, description="texts of a step, over all processes; 0 chooses 128 to 1024 by the number of texts"
    )
    chunk: int = Field(0, ge=0, description="texts or labels encoded at once, by a gradient cache; 0 for all of a step")
    lr_encoder: float = Field(1e-4, ge=0, description="learning rate of the transformer, or of the bag's vectors")
    lr_heads: float = Field(2e-4, ge=0, description="learning rate of heads and residual layers")
    lr_classifier: float = Field(1e-3, ge=0, description="learning rate of the classifiers")
    weight_decay: float = Field(0.01, ge=0, description="decoupled weight decay of dense matrices")
    row_optimiser: Literal["adam", "adagrad", "sgd"] = Field("adam", description="optimiser of row tables")
    freeze_encoder: bool = Field(
        False,
        description="leave the encoder as it is: its vectors are made once, without dropout, and heads and classifiers "
        "are trained on them",
    )
    surrogate: int = Field(
        0,
        ge=0,
        description="in a stage that another follows: balanced clusters of labels, so many, are learned in place of "
        "the labels, by the classifier; 0 for the labels",
    )
    schedule: Literal["cosine", "linear", "constant", "one-cycle"] = Field(
        "cosine", description="how learning rates fall; one-cycle: they also rise by a cosine, from a tenth"
    )
    warmup: float = Field(0.1, ge=0, le=1, description="share of the steps in which learning rates rise")
    table_storage: Literal["memory", "file"] = Field("memory", description="where row tables live while training")
    validation: float = Field(0.0, ge=0, lt=1, description="share of train kept for validation; 0 for none")
    decay_epochs: int = Field(
        0,
        ge=0,
        description="epochs after the others, on all train texts, in which learning rates fall to 0; before them rates "
        "stay, and what is chosen on the validation split is chosen there, so that nothing is trained twice",
    )
    simulate_decay_up_to: int = Field(
        0,
        ge=0,
        description="with at most so many train texts, let learning rates fall first without the texts kept back, then "
        "as they are to fall, so that probabilities are fitted to scores such as the model will have; costs the "
        "falling epochs once more",
    )
    validate_every: int = Field(5, ge=1, description="epochs between two validations")
    patience: int = Field(0, ge=0, description="validations without gain before training stops; 0 never stops")
    min_gain: float = Field(0.0, ge=0, description="share of the best value so far that a gain must have to count")
    metric: str = Field("P@1", description="what validation looks at; several are joined by +")
    checkpoint_every: int = Field(500, ge=1, description="steps between two checkpoints")
