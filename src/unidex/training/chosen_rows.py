"""Some rows of prepared texts: copied where they are few, looked up where they are many.

Prepared texts may be in a file that is larger than memory. A step reads a few thousand rows of it, which are asked for
one by one before they are read (`unidex.storage.mapped.fetch_spans`).

Shapes: N prepared texts, M chosen ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex.storage.mapped import fetch_spans
from unidex.storage.resources import available_memory

# Bytes of prepared texts whose rows are copied.
MAX_COPY = 1 << 28


class ChosenRows:
    """Rows of a matrix that may be mapped from a file; what is read of them is copied, nothing else.

    >>> rows = ChosenRows(sparse.csr_array(np.eye(4)), np.array([3, 1]))
    >>> rows.shape, rows[1:].toarray().tolist(), rows[np.array([0])].toarray().tolist()
    ((2, 4), [[0.0, 1.0, 0.0, 0.0]], [[0.0, 0.0, 0.0, 1.0]])
    """

    def __init__(self, matrix: sparse.csr_array, rows: NDArray[np.int64]) -> None:
        self._matrix, self._rows = matrix, rows
        self.shape = (len(rows), int(matrix.shape[1]))

    def __getitem__(self, places: Any) -> sparse.csr_array:
        return taken(self._matrix, self._rows[places])


def taken(prepared: Any, rows: NDArray[np.int64]) -> Any:
    """These rows of prepared texts, in their order."""
    if isinstance(prepared, sparse.csr_array) and _may_leave_memory(prepared.indices.nbytes + prepared.data.nbytes):
        starts, ends = prepared.indptr[rows].astype(np.int64), prepared.indptr[rows + 1].astype(np.int64)
        for array in (prepared.indices, prepared.data):
            fetch_spans(array, starts, ends)
    return prepared[rows]


def _may_leave_memory(num_bytes: int) -> bool:
    """Whether a file is so large that the system may not keep all of it in memory, now or soon."""
    return num_bytes > MAX_COPY and 2 * num_bytes > available_memory()


def chosen(prepared: Any, rows: NDArray[np.int64]) -> Any:
    """These rows of prepared texts."""
    if isinstance(prepared, sparse.csr_array) and prepared.nnz * 8 > MAX_COPY:
        return ChosenRows(prepared, rows)
    return prepared[rows]
