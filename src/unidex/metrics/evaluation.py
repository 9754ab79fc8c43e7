"""Every metric of a stream of predictions, in one pass; parts made by several processes can be merged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from unidex.data.dataset import Propensity, Split
from unidex.errors import DataError, listed, quoted
from unidex.metrics import ranked_lists
from unidex.metrics.bins import CLASSES, Bin, contributions, frequency_bins, frequency_classes
from unidex.metrics.propensity import frequency_weights
from unidex.sparse_rows import contains
from unidex.topk import PADDING, TopK

RowsWithoutTruth = Literal["zero", "drop"]

DEFAULT_KS: Mapping[str, tuple[int, ...]] = {
    "P": (1, 3, 5),
    "nDCG": (1, 3, 5),
    "PSP": (1, 3, 5),
    "PSnDCG": (1, 3, 5),
    "R": (1, 3, 5, 10, 100),
    "F1": (1, 3, 5),
    "PSR": (1, 3, 5),
    "hits": (1, 3, 5),
    "MRR": (10,),
    "coverage": (1, 3, 5),
}
METRICS = tuple(DEFAULT_KS)

# A metric is [sum over texts of the upper half] / [sum of the lower half]; the lower half of the unscored ones is N.
_SCORED = {"PSP": "P", "PSnDCG": "nDCG", "PSR": "R"}

# What is counted, over texts; the sum over parts is that of the whole.
_COUNTED = ("num_rows", "num_rows_with_truth", "_sums", "_best_sums", "_label_hits", "_label_truth")

# Rows are taken in blocks of about this many places, so that memory does not grow with the number of texts.
_BLOCK_PLACES = 1 << 21


class Evaluation:
    """Metrics of predictions that come in batches, in percent.

    The sums are kept, not the predictions: memory is a few numbers per label, whatever the number of texts. Any way of
    cutting the texts into batches, and of merging parts, gives the same results.

    Args:
        label_frequencies: number of train texts that have each label (``Dataset.label_frequencies``).
        num_train: number of train texts.
        propensity: the constants A and B of the data set.
        ks: the places to report at. None: the usual ones of each metric (``DEFAULT_KS``), without those the
            predictions are too short for. A sequence: these for every metric. A mapping: metric name -> places, only
            those metrics. What is asked for by name or number is always reported, missing places counting as misses.
        rows_without_truth: whether a text without positives counts as 0 ("zero") or not at all ("drop").

    Three labels, of which two train texts have the first; two texts. The first text's list hits at both places, the
    second text's at its second place: P@1 = (1 + 0) / 2, P@2 = (2/2 + 1/2) / 2, MRR@2 = (1 + 1/2) / 2.

    >>> evaluation = Evaluation([2, 1, 1], num_train=2, ks={"P": [1, 2], "MRR": [2]})
    >>> truth = sparse.csr_array(np.array([[1, 1, 0], [0, 0, 1]]))
    >>> evaluation.add(TopK.rank([[0, 1], [1, 2]], [[0.9, 0.2], [0.8, -0.1]]), truth)
    >>> evaluation.results()
    {'P@1': 50.0, 'P@2': 75.0, 'MRR@2': 75.0}
    """

    def __init__(
        self,
        label_frequencies: ArrayLike,
        num_train: int,
        propensity: Propensity | None = None,
        ks: Sequence[int] | Mapping[str, Sequence[int]] | None = None,
        *,
        rows_without_truth: RowsWithoutTruth = "zero",
    ) -> None:
        if rows_without_truth not in get_args(RowsWithoutTruth):
            raise ValueError(f"rows_without_truth must be zero or drop, but is {quoted(rows_without_truth)}")
        self.num_train = int(num_train)
        self.propensity = Propensity() if propensity is None else propensity
        self.rows_without_truth = rows_without_truth
        self.label_frequencies = np.asarray(label_frequencies, dtype=np.int64)
        # Labels with as many train texts weigh the same.
        self._weights = ranked_lists.LabelWeights.of_groups(
            self.label_frequencies, frequency_weights(self.label_frequencies, self.num_train, self.propensity)
        )
        self._asked = ks is not None
        self._names = _names(ks)
        self._label_ks = sorted({k for metric, k in self._names if metric in ("P", "coverage")})
        self.num_rows = 0
        self.num_rows_with_truth = 0
        self._num_places: int | None = None
        self._sums = np.zeros(len(self._names))
        self._best_sums = np.zeros(len(self._names))
        self._label_hits = np.zeros((len(self._label_ks), self.num_labels), dtype=np.int32)
        self._label_truth = np.zeros(self.num_labels, dtype=np.int32)

    @property
    def num_labels(self) -> int:
        """Number of labels."""
        return len(self.label_frequencies)

    @property
    def num_places(self) -> int | None:
        """Places of the shortest batch of predictions so far; None before the first."""
        return self._num_places

    def add(self, topk: TopK, truth: sparse.csr_array, filter_pairs: sparse.csr_array | None = None) -> None:
        """Count a batch of texts.

        Predictions need more places than k where filter pairs are taken out of them (never out of the truth). Any
        stored value > 0 of the N x L truth is a positive.

        Raises:
            DataError: a label id is not one of the labels or comes twice for one text, or a score is NaN. Nothing of
                the batch is counted then.
        """
        for name, matrix in (("truth", truth), ("filter pairs", filter_pairs)):
            if matrix is not None and matrix.shape != (len(topk), self.num_labels):
                raise ValueError(
                    f"{name} must have {len(topk)} rows (texts of the predictions) and {self.num_labels} columns "
                    f"(labels), but have {matrix.shape[0]} and {matrix.shape[1]}"
                )
        if len(topk) == 0:
            return
        size = max(_BLOCK_PLACES // max(topk.k, 1), 1)
        starts = range(0, len(topk), size)
        for start in starts:
            self._check(topk.rows(start, start + size), self.num_rows + start)
        for start in starts:
            rows = slice(start, start + size)
            removed = None if filter_pairs is None else ranked_lists.binary(filter_pairs[rows])
            self._add_block(_ordered(topk.rows(start, start + size)), ranked_lists.binary(truth[rows]), removed)
        self._num_places = topk.k if self._num_places is None else min(self._num_places, topk.k)

    def _check(self, topk: TopK, first_row: int) -> None:
        ids_NK = topk.ids
        if ids_NK.size == 0:
            return
        if np.isnan(topk.scores).any():
            row = int(np.argmax(np.isnan(topk.scores).any(axis=1)))
            raise DataError(f"scores must be numbers, but one in row {first_row + row} is NaN")
        if int(ids_NK.max()) >= self.num_labels:
            row = int(np.argmax((ids_NK >= self.num_labels).any(axis=1)))
            raise DataError(
                f"a predicted label must be below {self.num_labels}, but is {int(ids_NK[row].max())} "
                f"in row {first_row + row}; are these predictions for another data set?"
            )
        ascending = np.sort(ids_NK, axis=1)
        twice = (ascending[:, 1:] == ascending[:, :-1]) & (ascending[:, 1:] >= 0)
        if twice.any():
            row, place = np.argwhere(twice)[0]
            raise DataError(
                f"a label must be predicted at most once for a text, but label {int(ascending[row, place])} "
                f"comes twice in row {first_row + int(row)}; keep the better place of the two"
            )

    def _add_block(self, topk: TopK, truth_NL: sparse.csr_array, filter_pairs_NL: sparse.csr_array | None) -> None:
        if filter_pairs_NL is not None:
            topk = topk.without(filter_pairs_NL)
        hits_NK = contains(truth_NL, topk.ids)
        counts_N = np.diff(truth_NL.indptr)
        self.num_rows += len(topk)
        self.num_rows_with_truth += int(np.count_nonzero(counts_N))
        self._add_labels(topk.ids, hits_NK, truth_NL)
        scored_ks = [k for metric, k in self._names if metric in _SCORED]
        if scored_ks:
            # Padding and misses look up label 0 and are worth 0.
            gains_NK = np.where(hits_NK, self._weights.values(np.where(hits_NK, topk.ids, 0)), 0.0)
            best_NK = ranked_lists.best_gains(truth_NL, self._weights, max(scored_ks))
        for at, (metric, k) in enumerate(self._names):
            if metric in _SCORED:
                self._sums[at] += _values(_SCORED[metric], gains_NK, counts_N, k).sum()
                self._best_sums[at] += _values(_SCORED[metric], best_NK, counts_N, k).sum()
            elif metric != "coverage":
                self._sums[at] += _values(metric, hits_NK, counts_N, k).sum()

    def _add_labels(self, ids_NK: NDArray[np.int64], hits_NK: NDArray[np.bool_], truth_NL: sparse.csr_array) -> None:
        # add.at costs by the number of hits, a bincount would cost by the number of labels in every batch.
        np.add.at(self._label_truth, truth_NL.indices, 1)
        for at, k in enumerate(self._label_ks):
            np.add.at(self._label_hits[at], ids_NK[:, :k][hits_NK[:, :k]], 1)

    def merge(self, other: Evaluation) -> None:
        """Count what another evaluation of the same data set and the same metrics has counted."""
        own, others = self._settings(), other._settings()
        differing = [name for name in own if not np.array_equal(own[name], others[name])]
        if differing:
            raise ValueError(f"evaluations to be merged must have the same settings, but differ in {listed(differing)}")
        places = [part._num_places for part in (self, other) if part._num_places is not None]
        self._num_places = min(places, default=None)
        for name in _COUNTED:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def _settings(self) -> dict[str, NDArray[Any]]:
        return {
            "label_frequencies": self.label_frequencies,
            "num_train": np.array(self.num_train),
            "propensity": np.array([self.propensity.a, self.propensity.b]),
            "ks": np.array([(METRICS.index(metric), k) for metric, k in self._names], dtype=np.int64).reshape(-1, 2),
            "asked": np.array(self._asked),
            "drop_rows_without_truth": np.array(self.rows_without_truth == "drop"),
        }

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything as plain arrays of numbers, to be sent or saved; ``from_state`` makes the same evaluation again.

        >>> part = Evaluation([2, 1], num_train=3)
        >>> Evaluation.from_state(part.state()).num_labels
        2
        """
        places = PADDING if self._num_places is None else self._num_places
        counted = {name.lstrip("_"): getattr(self, name) for name in _COUNTED}
        return {name: np.array(value) for name, value in {**self._settings(), "num_places": places, **counted}.items()}

    @classmethod
    def from_state(cls, state: Mapping[str, NDArray[Any]]) -> Evaluation:
        """The evaluation whose ``state`` this is."""
        ks: dict[str, list[int]] = {}
        for metric, k in state["ks"].tolist():
            ks.setdefault(METRICS[metric], []).append(k)
        a, b = state["propensity"].tolist()
        evaluation = cls(
            state["label_frequencies"],
            int(state["num_train"]),
            Propensity(a, b),
            ks,
            rows_without_truth="drop" if bool(state["drop_rows_without_truth"]) else "zero",
        )
        evaluation._asked = bool(state["asked"])
        places = int(state["num_places"])
        evaluation._num_places = None if places == PADDING else places
        for name in _COUNTED:
            value = state[name.lstrip("_")]
            setattr(evaluation, name, value.copy() if value.ndim else int(value))
        return evaluation

    def _num_counted(self) -> int:
        dropped = self.rows_without_truth == "drop"
        num = self.num_rows_with_truth if dropped else self.num_rows
        if num == 0:
            what = "text with positives" if dropped else "text"
            raise DataError(f"metrics need at least one {what}, but none was added; is the split empty?")
        return num

    def results(self) -> dict[str, float]:
        """Metric name, such as "PSP@3", to its value in percent."""
        num = self._num_counted()
        # A list of all labels is long enough for any k.
        places = self._num_places or 0
        complete = self._asked or places >= self.num_labels
        found: dict[str, float] = {}
        for at, (metric, k) in enumerate(self._names):
            if not complete and k > places:
                continue
            if metric == "coverage":
                value = ranked_lists.coverage(self._label_hits[self._label_ks.index(k)], self._label_truth)
            elif metric in _SCORED:
                # No text has a positive: nothing could be gained, and nothing was.
                value = self._sums[at] / self._best_sums[at] if self._best_sums[at] else 0.0
            else:
                value = self._sums[at] / num
            found[f"{metric}@{k}"] = float(100 * value)
        return found

    def bins(self, k: int = 5, num_bins: int = 5) -> list[Bin]:
        """What labels of equal total train frequency contribute to P@k, the most frequent labels first."""
        groups_L = frequency_bins(self.label_frequencies, num_bins)
        return self._contributions(groups_L, [str(number + 1) for number in range(num_bins)], k)

    def classes(self, k: int = 5) -> list[Bin]:
        """What head, torso and tail labels contribute to P@k."""
        return self._contributions(frequency_classes(self.label_frequencies), CLASSES, k)

    def _contributions(self, groups_L: NDArray[np.int64], names: Sequence[str], k: int) -> list[Bin]:
        if k not in self._label_ks:
            raise ValueError(f"bins need P@k to have been counted, but k is {k} and counted were {self._label_ks}")
        hits_L = self._label_hits[self._label_ks.index(k)]
        return contributions(groups_L, names, self.label_frequencies, hits_L, k, self._num_counted())


