"""Rows of sparse matrices: the row of each entry, look-ups of given columns, and the highest entries of each row.

Shapes: N rows, L columns, K columns looked up per row. Column indices are sorted in each row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex import native

# Entries whose columns are counted together; a count of all columns is added for each of these blocks.
_COUNTED_AT_ONCE = 1 << 23


def row_of_entries(matrix: sparse.csr_array, dtype: type[np.integer[Any]] = np.int32) -> NDArray[Any]:
    """The row of each stored entry.

    >>> row_of_entries(sparse.csr_array(np.array([[1, 1], [0, 0], [0, 1]]))).tolist()
    [0, 0, 2]
    """
    return np.repeat(np.arange(matrix.shape[0], dtype=dtype), np.diff(matrix.indptr))


def column_counts(matrix: sparse.csr_array) -> NDArray[np.int64]:
    """The number of entries of each column. ``numpy.bincount`` alone would copy all columns in 64 bits.

    >>> column_counts(sparse.csr_array(np.array([[1, 1], [0, 0], [0, 1]]))).tolist()
    [1, 2]
    """
    counts = np.zeros(matrix.shape[1], dtype=np.int64)
    for start in range(0, len(matrix.indices), _COUNTED_AT_ONCE):
        counts += np.bincount(matrix.indices[start : start + _COUNTED_AT_ONCE], minlength=len(counts))
    return counts


def csr_from_counts(
    values: NDArray[Any], columns: NDArray[Any], counts_N: NDArray[np.integer[Any]], num_columns: int
) -> sparse.csr_array:
    """A matrix from the entries of its rows, row after row, and the number of entries per row.

    Nothing is copied; SciPy alone would widen all columns to the type of the row ends.

    >>> csr_from_counts(np.array([5, 6]), np.array([1, 0], dtype=np.int32), np.array([1, 0, 1]), 2).toarray().tolist()
    [[0, 5], [0, 0], [6, 0]]
    """
    indptr = np.zeros(len(counts_N) + 1, dtype=columns.dtype if len(columns) < 2**31 else np.int64)
    np.cumsum(counts_N, out=indptr[1:])
    return sparse.csr_array((values, columns, indptr), shape=(len(counts_N), num_columns))


_EMPTY = sparse.csr_array((1, 1), dtype=np.float32)
_EMPTY.has_canonical_format = True


def unchecked_csr(
    values: NDArray[Any], columns: NDArray[Any], starts: NDArray[Any], shape: tuple[int, int]
) -> sparse.csr_array:
    """A matrix over these arrays as they are. SciPy's own checks cost more than most work on a few rows.

    Args:
        values: of the entries, row after row.
        columns: of the entries, ascending in a row, each once.
        starts: where each row starts and the last one ends, of the type of the columns.
        shape: of the matrix.

    >>> unchecked_csr(np.array([5.0]), np.array([1]), np.array([0, 0, 1]), (2, 2)).toarray().tolist()
    [[0.0, 0.0], [0.0, 5.0]]
    """
    matrix: sparse.csr_array = sparse.csr_array.__new__(sparse.csr_array)
    vars(matrix).update(vars(_EMPTY))
    matrix.data, matrix.indices, matrix.indptr, matrix._shape = values, columns, starts, shape
    return matrix


_FEW_ROWS = 8


def sparse_product(left_NM: sparse.csr_array, right_ML: sparse.csr_array) -> sparse.csr_array:
    """The product of two sparse matrices of float32 with sorted columns, bit for bit that of SciPy.

    SciPy's checks cost several times the product of a few rows.

    >>> left, right = (sparse.csr_array(np.array(rows, dtype=np.float32)) for rows in ([[2, 1]], [[0, 3], [4, 5]]))
    >>> sparse_product(left, right).toarray().tolist()
    [[4.0, 11.0]]
    """
    num_rows, num_columns = left_NM.shape[0], right_ML.shape[1]
    if native.is_plain(left_NM, right_ML):
        found = native.kernels.multiply(*native.arrays_of(left_NM), *native.arrays_of(right_ML), num_columns)
        values, columns, starts = map(np.frombuffer, found, (np.float32, np.int32, np.int32))
        return unchecked_csr(values, columns, starts, (num_rows, num_columns))
    if num_rows > _FEW_ROWS:
        product: sparse.csr_array = left_NM @ right_ML
        product.sort_indices()
        return product
    firsts = right_ML.indptr[left_NM.indices]
    lengths = right_ML.indptr[left_NM.indices + 1] - firsts
    ends = lengths.cumsum()
    entries = np.repeat(firsts - (ends - lengths), lengths) + np.arange(ends[-1] if len(ends) else 0)
    columns = right_ML.indices[entries].astype(np.int64)
    if num_rows > 1:
        columns += np.repeat(row_of_entries(left_NM, np.int64) * num_columns, lengths)
    keys, place = np.unique(columns, return_inverse=True)
    values = np.zeros(len(keys), dtype=np.float32)
    # One after the other, in the order of SciPy.
    np.add.at(values, place, np.repeat(left_NM.data, lengths) * right_ML.data[entries])
    if not values.all():
        keys, values = keys[values != 0], values[values != 0]
    starts = np.searchsorted(keys, np.arange(num_rows + 1) * num_columns)
    return unchecked_csr(values, keys % num_columns, starts, (num_rows, num_columns))


def find_sorted(ascending: NDArray[Any], wanted: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The place of each wanted number in an ascending array, and whether it is there.

    >>> find_sorted(np.array([2, 5]), np.array([5, 3, 9]))
    (array([1, 1, 1]), array([ True, False, False]))
    """
    if len(ascending) == 0:
        return np.zeros(wanted.shape, dtype=np.int64), np.zeros(wanted.shape, dtype=bool)
    places = np.minimum(np.searchsorted(ascending, wanted), len(ascending) - 1)
    return places, ascending[places] == wanted


