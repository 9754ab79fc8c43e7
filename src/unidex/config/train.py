"""The section [train] of a recipe: how long and how fast."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from unidex.config.section import Section


class Train(Section):
    """How long and how fast."""

    epochs: int = Field(20, ge=1, description="passes over the texts")
    batch_size: int = Field(
        512,
        ge=0,
        description="texts per step, over all processes; 0 chooses by the number of texts: 128 to 1024, for a "
        "transformer 16 to 512",
    )
    fit_to_texts: list[Literal["batch_size", "pool_size", "epochs", "patience"]] = Field(
        [],
        description="settings that are fitted to few train texts, as a transformer needs: smaller batches and pools, "
        "fewer epochs, more patience; one that --set names is kept as it is",
    )
    chunk: int = Field(
        0, ge=0, description="texts or labels encoded at once, with a gradient cache; 0 for all of a step"
    )
    lr_encoder: float = Field(1e-4, ge=0, description="learning rate of the transformer, or of the bag's vectors")
    lr_heads: float = Field(2e-4, ge=0, description="learning rate of heads and residual layers")
    lr_classifier: float = Field(1e-3, ge=0, description="learning rate of the classifiers")
    weight_decay: float = Field(0.01, ge=0, description="decoupled weight decay of dense matrices")
    classifier_decay: float = Field(
        0.0, ge=0, description="weight decay of classifiers, without their biases: of those that a step scores"
    )
    row_optimiser: Literal["adam", "adagrad", "sgd"] = Field("adam", description="optimiser of row tables")
    freeze_encoder: bool = Field(
        False,
        description="keep the encoder fixed: its vectors are computed once, without dropout, and heads and classifiers "
        "are trained on them",
    )
    surrogate: int = Field(
        0,
        ge=0,
        description="in a stage that another one follows: number of balanced clusters of labels that the classifier "
        "learns instead of labels; 0 for labels",
    )
    schedule: Literal["cosine", "linear", "constant", "one-cycle"] = Field(
        "cosine", description="learning-rate decay; one-cycle: the warmup is a cosine too, from a tenth"
    )
    warmup: float = Field(0.1, ge=0, le=1, description="share of the steps in which learning rates rise")
    table_storage: Literal["memory", "file"] = Field(
        "memory", description="where row tables are stored during training"
    )
    classifier_numbers: Literal["float32", "float16"] = Field(
        "float32",
        description="numbers of classifiers during training; 'float16' takes half the memory or disk, and each step "
        "rounds up or down at random, so that small changes are not lost",
    )
    validation: float = Field(
        0.0, ge=0, lt=1, description="share of the train texts held out for validation, of few texts more; 0 for none"
    )
    decay_epochs: int = Field(
        0,
        ge=0,
        description="epochs of the decay phase: on all train texts, learning rates go to 0. Before it rates are "
        "constant, and all choices are made on the validation split, so nothing is trained twice",
    )
    simulate_decay_up_to: int = Field(
        0,
        ge=0,
        description="with at most so many train texts, simulate the decay phase without the held-out texts first, so "
        "that probabilities match the final scores; costs the decay epochs once more",
    )
    validate_every: int = Field(5, ge=1, description="epochs between two validations")
    patience: int = Field(0, ge=0, description="validations without gain before training stops; 0 never stops")
    min_gain: float = Field(0.0, ge=0, description="minimum gain that counts, as a share of the best value so far")
    metric: str = Field(
        "P@1", description="metric of validation; several are joined by +; 'favour' follows predict.favour"
    )
    checkpoint_every: int = Field(500, ge=1, description="steps between two checkpoints")