def places_needed(split: Split, k: int) -> int:
    """Places to search so that k are left when filter pairs are taken out.

    >>> from unidex.data.texts import Texts
    >>> pairs = sparse.csr_array([[0, 1, 0], [1, 1, 0]])
    >>> places_needed(Split.of(Texts.of(["a", "b"]), pairs, filter_pairs=pairs), 5)
    7
    """
    return k + int(np.diff(split.filter_pairs.indptr).max(initial=0))


def _names(ks: Sequence[int] | Mapping[str, Sequence[int]] | None) -> list[tuple[str, int]]:
    if ks is None:
        ks = DEFAULT_KS
    elif not isinstance(ks, Mapping):
        ks = dict.fromkeys(METRICS, ks)
    unknown = [metric for metric in ks if metric not in METRICS]
    if unknown:
        raise ValueError(f"metrics are {listed(METRICS)}, but {listed(unknown)} was asked for")
    names = [(metric, int(k)) for metric in METRICS for k in sorted(set(ks.get(metric, ())))]
    if any(k < 1 for _, k in names):
        raise ValueError(f"k must be at least 1, but is {min(k for _, k in names)}")
    return names


def _values(
    metric: str, gains_NK: NDArray[Any], num_positives_N: NDArray[np.integer[Any]], k: int
) -> NDArray[np.float64]:
    by_positives = {"R": ranked_lists.recall, "F1": ranked_lists.f1, "nDCG": ranked_lists.ndcg}
    if metric in by_positives:
        return by_positives[metric](gains_NK, num_positives_N, k)
    value = {"P": ranked_lists.precision, "hits": ranked_lists.any_hit, "MRR": ranked_lists.reciprocal_rank}[metric]
    return value(gains_NK, k)


def _ordered(topk: TopK) -> TopK:
    """The same lists by score, ties by the lower id: lists made elsewhere may have broken ties in another way."""
    ids_NK, scores_NK = topk.ids, topk.scores
    better = scores_NK[:, :-1] > scores_NK[:, 1:]
    tied = (scores_NK[:, :-1] == scores_NK[:, 1:]) & ((ids_NK[:, :-1] < ids_NK[:, 1:]) | (ids_NK[:, 1:] < 0))
    padded = (ids_NK < 0) == np.isneginf(scores_NK)
    return topk if bool((better | tied).all()) and bool(padded.all()) else TopK.rank(ids_NK, scores_NK)
