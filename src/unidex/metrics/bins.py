"""Labels by how often they are seen in train, and what each group of them contributes to P@k.

Shapes: L labels, M groups; the group of a label is a number 0..M-1, 0 the most frequent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unidex.data.summary import HEAD_ABOVE, TAIL_BELOW

CLASSES = ("head", "torso", "tail")


@dataclass(frozen=True)
class Bin:
    """A group of labels."""

    name: str  # "1" (most frequent) to "5", or head, torso, tail
    num_labels: int  # number of labels in it
    mean_frequency: float  # mean number of train texts of its labels; 0 for a group without labels
    num_hits: int  # number of hits on its labels in the first k places
    contribution: float  # its part of P@k in percent; the parts of all groups add up to P@k


def frequency_bins(frequencies_L: NDArray[np.integer[Any]], num_bins: int = 5) -> NDArray[np.int64]:
    """Bins of about equal total frequency ("equi-voluminous"): the first has few frequent labels, the last the tail.

    Labels are ordered by descending frequency, the lower id first among equals, each as wide as its frequency. This row
    is cut into ``num_bins`` parts of equal width; a label belongs to the part in which it starts.

    Formula: bin_l = floor(m * (frequencies before l) / (all frequencies)), unseen labels in the last bin.

    References: The quantile analysis of pyxclib, github.com/kunaldahiya/pyxclib.

    Frequencies 6, 2, 2, 1, 1 are 12 together. In two bins of 6, the first label fills one, the others begin behind it:

    >>> frequency_bins(np.array([1, 6, 2, 0, 2, 1]), 2).tolist()
    [1, 0, 1, 1, 1, 1]
    """
    if num_bins < 1:
        raise ValueError(f"there must be at least one bin, but num_bins is {num_bins}")
    # Unseen labels, often most of them, start at the very end.
    bins_L = np.full(len(frequencies_L), num_bins - 1, dtype=np.int64)
    seen = np.flatnonzero(frequencies_L)
    order = seen[np.argsort(-frequencies_L[seen].astype(np.int64), kind="stable")]
    falling = frequencies_L[order].astype(np.int64)
    before = np.cumsum(falling) - falling
    # Whole numbers: a cut falls on the same label on every machine.
    bins_L[order] = np.minimum(num_bins * before // max(int(falling.sum()), 1), num_bins - 1)
    return bins_L


def frequency_classes(frequencies_L: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Head (0): more than 100 train texts; torso (1): 10 to 100; tail (2): fewer than 10, also none.

    >>> frequency_classes(np.array([101, 100, 10, 9, 0])).tolist()
    [0, 1, 1, 2, 2]
    """
    return (frequencies_L <= HEAD_ABOVE).astype(np.int64) + (frequencies_L < TAIL_BELOW)


def contributions(
    groups_L: NDArray[np.int64],
    names: Sequence[str],
    frequencies_L: NDArray[np.integer[Any]],
    label_hits_L: NDArray[np.integer[Any]],
    k: int,
    num_texts: int,
) -> list[Bin]:
    """What each group of labels contributes to P@k.

    Formula: contribution of a group = 100 (hits on its labels in the first k places) / (k N).

    ``groups_L`` has the group of each label, ``frequencies_L`` its number of train texts, ``label_hits_L`` its hits in
    the first k places.

    Two texts, k = 1: one hit on the frequent label, none on the others, so P@1 = 50 comes from the first group.

    >>> first, second = contributions(np.array([0, 1, 1]), ["1", "2"], np.array([8, 2, 1]), np.array([1, 0, 0]), 1, 2)
    >>> first
    Bin(name='1', num_labels=1, mean_frequency=8.0, num_hits=1, contribution=50.0)
    >>> second.num_labels, second.mean_frequency, second.contribution
    (2, 1.5, 0.0)
    """
    sizes = np.bincount(groups_L, minlength=len(names))
    volumes, num_hits = (_sums(groups_L, numbers_L, len(names)) for numbers_L in (frequencies_L, label_hits_L))
    return [
        Bin(name, int(size), float(volume / max(size, 1)), int(found), float(100 * found / (k * num_texts)))
        for name, size, volume, found in zip(names, sizes, volumes, num_hits, strict=True)
    ]


def _sums(groups_L: NDArray[np.int64], numbers_L: NDArray[np.integer[Any]], num_groups: int) -> NDArray[np.float64]:
    """The sum of each group; only labels with other numbers than 0 are copied."""
    labels = np.flatnonzero(numbers_L)
    return np.bincount(groups_L[labels], weights=numbers_L[labels], minlength=num_groups).astype(np.float64)
