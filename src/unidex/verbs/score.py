"""``score``: every metric, for predictions of any system."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unidex.data.dataset import Dataset, Propensity, Split
from unidex.data.predictions import read_predictions
from unidex.errors import DataError, quoted
from unidex.metrics import LIMIT
from unidex.metrics.averages import averages
from unidex.metrics.bins import Bin
from unidex.metrics.evaluation import Evaluation
from unidex.topk import TopK

_JUDGED = ("num_left_out", "num_unknown_labels", "num_unknown_pairs")


@dataclass(frozen=True)
class Scores:
    """Metrics of predictions on one split of a data set, in percent."""

    metrics: dict[str, float]  # name such as "P@1" -> percent
    bins: list[Bin]  # contribution to P@k of five groups of labels of equal total frequency, at the largest k up to 5
    classes: list[Bin]  # the same for head, torso and tail labels
    num_texts: int  # texts that were scored
    num_filtered: int  # filter pairs that were left out of the predictions
    # Averages over documents, subjects and pairs, and NDCG, as Annif gives them (``metrics.averages``)
    averages: dict[str, Any] = field(default_factory=dict)
    # For a model: train texts that were left out (None if unknown), labels that it does not know, and their pairs
    num_left_out: int | None = 0
    num_unknown_labels: int = 0
    num_unknown_pairs: int = 0

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Scores:
        """Restore scores from the result of ``as_dict``."""
        return cls(
            metrics={name: value for name, value in values.items() if "@" in name},
            bins=[Bin(**group) for group in values["bins"]],
            classes=[Bin(**group) for group in values["classes"]],
            num_texts=values["num_texts"],
            num_filtered=values["filter_pairs"],
            averages=values.get("averages", {}),
            **{name: values[name] for name in _JUDGED if name in values},
        )

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON: the metrics at the top level, the rest below them."""
        return {
            **self.metrics,
            "bins": [asdict(group) for group in self.bins],
            "classes": [asdict(group) for group in self.classes],
            "num_texts": self.num_texts,
            "filter_pairs": self.num_filtered,
            "averages": self.averages,
            **{name: getattr(self, name) for name in _JUDGED},
        }


def score_topk(topk: TopK, dataset: Dataset, split: Split, *, use_filter: bool = True, limit: int = LIMIT) -> Scores:
    """Score predictions for the texts of a split; propensities and frequencies come from the train texts."""
    about = (dataset.label_frequencies(), len(dataset.train), dataset.propensity)
    return score_places(topk, split, *about, use_filter=use_filter, limit=limit)


def score_places(
    topk: TopK,
    split: Split,
    frequencies_L: NDArray[np.int64],
    num_train: int,
    propensity: Propensity,
    *,
    use_filter: bool = True,
    limit: int = LIMIT,
) -> Scores:
    """Score predictions for texts, with the number of train texts per label and in all.

    ``limit`` is the number of labels per text of the averages.
    """
    if limit < 1:
        raise DataError(f"--limit must be at least 1, but is {limit}")
    filter_pairs = split.filter_pairs if use_filter else None
    evaluation = Evaluation(frequencies_L, num_train, propensity)
    evaluation.add(topk, split.positives, filter_pairs)
    return Scores(
        metrics=evaluation.results(),
        bins=evaluation.bins(5),
        classes=evaluation.classes(5),
        num_texts=evaluation.num_rows,
        num_filtered=int(split.filter_pairs.nnz) if use_filter else 0,
        averages=averages(topk, split.positives, filter_pairs, limit),
    )


def score_predictions(
    file: Path, dataset: Dataset, *, split: str = "test", use_filter: bool = True, limit: int = LIMIT
) -> Scores:
    """Score a file of predictions."""
    texts = find_split(dataset, split)
    topk = read_predictions(file, dataset, "test" if split == "test" else "train")
    return score_topk(topk, dataset, texts, use_filter=use_filter, limit=limit)


def find_split(dataset: Dataset, split: str | None = "test") -> Split:
    """Return the train or test split of a data set, which must have texts; for None, test if there is one, else all."""
    if split not in ("train", "test", None):
        raise DataError(f"--split must be train or test, but is {quoted(split)}")
    if split is None:
        return dataset.test if len(dataset.test) else dataset.train
    texts = dataset.test if split == "test" else dataset.train
    if len(texts) == 0:
        raise DataError(f"data set {quoted(dataset.name)} must have {split} texts to be scored on, but has none")
    return texts
