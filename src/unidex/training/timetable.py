"""The phases of a run as a user sees them, each with an estimate of its steps, for one bar and the time left."""

from __future__ import annotations

from unidex.config import Config
from unidex.data.dataset import Dataset
from unidex.training.sizes import fit_sizes
from unidex.training.trials import may_try

PREPARE = "preparing texts"
TRAIN = "training"
TRIAL = "trial"
FIT = "ranker and probabilities"
FINISH = "final training"
INDEX = "search index"
TEST = "test"


def stage_phase(name: str) -> str:
    """The phase of a stage before the last one."""
    return f"stage {name}"


def timetable(config: Config, dataset: Dataset) -> dict[str, float]:
    """The phases in their order, with estimated steps; a run may stop a phase earlier, or leave it out.

    Work that is no training counts as one epoch of the last stage.
    """
    num_texts = len(dataset.train)
    *earlier, (_, last) = [(name, fit_sizes(part, num_texts, tell=False)) for name, part in config.in_stages().items()]
    train = last.train
    held_out = train.validation if train.validation < 1 else 0.0
    epoch = _steps(num_texts, train.batch_size)
    found = {PREPARE: epoch}
    found |= {stage_phase(name): _epochs(part, num_texts) for name, part in earlier}
    found[TRAIN] = _epochs(last, num_texts) * (1 - held_out)
    if may_try(last, num_texts):
        found[TRIAL] = found[TRAIN]
    if held_out:
        is_simulated = train.decay_epochs > 0 and num_texts <= train.simulate_decay_up_to
        found[FIT] = epoch * (1 + train.decay_epochs * is_simulated)
    if train.decay_epochs:
        found[FINISH] = epoch * train.decay_epochs
    return found | {INDEX: epoch, TEST: _steps(len(dataset.test), train.batch_size)}


def _epochs(config: Config, num_texts: int) -> float:
    train = config.train
    # With patience, most runs stop soon after their best epoch.
    epochs = min(train.epochs, train.patience + 2) if train.patience and train.validation else train.epochs
    return epochs * _steps(num_texts, train.batch_size)


def _steps(num_texts: int, batch_size: int) -> float:
    return max(1.0, num_texts / max(1, batch_size))
