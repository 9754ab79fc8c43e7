"""The phases of a run: what they are called, and the recipe that each is trained by."""

from __future__ import annotations

import logging
import math
from typing import Any

from unidex.config import Config
from unidex.training.trials import SAID

logger = logging.getLogger(__name__)

FALLING = "falling"
REHEARSAL = "rehearsal"


def changed(config: Config, sections: dict[str, dict[str, Any]]) -> Config:
    """The recipe with other values of some keys, by section."""
    return config.model_copy(
        update={name: getattr(config, name).model_copy(update=keys) for name, keys in sections.items()}
    )


def falling(config: Config) -> Config:
    """The recipe of the epochs in which learning rates fall to 0."""
    epochs = config.train.decay_epochs
    changes: dict[str, dict[str, Any]] = {
        "train": {"schedule": "linear", "warmup": 0.0, "epochs": epochs, "decay_epochs": 0},
        # Negatives are mined at once: the network is trained already.
        "pool": {"start": 0},
    }
    return changed(config, changes)


def phases(config: Config) -> list[str]:
    """The folders that the phases of a run have, in their order: those of stages, or of trials and of what follows."""
    names = [stage.name for stage in config.stages]
    return [f"training-{name}" for name in names] or ["training", *(f"training-{name}" for name in SAID), FALLING]


def batch_size_for(num_texts: int) -> int:
    """Texts of a step: about 32 steps an epoch, so that a small data set has steps enough, at most 1024.

    >>> batch_size_for(1000), batch_size_for(9000), batch_size_for(30_000), batch_size_for(10**6)
    (128, 256, 1024, 1024)
    """
    return int(min(1024, max(128, 2 ** round(math.log2(max(1, num_texts) / 32)))))


def sized(config: Config, num_texts: int) -> Config:
    """A recipe whose batches have a size."""
    if config.train.batch_size > 0:
        return config
    size = batch_size_for(num_texts)
    logger.info("%d train texts: batches of %d", num_texts, size)
    return changed(config, {"train": {"batch_size": size}})
