"""Rows of sparse tables: made of their numbers of entries, and cut to their highest ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse


def table_of(
    values: NDArray[Any], columns: NDArray[Any], counts_R: NDArray[np.integer[Any]], num_columns: int
) -> sparse.csr_array:
    """A table from the entries of its rows, one row behind the other, and their numbers.

    Nothing is copied: SciPy would widen all columns where the ends of the rows are wider than they.

    >>> table_of(np.array([5, 6]), np.array([1, 0], dtype=np.int32), np.array([1, 0, 1]), 2).toarray().tolist()
    [[0, 5], [0, 0], [6, 0]]
    """
    indptr = np.zeros(len(counts_R) + 1, dtype=columns.dtype if len(columns) < 2**31 else np.int64)
    np.cumsum(counts_R, out=indptr[1:])
    return sparse.csr_array((values, columns, indptr), shape=(len(counts_R), num_columns))


def rows_of(matrix: sparse.csr_array) -> NDArray[np.int32]:
    """The row of each stored entry.

    >>> rows_of(sparse.csr_array(np.array([[1, 1], [0, 0], [0, 1]]))).tolist()
    [0, 0, 2]
    """
    return np.repeat(np.arange(matrix.shape[0], dtype=np.int32), np.diff(matrix.indptr))


def strongest(matrix: sparse.csr_array, own_R: NDArray[np.int64], most: int) -> sparse.csr_array:
    """The ``most`` highest entries of each row; ties go to the lower column.

    Args:
        matrix: with sorted columns.
        own_R: a column for each row. Where it is stored, it comes before all others, whatever its value.
        most: entries kept of a row, at least one.

    Shapes:
        matrix [R, L], own_R [R], result [R, L].

    >>> matrix = sparse.csr_array(np.array([[3, 5, 0, 5], [1, 2, 9, 9]]))
    >>> strongest(matrix, np.array([2, 0]), 1).toarray().tolist()
    [[0, 5, 0, 0], [1, 0, 0, 0]]
    >>> strongest(matrix, np.array([2, 0]), 2).toarray().tolist()
    [[0, 5, 0, 5], [1, 0, 9, 0]]
    """
    counts = np.diff(matrix.indptr)
    if int(counts.max(initial=0)) <= most:
        return matrix
    rows = rows_of(matrix)
    weakness = -matrix.data.astype(np.float64)
    weakness[matrix.indices == own_R[rows]] = -np.inf
    # Stable: among equals of a row the columns stay as they are, ascending.
    order = np.lexsort((weakness, rows))
    kept = np.sort(order[np.arange(len(order)) - matrix.indptr[rows] < most])
    return table_of(matrix.data[kept], matrix.indices[kept], np.minimum(counts, most), matrix.shape[1])
