"""The phases of a run: their names, and the recipe of each."""

from __future__ import annotations

import logging
import math
from typing import Any

from unidex.config import Config
from unidex.config.predict import Favour
from unidex.training.trials import TRIALS

logger = logging.getLogger(__name__)

# The metric of validation by what the user favours (predict.favour).
METRICS: dict[Favour, str] = {
    "accuracy": "P@1+P@3+P@5",
    "balanced": "P@1+P@1+P@1+P@5+PSP@1+PSP@5",
    "rare": "P@1+PSP@1+PSP@3+PSP@5",
}
DECAY = "decay"
SIMULATED_DECAY = "simulated-decay"


def changed(config: Config, sections: dict[str, dict[str, Any]]) -> Config:
    """The recipe with other values of some keys, by section."""
    return config.model_copy(
        update={name: getattr(config, name).model_copy(update=keys) for name, keys in sections.items()}
    )


def decay_recipe(config: Config) -> Config:
    """The recipe of the decay phase, in which learning rates go to 0."""
    epochs = config.train.decay_epochs
    changes: dict[str, dict[str, Any]] = {
        "train": {"schedule": "linear", "warmup": 0.0, "epochs": epochs, "decay_epochs": 0},
        # Negatives are mined at once: the network is trained already.
        "pool": {"start": 0},
    }
    return changed(config, changes)


def phases(config: Config) -> list[str]:
    """The folders of the phases of a run, in their order: stages, or trials and then the decay phase."""
    names = [stage.name for stage in config.stages]
    return [f"training-{name}" for name in names] or ["training", *(f"training-{name}" for name in TRIALS), DECAY]


def batch_size_for(num_texts: int) -> int:
    """Texts of a step: about 32 steps per epoch, so that a small data set has enough of them, at most 1024.

    >>> batch_size_for(1000), batch_size_for(9000), batch_size_for(30_000), batch_size_for(10**6)
    (128, 256, 1024, 1024)
    """
    return int(min(1024, max(128, 2 ** round(math.log2(max(1, num_texts) / 32)))))


def with_metric(config: Config) -> Config:
    """A recipe whose validation metric is named, where it follows what the user favours."""
    if config.train.metric != "favour":
        return config
    return changed(config, {"train": {"metric": METRICS[config.predict.favour]}})


def with_batch_size(config: Config, num_texts: int, *, tell: bool = True) -> Config:
    """A recipe whose batches have a size."""
    if config.train.batch_size > 0:
        return config
    size = batch_size_for(num_texts)
    if tell:
        logger.info("Batches of %d texts: that is %d steps per epoch.", size, math.ceil(num_texts / size))
    return changed(config, {"train": {"batch_size": size}})
