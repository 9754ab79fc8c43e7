"""Which train texts and which label texts are trained on, and the targets of the label texts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex.augment.cooccurrence import glas_targets, soft_targets
from unidex.augment.extended_split import joined
from unidex.augment.walks import walk_targets
from unidex.config import Augment
from unidex.data.concepts import further_texts
from unidex.data.dataset import Dataset, Split
from unidex.data.texts import Texts
from unidex.errors import ConfigError, DataError, quoted
from unidex.metrics.bins import frequency_bins
from unidex.sparse_rows import csr_from_counts, find_sorted, keep_highest, row_of_entries

Ids = NDArray[np.int64]

# What a random choice is for; part of its seed, so that no two draw the same numbers.
_PICK, _UNIFORM, _WALK = range(101, 104)


@dataclass(frozen=True, eq=False)
class Points:
    """What is trained on."""

    texts: Ids  # ids of the train texts that are kept, ascending
    labels: Ids  # the label of each point: those whose own texts are points, ascending, then those of further texts
    # A row for each point, a column for each label; targets in (0, 1], float32, sorted.
    targets: sparse.csr_array
    further: Ids = field(default_factory=lambda: np.empty(0, dtype=np.int64))  # which further texts are points
    num_labels: int = 0  # number of all labels; further texts are counted from it

    @property
    def label_texts(self) -> Ids:
        """The text of each point: a label id, or the number of labels and then the place among further texts."""
        own = self.labels[: len(self.labels) - len(self.further)]
        return np.concatenate([own, self.num_labels + self.further])


def label_points(
    positives: sparse.csr_array, settings: Augment, seed: int, further_labels: Ids | None = None
) -> Points:
    """Label texts as further training points.

    The labels that become points are chosen first (``labels``, ``pick``); without the self label, those left with no
    target are no points. ``max_targets`` counts the self label only where it is a target.

    Further texts of these labels (``further_labels`` has the label of each) become points with the same targets.

    The same seed gives the same points. The stored pairs of texts x labels are the positives, whatever their relevance.

    References: Gandalf, arXiv 2405.04545.

    >>> texts = sparse.csr_array(np.array([[1, 1, 0], [1, 0, 0]], dtype=np.float32))
    >>> points = label_points(texts, Augment(method="gandalf"), seed=0)
    >>> points.texts.tolist(), points.labels.tolist(), points.targets.toarray().tolist()
    ([0, 1], [0, 1, 2], [[1.0, 0.5, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> label_points(texts, Augment(method="gandalf", self_label=False), seed=0).labels.tolist()
    [0, 1]
    """
    num_texts, num_labels = positives.shape
    all_texts = np.arange(num_texts)
    if settings.method == "none":
        nothing = sparse.csr_array((0, num_labels), dtype=np.float32)
        return Points(all_texts, np.empty(0, dtype=np.int64), nothing)
    if settings.method == "auto":
        raise ConfigError("points need a method by name, but augment.method is 'auto', which training chooses from")
    labels = _pick_labels(positives, settings, seed)
    targets = _targets(positives, labels, settings, seed)
    if not settings.self_label:
        targets = _without(targets, labels)
        filled = np.flatnonzero(np.diff(targets.indptr))
        labels, targets = labels[filled], targets[filled]
    if settings.points == "uniform":
        order = np.random.default_rng([seed, _UNIFORM]).permutation(num_texts + len(labels))
        kept = np.sort(order[:num_texts])
        all_texts, rows = kept[kept < num_texts], kept[kept >= num_texts] - num_texts
        labels, targets = labels[rows], targets[rows]
    elif settings.points == "labels":
        if len(labels) == 0:
            raise ConfigError(
                "augment.points = 'labels' needs a label with a target, but no label stands with another on a text; "
                "set augment.self_label = true, or lower augment.delta"
            )
        all_texts = all_texts[:0]
    if further_labels is None or len(further_labels) == 0:
        return Points(all_texts, labels, targets, num_labels=num_labels)
    rows, chosen = find_sorted(labels, further_labels)
    further, rows = np.flatnonzero(chosen), rows[chosen]
    all_labels = np.concatenate([labels, labels[rows]])
    all_targets = sparse.vstack([targets, targets[rows]], format="csr")
    return Points(all_texts, all_labels, all_targets, further, num_labels)


def with_points(dataset: Dataset, points: Points, method: str) -> Dataset:
    """A data set whose train texts are the kept ones and then the label texts, with soft targets as relevance.

    Filter pairs of kept texts stay, label texts have none. Labels, test texts and propensity constants stay. Label
    frequencies, and propensities with them, count the label texts too: score with the original data set.
    """
    labels = dataset.labels
    own = points.labels[: len(points.labels) - len(points.further)]
    further, _ = further_texts(labels.concepts)
    texts, names = labels.texts.take(own), [labels.uid(label) for label in own.tolist()]
    if len(points.further):
        texts = Texts.of([*texts, *(further[place] for place in points.further.tolist())])
        counts: Counter[int] = Counter()
        for label in points.labels[len(own) :].tolist():
            counts[label] += 1
            names.append(f"{counts[label] + 1}:{labels.uid(label)}")
    train = joined(dataset.train.take(points.texts), Split.of(texts, points.targets), names, "label:")
    return replace(dataset, name=f"{dataset.name}-{method}", train=train)


def check_label_texts(dataset: Dataset) -> None:
    """Refuse a data set whose label texts cannot be points beside its texts."""
    features = dataset.train.features is not None
    if features or not dataset.labels.texts.num_bytes:
        raise DataError(
            f"data set {quoted(dataset.name)} must have texts and label texts to make points of, but "
            f"{'comes as sparse features' if features else 'all label texts are empty'}; take a format that holds "
            "texts (docs/reference/data-formats.md)"
        )


def _pick_labels(positives: sparse.csr_array, settings: Augment, seed: int) -> Ids:
    """The labels that are to be points, at least one."""
    num_labels = positives.shape[1]
    count = max(1, round(settings.label_share * num_labels))
    order = np.random.default_rng([seed, _PICK]).permutation(num_labels)
    if settings.pick == "tail-first":
        bins_L = frequency_bins(np.bincount(positives.indices, minlength=num_labels))
        # Stable: inside a bin the order is still random.
        order = order[np.argsort(-bins_L[order], kind="stable")]
    return np.sort(order[:count])


def _targets(positives: sparse.csr_array, labels: Ids, settings: Augment, seed: int) -> sparse.csr_array:
    # All labels: their rows need not be copied.
    wanted = None if len(labels) == positives.shape[1] else labels
    max_targets = settings.max_targets if settings.self_label or not settings.max_targets else settings.max_targets + 1
    if settings.method == "one-hot":
        ones = np.ones(len(labels), dtype=np.float32)
        return csr_from_counts(ones, labels.astype(np.int32), np.ones(len(labels), dtype=np.int64), positives.shape[1])
    if settings.method == "random-walk":
        found = walk_targets(settings, positives, np.random.default_rng([seed, _WALK]), wanted)
        return keep_highest(found, max_targets, labels) if max_targets else found
    make = soft_targets if settings.method == "gandalf" else glas_targets
    return make(positives, delta=settings.delta, max_targets=max_targets, labels=wanted)


def _without(targets: sparse.csr_array, labels: Ids) -> sparse.csr_array:
    """The targets without the label that each row belongs to."""
    rows = row_of_entries(targets)
    kept = targets.indices != labels[rows]
    counts = np.bincount(rows[kept], minlength=len(labels))
    return csr_from_counts(targets.data[kept], targets.indices[kept], counts, targets.shape[1])
