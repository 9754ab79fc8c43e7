"""Feature rows with more entries than 32 bits count: row ends of 64 bits beside ids of 32.

SciPy wants both of one type and would copy the ids of all rows, which are mapped from a file, to select a few.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex.sparse_rows import unchecked_csr

LONG_FROM = 1 << 31  # entries


class LongRows(sparse.csr_array):  # type: ignore[misc]  # SciPy has no types
    """A matrix whose rows are selected without touching the others; a selection is an ordinary matrix.

    >>> rows = LongRows.of(np.array([5.0, 6.0, 7.0]), np.array([1, 0, 1], dtype=np.int32), np.array([0, 1, 1, 3]), 2)
    >>> rows[[2, 0]].toarray().tolist(), rows[1:].toarray().tolist()
    ([[6.0, 7.0], [0.0, 5.0]], [[0.0, 0.0], [6.0, 7.0]])
    """

    @classmethod
    def of(cls, weights: NDArray[Any], ids: NDArray[np.int32], ends: NDArray[np.int64], num_features: int) -> LongRows:
        """A matrix over these arrays, which are not copied; ``ends`` starts with 0, and ids ascend in each row."""
        matrix: LongRows = cls.__new__(cls)
        matrix.__dict__.update(vars(unchecked_csr(weights, ids, ends, (len(ends) - 1, num_features))))
        return matrix

    def __getitem__(self, rows: Any) -> Any:
        if isinstance(rows, tuple) or (np.ndim(rows) == 0 and not isinstance(rows, slice)):
            return super().__getitem__(rows)
        chosen = np.arange(*rows.indices(self.shape[0])) if isinstance(rows, slice) else np.asarray(rows)
        if chosen.dtype == bool:
            chosen = np.flatnonzero(chosen)
        if chosen.size and not -self.shape[0] <= chosen.min() <= chosen.max() < self.shape[0]:
            raise IndexError(f"rows must be those of {self.shape[0]} rows, but some are not")
        chosen = np.where(chosen < 0, chosen + self.shape[0], chosen).astype(np.int64)
        firsts = self.indptr[chosen]
        lengths = self.indptr[chosen + 1] - firsts
        starts = np.append(0, np.cumsum(lengths))
        if starts[-1] >= LONG_FROM:
            return LongRows.of(*self._entries(firsts, lengths, starts), starts, self.shape[1])
        found = self._entries(firsts, lengths, starts)
        return unchecked_csr(*found, starts.astype(np.int32), (len(chosen), self.shape[1]))

    def _entries(
        self, firsts: NDArray[np.int64], lengths: NDArray[np.int64], starts: NDArray[np.int64]
    ) -> tuple[NDArray[Any], NDArray[np.int32]]:
        if len(firsts) and bool(np.all(firsts[1:] == firsts[:-1] + lengths[:-1])):
            entries: Any = slice(firsts[0], firsts[-1] + lengths[-1])
        else:
            entries = np.repeat(firsts - starts[:-1], lengths) + np.arange(starts[-1])
        return self.data[entries], self.indices[entries]