def find_entries(
    matrix_NL: sparse.csr_array, columns_NK: NDArray[np.integer[Any]]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The place of each entry (row i, column ``columns_NK[i, j]``) in ``matrix_NL.data``, and whether it is stored.

    One sorted search for all rows at once. Columns outside the matrix, such as the padding -1, are never stored.

    """
    num_rows, num_columns = matrix_NL.shape
    if columns_NK.shape[0] != num_rows:
        raise ValueError(f"there must be one row of columns per matrix row ({num_rows}), but are {len(columns_NK)}")
    # Row-major keys ascend, because CSR stores row after row with sorted columns.
    keys = row_of_entries(matrix_NL, np.int64) * num_columns + matrix_NL.indices
    wanted = np.arange(num_rows, dtype=np.int64)[:, None] * num_columns + columns_NK
    places, is_stored = find_sorted(keys, wanted)
    return places, is_stored & (columns_NK >= 0) & (columns_NK < num_columns)


def contains(matrix_NL: sparse.csr_array, columns_NK: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
    """Whether row i stores column ``columns_NK[i, j]``; padding never is stored.

    >>> pairs = sparse.csr_array(np.array([[0, 1, 1], [1, 0, 0]]))
    >>> contains(pairs, np.array([[1, 0], [0, -1]]))
    array([[ True, False],
           [ True, False]])
    """
    return find_entries(matrix_NL, columns_NK)[1]


def values_at(matrix_NL: sparse.csr_array, columns_NK: NDArray[np.integer[Any]]) -> NDArray[np.float32]:
    """The value of row i at column ``columns_NK[i, j]``; 0 where nothing is stored.

    >>> values_at(sparse.csr_array(np.array([[0, 3], [5, 0]])), np.array([[1, -1], [1, 0]])).tolist()
    [[3.0, 0.0], [0.0, 5.0]]
    """
    if len(matrix_NL.data) == 0:
        return np.zeros(columns_NK.shape, dtype=np.float32)
    places, is_stored = find_entries(matrix_NL, columns_NK)
    return np.where(is_stored, matrix_NL.data[places], 0).astype(np.float32)


def keep_highest(matrix: sparse.csr_array, max_entries: int, first_N: NDArray[np.int64]) -> sparse.csr_array:
    """The ``max_entries`` highest entries of each row; ties go to the lower column.

    Args:
        matrix: the matrix.
        max_entries: entries to keep per row, at least one.
        first_N: one column per row; if it is stored, it comes before all others, whatever its value.

    >>> matrix = sparse.csr_array(np.array([[3, 5, 0, 5], [1, 2, 9, 9]]))
    >>> keep_highest(matrix, 1, np.array([2, 0])).toarray().tolist()
    [[0, 5, 0, 0], [1, 0, 0, 0]]
    >>> keep_highest(matrix, 2, np.array([2, 0])).toarray().tolist()
    [[0, 5, 0, 5], [1, 0, 9, 0]]
    """
    counts = np.diff(matrix.indptr)
    if int(counts.max(initial=0)) <= max_entries:
        return matrix
    rows = row_of_entries(matrix)
    descending = -matrix.data.astype(np.float64)
    descending[matrix.indices == first_N[rows]] = -np.inf
    # Stable: equal entries of a row stay in ascending order of their columns.
    order = np.lexsort((descending, rows))
    kept = np.sort(order[np.arange(len(order)) - matrix.indptr[rows] < max_entries])
    return csr_from_counts(matrix.data[kept], matrix.indices[kept], np.minimum(counts, max_entries), matrix.shape[1])
