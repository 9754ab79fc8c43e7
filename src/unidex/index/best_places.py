"""The choice of the best places from the scores of all labels, by array operations alone.

The columns of scores are cut into groups; the K-th highest maximum of a group bounds the scores that can have a place.
Few scores reach it, and only those are sorted.

Shapes: B texts, N labels, G groups, K places.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from unidex.topk import PADDING, TopK

# A matrix product rounds the last columns of an odd width differently from the rest, so that equal vectors would get
# unequal scores and a tie would go to the wrong label. Every block is as wide as a multiple of this: no odd columns.
WIDTH_MULTIPLE = 128
GROUP = 32
# Candidates per place, and of a text at least; where there are more, many are equal.
MAX_CANDIDATES, FEW_CANDIDATES = 8, 64
# Up to so many labels that tie for the places of one text are scored again.
MAX_RESCORED = 1 << 14
NOT_A_NUMBER = "scores must be numbers, but some are NaN; look for NaN or huge numbers in the vectors"
# Of the highest score: more than a matrix product errs.
_ROUNDING = np.float32(1e-5)
_LOWEST = np.finfo(np.float32).min
Rescore = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float32]]


def best_of_all(
    scores_BN: NDArray[np.float32],
    ids_N: NDArray[np.int64],
    k: int,
    rescore: Rescore | None = None,
) -> TopK:
    """The k best of the scores of all labels.

    Args:
        scores_BN: N is a multiple of ``GROUP``, and a score of -inf is no label.
        ids_N: ids of the labels, ascending.
        k: number of places.
        rescore: the score of each pair (texts[i], columns[i]), where a matrix product rounds equal vectors differently
            by their places and by the number of texts; the candidates are ranked by it. A text that more than
            ``MAX_RESCORED`` labels tie for, as for a vector of zeros, is ranked without it.

    >>> scores = np.full((1, 64), -np.inf, dtype=np.float32)
    >>> scores[0, :4] = [0.5, 0.9, 0.5, -0.1]
    >>> best = best_of_all(scores, np.arange(100, 164), k=2)
    >>> best.ids.tolist(), best.scores[0, 1].item()
    ([[101, 100]], 0.5)
    """
    num_texts, width = scores_BN.shape
    num_groups = width // GROUP
    # Here a group has every num_groups-th label: its maximum is then computed along contiguous memory.
    max_BG = scores_BN.reshape(num_texts, GROUP, num_groups).max(axis=1)
    if np.isnan(max_BG).any():
        raise ValueError(NOT_A_NUMBER)
    # K groups have a maximum of at least the K-th highest maximum, so the K best labels are at least as good.
    bound_B1 = np.full((num_texts, 1), _LOWEST)
    if k < num_groups:
        bound_B1 = np.maximum(np.partition(max_BG, num_groups - k, axis=1)[:, num_groups - k, None], _LOWEST)
        if rescore is not None:
            bound_B1 = _lowered(bound_B1, max_BG.max(axis=1, keepdims=True, initial=_LOWEST))
    candidates = np.flatnonzero(scores_BN >= bound_B1)
    text, column = np.divmod(candidates, width) if width else (candidates, candidates)
    counts_B = np.bincount(text, minlength=num_texts)
    # Texts that many labels tie for, as for a vector of zeros, are few; each is ranked by itself.
    crowded = np.flatnonzero(counts_B > max(MAX_CANDIDATES * k, FEW_CANDIDATES))
    if len(crowded):
        counts_B[crowded] = 0
        kept = ~np.isin(text, crowded)
        candidates, text, column = candidates[kept], text[kept], column[kept]
    place = np.arange(len(candidates)) - (np.cumsum(counts_B) - counts_B)[text]
    shape = (num_texts, int(counts_B.max(initial=0)))
    ids, scores = np.full(shape, PADDING, dtype=np.int64), np.full(shape, -np.inf, dtype=np.float32)
    ids[text, place] = ids_N[column]
    scores[text, place] = scores_BN.reshape(-1)[candidates] if rescore is None else rescore(text, column)
    best = TopK.rank(ids, scores, k)
    for row in crowded.tolist():
        of_row = _best_of_one(scores_BN[row], row, ids_N, k, rescore)
        best.ids[row], best.scores[row] = of_row.ids[0], of_row.scores[0]
    return best


def _lowered(bound_B1: NDArray[np.float32], highest_B1: NDArray[np.float32]) -> NDArray[np.float32]:
    """The bounds less what a matrix product errs."""
    size_B1 = np.minimum(np.maximum(np.abs(highest_B1), np.abs(bound_B1)), -_LOWEST)
    found: NDArray[np.float32] = np.maximum(bound_B1 - _ROUNDING * size_B1, _LOWEST)
    return found


def _best_of_one(
    scores_N: NDArray[np.float32], row: int, ids_N: NDArray[np.int64], k: int, rescore: Rescore | None
) -> TopK:
    """The k best of one text that has many candidates."""
    if rescore is not None:
        highest = np.partition(scores_N, max(len(scores_N) - k, 0))[max(len(scores_N) - k, 0) :]
        bound = _lowered(np.maximum(highest.min(keepdims=True), _LOWEST), highest.max(keepdims=True))
        columns = np.flatnonzero(scores_N >= bound)
        if len(columns) <= MAX_RESCORED:
            exact = rescore(np.full(len(columns), row), columns)
            return TopK.rank(ids_N[columns][None], exact[None], k)
    return TopK.rank(ids_N[None], scores_N[None], k)
