"""Rows of numbers that others are appended to."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class GrowingRows:
    """Rows of float32; where there is no room for more they are copied, with room for an eighth more.

    So a row costs a few copied ones on average, however many there are, and memory stays near what is needed.

    >>> rows = GrowingRows(2)
    >>> rows.append(np.ones((3, 2), dtype=np.float32))
    >>> rows.rows.shape
    (3, 2)
    """

    def __init__(self, dim: int) -> None:
        self.rows: NDArray[np.float32] = np.empty((0, dim), dtype=np.float32)
        self._room = self.rows  # the rows are its first ones

    def append(self, rows: NDArray[np.float32]) -> None:
        """Append rows."""
        before, after = len(self.rows), len(self.rows) + len(rows)
        if len(self._room) < after:
            self._room = np.empty((max(after, before + before // 8 + 64), self.rows.shape[1]), dtype=np.float32)
            self._room[:before] = self.rows
        self._room[before:after] = rows
        self.rows = self._room[:after]
