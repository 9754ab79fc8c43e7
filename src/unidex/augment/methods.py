"""A data set augmented by any method, from a user's settings; a setting without effect is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unidex.augment.label_points import check_label_texts, label_points, with_points
from unidex.augment.word_changes import WORD_METHODS, WORDLLAMA, with_copies
from unidex.config import parse
from unidex.data.concepts import further_texts
from unidex.data.dataset import Dataset
from unidex.errors import ConfigError, quoted

# Of the words of a text; as in EDA (Wei, Zou: Easy Data Augmentation, EMNLP 2019).
WORD_SHARE = 0.1

_CHOICE = ("points", "label_share", "pick")
_TARGETS = ("max_targets", "self_label", *_CHOICE)
# method -> the settings that it uses.
_SETTINGS: dict[str, tuple[str, ...]] = {
    "gandalf": ("delta", *_TARGETS),
    "glas": ("delta", *_TARGETS),
    "random-walk": ("walk_length", "walk_restart", "walk_max_labels", "walk_verbose", *_TARGETS),
    "one-hot": _CHOICE,
    "word-dropout": ("word_share",),
    "synonyms": ("word_share", "synonyms"),
}
METHODS = tuple(_SETTINGS)


@dataclass(frozen=True, eq=False)
class Augmented:
    """An augmented data set."""

    dataset: Dataset  # its train texts are the kept ones, then the points
    num_texts: int  # number of train texts kept

    def summary(self) -> dict[str, Any]:
        """Numbers of texts, points, targets of the points, and targets per point."""
        positives = self.dataset.train.positives
        num_points = len(self.dataset.train) - self.num_texts
        num_targets = int(positives.nnz - positives.indptr[self.num_texts])
        return {
            "num_texts": self.num_texts,
            "num_points": num_points,
            "num_targets": num_targets,
            "mean_targets": round(num_targets / max(num_points, 1), 4),
        }


def make(dataset: Dataset, method: str, given: Mapping[str, Any], seed: int) -> Augmented:
    """Augment a data set.

    ``given`` has settings of the section [augment], and for changed copies ``word_share`` and ``synonyms``; what is
    left out has its default. The same seed gives the same data set.
    """
    check_settings(method, given)
    if method in WORD_METHODS:
        share, source = given.get("word_share", WORD_SHARE), given.get("synonyms", WORDLLAMA)
        return Augmented(with_copies(dataset, method, share, source, seed), len(dataset.train))
    check_label_texts(dataset)
    settings = parse({"augment": {"method": method, **given}}, where="unidex augment").augment
    points = label_points(dataset.train.positives, settings, seed, further_texts(dataset.labels.concepts)[1])
    return Augmented(with_points(dataset, points, method), len(points.texts))


def check_settings(method: str, given: Mapping[str, Any]) -> None:
    """Refuse an unknown method, a setting that it does not use, and an invalid value.

    >>> check_settings("one-hot", {"delta": 0.2})
    Traceback (most recent call last):
    unidex.errors.ConfigError: --delta has no effect with the method one-hot; leave it out
    """
    if method not in METHODS:
        raise ConfigError(f"--method must be one of {', '.join(METHODS)}, but is {quoted(method)}")
    for name in given:
        if name not in _SETTINGS[method]:
            raise ConfigError(f"--{_flag(name)} has no effect with the method {method}; leave it out")
    settings = {name: value for name, value in given.items() if name not in ("word_share", "synonyms")}
    parse({"augment": settings}, where="unidex augment")


def _flag(name: str) -> str:
    return {"self_label": "no-self-label"}.get(name, name.replace("_", "-"))
