"""The phases of a run: their names, and the recipe of each."""

from __future__ import annotations

from typing import Any

from unidex.config import Config
from unidex.config.predict import Favour
from unidex.training.trials import TRIALS

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


def with_metric(config: Config) -> Config:
    """A recipe whose validation metric is named, where it follows what the user favours."""
    if config.train.metric != "favour":
        return config
    return changed(config, {"train": {"metric": METRICS[config.predict.favour]}})
