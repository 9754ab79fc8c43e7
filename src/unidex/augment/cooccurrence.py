"""Soft targets of label texts from how often labels stand together on a train text (Gandalf, arXiv 2405.04545).

G = Y^T Y counts the texts that have both of two labels; G_jj is the frequency of label j. G is made in blocks of rows,
and what is not above the threshold is dropped before the next block is made: the whole of G never exists.

Shapes: N texts, L labels, R labels whose rows are wanted.

Memory: let m_j be the number of multiplications of row j of G: the sum, over the texts of label j, of their numbers
of labels. Row j has at most b_j = min(m_j, L) entries. Rows are put into a block while their b_j add up to no more
than ``block`` (a row that is longer is a block of its own). So the memory at the peak is at most

    8 bytes per target of the result (10 while it grows) + 24 per positive + 8 per text + 20 per label
    + 56 bytes x max(block, max_j b_j)

where b_j <= L even of a label that every text has. The result is small by itself: the entries of row j of G / G_jj add
up to the mean number of labels of the texts of j, so fewer than that mean / delta of them are above delta.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex import progress
from unidex.sparse_rows import csr_from_counts, keep_highest, row_of_entries

BLOCK = 2**21

Ids = NDArray[np.int64]


def soft_targets(
    positives: sparse.csr_array, *, delta: float, max_targets: int, labels: Ids | None = None, block: int = BLOCK
) -> sparse.csr_array:
    """The targets of label texts: how likely a text that has label j has label i too.

    Formula: y_ij = G_ij / G_jj where that is above delta, else 0; so y_jj = 1. A label that no text has gets y_jj = 1
    alone.

    A pair counts whatever its relevance, as it does in label frequencies: weighed by relevance, G_ij / G_jj could
    exceed 1, and would not be a share of texts.

    Args:
        positives: Y; the stored pairs are the positives.
        delta: targets must exceed this; at least 0, below 1.
        max_targets: targets kept per label text, the highest first, its own label always among them, ties to the
            lower id; 0 for all.
        labels: whose rows are wanted, ascending; all unless given.
        block: entries of G made at a time.

    Shapes: positives [N, L], result [R, L], float32 with sorted columns: row j, column i.

    References: Gandalf, arXiv 2405.04545.

    Three of four texts have label 0, two of these also label 1; label 2 comes with label 0 once in two texts, and
    label 3 is never seen:

    >>> texts = sparse.csr_array(np.array([[1, 1, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 1, 0]]))
    >>> soft_targets(texts, delta=0.1, max_targets=0).toarray().astype(float).round(2).tolist()
    [[1.0, 0.67, 0.33, 0.0], [1.0, 1.0, 0.0, 0.0], [0.5, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
    """
    return _targets(positives, delta, max_targets, labels, block, is_glas=False)


def glas_targets(
    positives: sparse.csr_array, *, delta: float, max_targets: int, labels: Ids | None = None, block: int = BLOCK
) -> sparse.csr_array:
    """Targets that ask of the scores what the GLaS regulariser asks of label vectors.

    Formula: S_ij = (G_ij / G_jj + G_ij / G_ii) / 2, y_ij = sigmoid(S_ij) where S_ij is above delta, else 0; y_jj = 1.

    Binary cross-entropy with target sigmoid(S) has its minimum at the score S. As it is written, the formula also gives
    unrelated labels the target sigmoid(0) = 0.5, for each label text to all labels; here they have none.

    Args, Shapes: as in ``soft_targets``.

    References: Gandalf, arXiv 2405.04545, its part on GLaS; Guo et al., Breaking the Glass Ceiling for Embedding-Based
        Classifiers for Large Output Spaces, NeurIPS 2019.

    With the texts of ``soft_targets``, S_01 = (2/3 + 1) / 2 = 0.8333, and its sigmoid is 0.697:

    >>> texts = sparse.csr_array(np.array([[1, 1, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 1, 0]]))
    >>> glas_targets(texts, delta=0.1, max_targets=0).toarray().astype(float).round(3).tolist()[0]
    [1.0, 0.697, 0.603, 0.0]
    """
    return _targets(positives, delta, max_targets, labels, block, is_glas=True)


def _targets(
    positives: sparse.csr_array, delta: float, max_targets: int, labels: Ids | None, block: int, *, is_glas: bool
) -> sparse.csr_array:
    num_labels = positives.shape[1]
    texts_NL, labels_LN = _both_ways(positives)
    frequencies_L = np.diff(labels_LN.indptr)
    wanted = np.arange(num_labels) if labels is None else labels
    labels_RN = labels_LN if labels is None else labels_LN[labels]
    del labels_LN
    columns, values = _Growing(np.int32), _Growing(np.float32)
    counts = np.zeros(len(wanted), dtype=np.int64)
    with progress.task("label co-occurrence", len(wanted), unit="labels") as advance:
        for start, stop in blocks_of(_row_bounds(labels_RN, texts_NL), block):
            own = wanted[start:stop]
            found = _above(_rows(labels_RN, start, stop) @ texts_NL, own, frequencies_L, delta, is_glas=is_glas)
            if is_glas:
                found.data = np.where(found.indices == own[row_of_entries(found)], 1, 1 / (1 + np.exp(-found.data)))
            # As they are kept: what is equal but for the last bit of float64 is a tie.
            found.data = found.data.astype(np.float32)
            if max_targets:
                found = keep_highest(found, max_targets, own)
            columns.add(found.indices)
            values.add(found.data)
            counts[start:stop] = np.diff(found.indptr)
            advance(stop - start)
    result = csr_from_counts(values.array(), columns.array(), counts, num_labels)
    result.has_sorted_indices = result.has_canonical_format = True
    return result


def _above(
    product: sparse.csr_array, own: Ids, frequencies_L: NDArray[np.int32], delta: float, *, is_glas: bool
) -> sparse.csr_array:
    """The entries of some rows of G whose share, or S for GLaS, is above delta, with sorted columns."""
    rows = row_of_entries(product)
    # float64: 3 / 30 is then the very number that 0.1 is, and a ratio of delta is not above delta.
    measured = product.data / frequencies_L[own][rows]
    if is_glas:
        measured += product.data / frequencies_L[product.indices]
        measured *= 0.5
    kept = measured > delta
    counts = np.bincount(rows[kept], minlength=len(own))
    found = csr_from_counts(measured[kept], product.indices[kept], counts, product.shape[1])
    # The product comes unsorted; what is left of it is much less to sort.
    found.sort_indices()
    return found


def _both_ways(positives: sparse.csr_array) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Y and its transpose as ones; each label that no text has gets a text of its own, hence a target of 1."""
    num_texts, num_labels = positives.shape
    unseen = np.flatnonzero(np.bincount(positives.indices, minlength=num_labels) == 0)
    dtype = np.int32 if max(positives.nnz + len(unseen), num_texts + len(unseen), num_labels) < 2**31 else np.int64
    indices = np.concatenate([positives.indices, unseen], dtype=dtype, casting="same_kind")
    further = np.arange(positives.nnz + 1, positives.nnz + 1 + len(unseen))
    indptr = np.concatenate([positives.indptr, further], dtype=dtype, casting="same_kind")
    shape = (num_texts + len(unseen), num_labels)
    texts_NL = sparse.csr_array((np.ones(len(indices), dtype=np.int32), indices, indptr), shape=shape)
    return texts_NL, texts_NL.T.tocsr()


def _row_bounds(labels_RN: sparse.csr_array, texts_NL: sparse.csr_array) -> NDArray[np.int64]:
    """For each row of the product, the maximum of entries: b_j above."""
    sizes_N = np.diff(texts_NL.indptr)
    # Every row has a text, so that no two start at one place.
    multiplications = np.add.reduceat(sizes_N[labels_RN.indices], labels_RN.indptr[:-1], dtype=np.int64)
    bounds_R: NDArray[np.int64] = np.minimum(multiplications, texts_NL.shape[1])
    return bounds_R


def blocks_of(sizes: NDArray[np.int64], block: int) -> Iterator[tuple[int, int]]:
    """Neighbouring rows whose sizes add up to no more than ``block``; a larger row stands alone.

    >>> list(blocks_of(np.array([3, 3, 3, 9, 1]), 6))
    [(0, 2), (2, 3), (3, 4), (4, 5)]
    """
    ends = np.concatenate([[0], np.cumsum(sizes)])
    start = 0
    while start < len(sizes):
        stop = max(start + 1, int(np.searchsorted(ends, ends[start] + block, side="right")) - 1)
        yield start, stop
        start = stop


def _rows(matrix: sparse.csr_array, start: int, stop: int) -> sparse.csr_array:
    """Neighbouring rows; their entries are not copied."""
    ends = matrix.indptr[start : stop + 1]
    pairs = slice(ends[0], ends[-1])
    arrays = (matrix.data[pairs], matrix.indices[pairs], ends - ends[0])
    return sparse.csr_array(arrays, shape=(stop - start, matrix.shape[1]))


class _Growing:
    """An array that is filled piece by piece, without a second copy of all pieces at the end."""

    def __init__(self, dtype: type[np.generic]) -> None:
        self._array: NDArray[Any] = np.empty(0, dtype=dtype)
        self._size = 0

    def add(self, values: NDArray[Any]) -> None:
        """Append values."""
        size = self._size + len(values)
        if size > len(self._array):
            # In place, where the system can; a quarter more, so that it seldom happens.
            self._array.resize(size + size // 4, refcheck=False)
        self._array[self._size : size] = values
        self._size = size

    def array(self) -> NDArray[Any]:
        """All that was added."""
        self._array.resize(self._size, refcheck=False)
        return self._array
