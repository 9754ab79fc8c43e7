"""Which label each point of a structure stands for, where points can be appended but never moved.

A graph links its points, and packed codes stand in the order they came. When a label's vector changes, a new point is
appended for it and the old one stays behind as stale: it stands for no label.

Shapes: P points, L labels.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from unidex.errors import ModelError
from unidex.storage.mapped import load_array
from unidex.topk import PADDING

_FILE = "points.npy"


class Points:
    """The label of each point, and the point of each label.

    >>> points = Points.of(3)
    >>> points.move(np.array([1]))
    >>> points.add(1)
    >>> points.labels_P.tolist(), points.points_L.tolist()
    ([0, -1, 2, 1, 3], [0, 3, 2, 4])
    """

    def __init__(self, labels_P: NDArray[np.int64]) -> None:
        self.labels_P = labels_P
        self.points_L = np.flatnonzero(labels_P >= 0)[np.argsort(labels_P[labels_P >= 0])]

    @classmethod
    def of(cls, num_labels: int) -> Self:
        """One point per label, in their order."""
        return cls(np.arange(num_labels, dtype=np.int64))

    @property
    def any_moved(self) -> bool:
        """Whether points and labels are not the same numbers."""
        return len(self.labels_P) > len(self.points_L)

    def add(self, number: int) -> None:
        """Points for so many new labels were appended."""
        first, point = len(self.points_L), len(self.labels_P)
        self.labels_P = np.concatenate([self.labels_P, np.arange(first, first + number, dtype=np.int64)])
        self.points_L = np.concatenate([self.points_L, np.arange(point, point + number, dtype=np.int64)])

    def move(self, ids: NDArray[np.int64]) -> None:
        """New points for these labels were appended, in this order."""
        first = len(self.labels_P)
        stale = self.labels_P.copy()
        stale[self.points_L[ids]] = PADDING
        self.labels_P = np.concatenate([stale, ids])
        self.points_L = self.points_L.copy()
        self.points_L[ids] = np.arange(first, first + len(ids))

    def hidden(self, hidden_L: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
        """Which points must not be found: stale ones and points of hidden labels; None where every point may be."""
        if not self.any_moved:
            return hidden_L
        hidden_P = self.labels_P < 0
        if hidden_L is not None:
            hidden_P |= hidden_L[self.labels_P]
        return hidden_P

    def labels(self, points: NDArray[np.int64]) -> NDArray[np.int64]:
        """The labels of points; -1 for a stale one and for -1."""
        return np.where(points < 0, PADDING, self.labels_P[points]) if self.any_moved else points

    def write(self, folder: Path) -> None:
        """Write the labels of the points, where some have moved."""
        if self.any_moved:
            np.save(folder / _FILE, self.labels_P)

    @classmethod
    def read(cls, folder: Path, num_labels: int) -> Self:
        """What ``write`` wrote; refused where a label has not exactly one point."""
        file = folder / _FILE
        if not file.exists():
            return cls.of(num_labels)
        labels_P = load_array(file, (None,))
        known = labels_P[labels_P >= 0] if labels_P.dtype == np.int64 else labels_P[:0]
        if not np.array_equal(np.sort(known), np.arange(num_labels)):
            raise ModelError(
                f"{file} must name each of {num_labels} labels once, and -1 for a stale point, but does not; "
                "build the index again"
            )
        return cls(labels_P)
