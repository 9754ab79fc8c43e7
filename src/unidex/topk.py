"""TopK: the one currency for results, from the index to the metrics, the command line and the service.

Shapes: N texts, K places. ``ids`` are label ids, ``scores`` belong to them; a place that holds no label has id -1 and
score -inf. Scores may be negative. Places are ordered by score, ties by the lower label id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from unidex import native
from unidex.sparse_rows import contains

PADDING = -1
# A place as one number of 64 bits: the score, so that a higher one is a lower number, then the id. Sorting such numbers
# costs a fraction of sorting by two keys. Ids of more than 31 bits have no room.
_IDS_BELOW = 1 << 31
_EMPTY_KEY = np.iinfo(np.int64).max
# Wider rows are sorted by NumPy.
_MAX_INSERTED = 256


def _descending_keys(scores: NDArray[np.float32]) -> NDArray[np.int32]:
    """Whole numbers that descend as the scores rise; equal for equal scores.

    >>> _descending_keys(np.array([2.5, -1.0, 0.0, -0.0], dtype=np.float32)).argsort(kind="stable").tolist()
    [0, 2, 3, 1]
    """
    # The bits of floats >= 0 rise with them, the bits of negative floats descend. Adding 0 makes -0 equal to 0.
    bits = (scores + np.float32(0)).view(np.int32)
    return ~(bits ^ ((bits >> 31) & 0x7FFFFFFF))


def _scores_of_keys(numbers: NDArray[np.int32]) -> NDArray[np.float32]:
    """The scores that ``_descending_keys`` made numbers of."""
    bits = ~numbers
    bits ^= (bits >> 31) & 0x7FFFFFFF
    return bits.view(np.float32)


@dataclass(frozen=True, eq=False)
class TopK:
    """The best labels of each text, best first.

    >>> best = TopK.rank([[4, 2, 7]], [[0.5, 0.5, 0.9]])
    >>> best.ids.tolist(), best.first(2).ids.tolist()
    ([[7, 2, 4]], [[7, 2]])
    """

    ids: NDArray[np.int64]
    scores: NDArray[np.float32]

    @classmethod
    def rank(cls, ids: ArrayLike, scores: ArrayLike, k: int | None = None) -> TopK:
        """Order places by score, best first; ties go to the lower id, padding (id < 0 or score -inf) to the end.

        With ``k``, the first k of them.
        """
        ids_NK = np.asarray(ids, dtype=np.int64)
        scores_NK = np.asarray(scores, dtype=np.float32)
        if ids_NK.ndim != 2 or ids_NK.shape != scores_NK.shape:
            raise ValueError(f"ids and scores must have one shape, but have {ids_NK.shape} and {scores_NK.shape}")
        width = ids_NK.shape[1] if k is None else k
        if native.kernels is not None and len(ids_NK) and width <= _MAX_INSERTED:
            best = cls.room(len(ids_NK), width)
            given = np.ascontiguousarray(ids_NK), np.ascontiguousarray(scores_NK)
            if native.kernels.rank_places(*given, best.ids, best.scores, len(ids_NK)):
                return best
        found = cls._sorted(ids_NK, scores_NK)
        return found if k is None else found.first(k)

    @classmethod
    def room(cls, num_texts: int, k: int) -> TopK:
        """Places to be filled."""
        return cls(np.empty((num_texts, k), dtype=np.int64), np.empty((num_texts, k), dtype=np.float32))

    @classmethod
    def _sorted(cls, ids_NK: NDArray[np.int64], scores_NK: NDArray[np.float32]) -> TopK:
        if np.isnan(scores_NK).any():
            raise ValueError("scores must be numbers, but some are NaN; look for a division by zero")
        empty = (ids_NK < 0) | np.isneginf(scores_NK)
        if ids_NK.size and int(ids_NK.max()) >= _IDS_BELOW:
            ids_NK = np.where(empty, PADDING, ids_NK)
            scores_NK = np.where(empty, np.float32(-np.inf), scores_NK)
            # lexsort: the last key is the first to count. Empty places go behind a label of score -inf by `empty`.
            order = np.lexsort((ids_NK, -scores_NK, empty), axis=1)
            return cls(np.take_along_axis(ids_NK, order, axis=1), np.take_along_axis(scores_NK, order, axis=1))
        keys_NK = np.where(empty, _EMPTY_KEY, _descending_keys(scores_NK).astype(np.int64) << 32 | ids_NK)
        keys_NK.sort(axis=1)
        return cls._of_keys(keys_NK)

    @classmethod
    def _of_keys(cls, keys_NK: NDArray[np.int64]) -> TopK:
        """Sorted places as numbers of 64 bits."""
        ids_NK = keys_NK & 0xFFFFFFFF
        scores_NK = _scores_of_keys((keys_NK >> 32).astype(np.int32))
        # Empty places are the last ones.
        if keys_NK.shape[1] and (keys_NK[:, -1] == _EMPTY_KEY).any():
            empty = keys_NK == _EMPTY_KEY
            ids_NK[empty], scores_NK[empty] = PADDING, -np.inf
        return cls(ids_NK, scores_NK)

    @classmethod
    def from_csr(cls, scores_NL: sparse.csr_array, k: int | None = None) -> TopK:
        """The k best stored entries of each row; k defaults to the longest row. Stored zeros and negatives count."""
        if k is not None and k <= _MAX_INSERTED and native.is_plain(scores_NL):
            best = cls.room(scores_NL.shape[0], k)
            if native.kernels.best_entries(*native.arrays_of(scores_NL), best.ids, best.scores):
                return best
        counts = np.diff(scores_NL.indptr)
        width = int(counts.max(initial=0))
        k = width if k is None else k
        filled = np.arange(width) < counts[:, None]
        shape = (len(counts), width)
        if k >= width or scores_NL.shape[1] > _IDS_BELOW or not np.isfinite(scores_NL.data).all():
            ids, scores = np.full(shape, PADDING, dtype=np.int64), np.full(shape, -np.inf, dtype=np.float32)
            ids[filled], scores[filled] = scores_NL.indices, scores_NL.data
            return cls.rank(ids, scores).first(k)
        keys_NK = np.full(shape, _EMPTY_KEY)
        descending = _descending_keys(np.asarray(scores_NL.data, dtype=np.float32))
        keys_NK[filled] = descending.astype(np.int64) << 32 | scores_NL.indices
        best_NK = np.partition(keys_NK, k - 1, axis=1)[:, :k] if k else keys_NK[:, :0]
        best_NK.sort(axis=1)
        return cls._of_keys(best_NK)

    @classmethod
    def concatenate(cls, parts: Sequence[TopK]) -> TopK:
        """The texts of several results, one after the other."""
        return cls(np.concatenate([part.ids for part in parts]), np.concatenate([part.scores for part in parts]))

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def k(self) -> int:
        """Number of places per text."""
        return int(self.ids.shape[1])

    def first(self, k: int) -> TopK:
        """The first k places, padded where there are fewer."""
        missing = k - self.k
        if missing <= 0:
            return TopK(self.ids[:, :k], self.scores[:, :k])
        pad = ((0, 0), (0, missing))
        scores = np.pad(self.scores, pad, constant_values=np.float32(-np.inf))
        return TopK(np.pad(self.ids, pad, constant_values=PADDING), scores)

    def without(self, filter_pairs_NL: sparse.csr_array) -> TopK:
        """The same list without the filter pairs: their score becomes -inf and later places move up."""
        removed = contains(filter_pairs_NL, self.ids)
        if not removed.any():
            return self
        return TopK.rank(self.ids, np.where(removed, np.float32(-np.inf), self.scores))

    def rows(self, start: int, stop: int) -> TopK:
        """The texts from start to stop, as views."""
        return TopK(self.ids[start:stop], self.scores[start:stop])
