"""Ids of candidates: each once in a row, and longer lists that continue with those of an index.

Shapes: N texts, K places.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unidex.topk import PADDING, TopK


def continued(best: TopK, found: TopK, k: int) -> TopK:
    """The ranked labels, then those of the index in its order, up to k, whose scores go on below.

    So the first places of a long list are those of a short one.

    >>> found = continued(TopK.rank([[4, 2]], [[0.5, -0.25]]), TopK.rank([[2, 7, 8]], [[3.0, 2.0, 1.5]]), 3)
    >>> found.ids.tolist(), found.scores.tolist()
    ([[4, 2, 7]], [[0.5, -0.25, -2.25]])
    """
    is_new = (found.ids >= 0) & ~(found.ids[:, :, None] == best.ids[:, None, :]).any(axis=2)
    lowest_N = np.where(best.ids >= 0, best.scores, np.inf).min(axis=1, keepdims=True, initial=np.inf)
    of_index = np.where(found.ids >= 0, found.scores, 0)
    below = np.where(np.isfinite(lowest_N), lowest_N, 0) - 1 + of_index - of_index[:, :1]
    ids = np.concatenate([best.ids, np.where(is_new, found.ids, PADDING)], axis=1)
    scores = np.concatenate([best.scores, np.where(is_new, below, -np.inf).astype(np.float32)], axis=1)
    return TopK.rank(ids, scores, k)


def without_repeats(ids_NK: NDArray[np.int64]) -> NDArray[np.int64]:
    """Each id of a row once, in ascending order; a repeated one becomes -1.

    >>> without_repeats(np.array([[3, 1, 3]])).tolist()
    [[1, 3, -1]]
    """
    ascending = np.sort(ids_NK, axis=1)
    ascending[:, 1:][ascending[:, 1:] == ascending[:, :-1]] = PADDING
    return ascending
