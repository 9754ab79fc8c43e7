"""The linear part of a score: one sparse linear classifier per label over the features of texts.

    score(x, l) = <x / |x|, w_l> + b_l

The heads compare vectors of a few hundred dimensions; a classifier has a weight of its own for each feature of its
texts, and knows common labels better. The learned ranker reads its score; `unidex.training.linear_fit` fits it.

Shapes: N texts, K candidates, L labels, F features.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex import native
from unidex.errors import ModelError
from unidex.sparse_rows import sparse_product, unchecked_csr, values_at
from unidex.storage.small_numbers import load_numbers, save_numbers

# The ranking features of this part.
LINEAR = ("linear", "linear_gap", "linear_place")
# The score of a label without a classifier, as that of one whose texts have nothing in common with the text.
NO_CLASSIFIER = -1.0
_NO_CLASSIFIER = np.array([NO_CLASSIFIER], dtype=np.float32)
# Texts whose lengths are computed at once: 8 bytes per feature of each several times over.
_ROWS_AT_ONCE = 1 << 14
_CHECKED_AT_ONCE = 1 << 22


class LinearPart:
    """The classifiers of labels.

    Args:
        weights_FL: of features, those that are not 0.
        biases_L: of labels.
    """

    def __init__(self, weights_FL: sparse.csr_array, biases_L: NDArray[np.float32]) -> None:
        # Numbers as they are stored, so that a saved model gives the same scores.
        values = weights_FL.data.astype(np.float16).astype(np.float32)
        arrays = (weights_FL.indices.astype(np.int32, copy=False), weights_FL.indptr.astype(np.int32, copy=False))
        self.weights_FL = unchecked_csr(values, *arrays, weights_FL.shape)
        self.biases_L = biases_L

    def scores(self, rows_NF: sparse.csr_array, ids_NK: NDArray[np.int64]) -> NDArray[np.float32]:
        """The scores of candidates.

        >>> weights, text = np.array([[2, 0], [0, 1]], dtype=np.float32), np.array([[3, 4]], dtype=np.float32)
        >>> part = LinearPart(sparse.csr_array(weights), np.array([-1, 0], dtype=np.float32))
        >>> np.round(part.scores(sparse.csr_array(text), np.array([[0, 1, 7]])), 3)
        array([[ 0.2,  0.8, -1. ]], dtype=float32)
        """
        rows_NF = unit_length(rows_NF)
        scores = np.empty(ids_NK.shape, dtype=np.float32)
        if native.is_plain(rows_NF, self.weights_FL) and ids_NK.dtype == np.int64:
            native.kernels.score_linear(*self.kernel_arrays(rows_NF), np.ascontiguousarray(ids_NK), scores)
            return scores
        found = values_at(sparse_product(rows_NF, self.weights_FL), ids_NK)
        is_known = ids_NK < len(self.biases_L)
        biases_NK = self.biases_L[np.where(is_known, ids_NK, 0)] if len(self.biases_L) else NO_CLASSIFIER
        scores[...] = np.where(is_known, found + biases_NK, np.float32(NO_CLASSIFIER))
        return scores

    def kernel_arrays(self, rows_NF: sparse.csr_array) -> tuple[NDArray[Any], ...]:
        """What the kernels read: rows of texts of length 1, and the classifiers."""
        return (*native.arrays_of(rows_NF), *native.arrays_of(self.weights_FL), self.biases_L, _NO_CLASSIFIER)

    def save(self, folder: Path) -> None:
        """Write weights and biases."""
        folder.mkdir(parents=True)
        save_numbers(folder / "weights", self.weights_FL.data.astype(np.float16))
        save_numbers(folder / "labels", self.weights_FL.indices)
        save_numbers(folder / "counts", np.diff(self.weights_FL.indptr))
        save_numbers(folder / "biases", self.biases_L)

    @classmethod
    def load(cls, folder: Path, num_features: int) -> LinearPart:
        """Read what ``save`` wrote, of texts with so many features."""
        biases_L = load_numbers(folder / "biases", (None,), np.float32, mapped=True)
        counts_F = load_numbers(folder / "counts", (num_features,), np.int32)
        weights = load_numbers(folder / "weights", (None,), np.float16)
        labels = load_numbers(folder / "labels", (len(weights),), np.int32)
        if not (_are_finite(weights) and _are_finite(biases_L)):
            raise ModelError(f"{folder}: weights and biases must be numbers, but some are not; copy the model again")
        starts = np.concatenate([[0], np.cumsum(counts_F, dtype=np.int64)])
        if (counts_F < 0).any() or starts[-1] != len(weights):
            raise ModelError(f"{folder}: counts must add up to the {len(weights)} weights, but do not; copy it again")
        if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < len(biases_L):
            raise ModelError(f"{folder}: labels must be below {len(biases_L)}, but are not; copy the model again")
        ascends = labels[1:] > labels[:-1]
        ends = starts[1:-1]
        # From the last label of a row to the first one of the next, they need not.
        ascends[ends[(ends > 0) & (ends < len(labels))] - 1] = True
        if not ascends.all():
            raise ModelError(f"{folder}: labels must ascend in each row, but do not; copy the model again")
        shape = (num_features, len(biases_L))
        return cls(unchecked_csr(weights.astype(np.float32), labels, starts.astype(np.int32), shape), biases_L)


def _are_finite(values: NDArray[Any]) -> bool:
    """Whether all are numbers; of very many, so many at a time."""
    blocks = range(0, len(values), _CHECKED_AT_ONCE)
    return all(bool(np.isfinite(values[start : start + _CHECKED_AT_ONCE]).all()) for start in blocks)


def unit_length(rows_NF: sparse.csr_array) -> sparse.csr_array:
    """Rows of length 1; empty ones stay empty.

    >>> unit_length(sparse.csr_array(np.array([[3, 4], [0, 0]], dtype=np.float32))).toarray()
    array([[0.6, 0.8],
           [0. , 0. ]], dtype=float32)
    """
    values: NDArray[Any] = rows_NF.data.astype(np.float32, copy=False)
    scaled, starts = np.empty(len(values), dtype=np.float32), rows_NF.indptr
    for first in range(0, rows_NF.shape[0], _ROWS_AT_ONCE):
        own = starts[first : first + _ROWS_AT_ONCE + 1]
        entries, counts = slice(own[0], own[-1]), np.diff(own)
        rows = np.repeat(np.arange(len(counts)), counts)
        squares = np.bincount(rows, weights=values[entries].astype(np.float64) ** 2, minlength=len(counts))
        scales = 1 / np.maximum(np.sqrt(squares), 1e-12)
        scaled[entries] = values[entries] * scales[rows]
    starts = starts.astype(np.int32, copy=False)
    return unchecked_csr(scaled, rows_NF.indices.astype(np.int32, copy=False), starts, rows_NF.shape)
