"""Trials on the validation split beside the recipe as it is: label texts as training points, or hard negatives."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from unidex.augment.agreement import agreement
from unidex.augment.label_points import label_points
from unidex.config import Config
from unidex.data.dataset import Dataset

logger = logging.getLogger(__name__)

# Targets of label texts are judged where at least so many labels are train texts, and left out below this share of true
# ones. On see-also pages it is about a half, on dependencies of packages 4%, and 3% to 18% with a few hundred of the
# texts, where held-out texts are too few to see that it harms (docs/results/robustness.md).
_MIN_KNOWN = 4
_MIN_PRECISION = 0.3
# A trial takes as long as the plain one, and as long as label texts are many: it is made where that is seconds.
_MAX_TEXTS = 20_000
_MAX_LABELS = 50_000
PLAIN = "plain"
# The trials, and what each trains with.
TRIALS = {
    "gandalf": "label texts as training points (Gandalf)",
    "hard": "mined hard negatives",
}

Changes = dict[str, dict[str, Any]]


def may_try(config: Config, num_texts: int) -> bool:
    """Whether something may be tried beside the recipe as it is: it needs a validation split and few texts."""
    wants = config.augment.method == "auto" or config.pool.try_hard_negatives > 0
    return wants and config.train.validation > 0 and num_texts <= _MAX_TEXTS


def plan_trials(dataset: Dataset, config: Config, seed: int) -> dict[str, Changes]:
    """Changes of the recipe by name, the plain one first.

    At most one thing is tried beside it, so that choosing costs less than training.
    """
    wants_points, num_hard = config.augment.method == "auto", config.pool.try_hard_negatives
    plain: Changes = {"augment": {"method": "none"}} if wants_points else {}
    found = {PLAIN: plain}
    if not (wants_points or num_hard):
        return found
    num_texts = len(dataset.train)
    if config.train.validation == 0:
        logger.info("No trials of Gandalf or hard negatives: there is no validation split (train.validation).")
    elif num_texts > _MAX_TEXTS:
        logger.info(
            "No trials of Gandalf or hard negatives: %d train texts, and trials take too long above %d.",
            num_texts,
            _MAX_TEXTS,
        )
    elif wants_points and _may_points_pay(dataset, config, seed):
        found["gandalf"] = {"augment": {"method": "gandalf"}}
    elif num_hard:
        found["hard"] = plain | {"pool": {"hard_negatives": num_hard}}
    return found


def _may_points_pay(dataset: Dataset, config: Config, seed: int) -> bool:
    """Whether a trial of Gandalf is worth its time: not where its targets are known to be wrong."""
    train = dataset.train
    if not dataset.labels.texts.num_bytes:
        return False
    if dataset.num_labels > _MAX_LABELS:
        logger.info("No trial of Gandalf: %d labels, and it takes too long above %d.", dataset.num_labels, _MAX_LABELS)
        return False
    settings = config.augment.model_copy(update={"method": "gandalf"})
    found = agreement(label_points(train.positives, settings, seed), train.positives, train.filter_pairs)
    if found.num_labels < _MIN_KNOWN or found.precision >= _MIN_PRECISION:
        return True
    logger.info(
        "No trial of Gandalf: for %d labels that are train texts themselves, only %.0f%% of its targets are true.",
        found.num_labels,
        100 * found.precision,
    )
    return False


def log_decisions(values: Mapping[str, float]) -> None:
    """Tell which trials the model is trained with, by the scores of held-out texts."""
    for name in values.keys() - {PLAIN}:
        decision = "with" if values[name] > values[PLAIN] else "without"
        found = (decision, TRIALS[name], values[name], values[PLAIN])
        logger.info("The model trains %s %s: held-out texts score %.2f with them, %.2f without.", *found)
