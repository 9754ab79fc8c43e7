"""The scores of an index and of the kNN part, joined into one list of the best labels.

Shapes: B texts, L labels, K places, P pairs of a text and a label.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex.sparse_rows import find_entries, row_of_entries
from unidex.topk import PADDING, TopK

# Scores of one pair from an index and from a product of its own differ by rounding, at most this in unit vectors.
_ROUNDING = 1e-5


def join_scores(
    found: TopK,
    label_scores: sparse.csr_array,
    weight: float,
    score_of: Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.floating[Any]]],
    *,
    k: int | None = None,
    found_is_best: bool = False,
) -> TopK:
    """The best labels by the sum of both scores, among the labels of the index and those of the kNN part.

    Formula, for the labels that are in ``found`` or stored in ``label_scores``::

        joined(x, l) = score(x, l) + weight label_scores(x, l)

    The result is ordered by it, ties by the lower id.

    Args:
        found: B x K, the labels that the index found, with their scores.
        label_scores: B x L, kNN scores; column indices must be sorted.
        weight: of the kNN scores, 0 or more.
        score_of: the index's score of each pair (texts[i], labels[i]); asked once, for labels that are not in
            ``found``.
        k: number of places; those of ``found`` if None.
        found_is_best: no label outside a row of ``found`` has a higher score than the last place of the row, as an
            exact index promises. Then labels that cannot enter even with that score are not scored: the result is the
            same, with a fraction of the work.

    Shapes: found [B, K], label_scores [B, L], result [B, k].

    >>> found = TopK.rank([[0, 1]], [[0.9, 0.5]])
    >>> knn_scores = sparse.csr_array(np.array([[0.0, 0.2, 0.8]]))
    >>> joined = join_scores(found, knn_scores, 1.0, lambda texts, labels: np.array([0.4]))
    >>> joined.ids.tolist(), joined.scores.round(2).tolist()
    ([[2, 0]], [[1.2000000476837158, 0.8999999761581421]])
    """
    if not (np.isfinite(weight) and weight >= 0):
        raise ValueError(f"the weight of kNN scores must be a number >= 0, but is {weight}")
    if label_scores.shape[0] != len(found):
        raise ValueError(f"label scores must have one row per text ({len(found)}), but have {label_scores.shape[0]}")
    num_places = found.k if k is None else k
    num_texts = len(found)
    text_P = row_of_entries(label_scores, np.int64)
    label_P = label_scores.indices.astype(np.int64)
    added_P = np.float32(weight) * label_scores.data.astype(np.float32)

    place_BK, both_BK = find_entries(label_scores, found.ids)
    scores_BK = found.scores.copy()
    scores_BK[both_BK] += added_P[place_BK[both_BK]]

    asked_P = np.ones(len(label_P), dtype=bool)
    asked_P[place_BK[both_BK]] = False
    if found_is_best and 0 < num_places <= found.k:
        # A row with empty places has no last score, so that every label is scored.
        empty_B = np.isneginf(found.scores[:, -1])
        last_B = np.where(empty_B, 0, found.scores[:, -1])
        enters_B = np.partition(scores_BK, found.k - num_places, axis=1)[:, found.k - num_places]
        needed_B = np.where(empty_B, -np.inf, enters_B - last_B - _ROUNDING * np.maximum(1, np.abs(last_B)))
        asked_P &= added_P >= needed_B[text_P]
    text_P, label_P, added_P = text_P[asked_P], label_P[asked_P], added_P[asked_P]
    if len(text_P) == 0:
        return TopK.rank(found.ids, scores_BK, num_places)
    scores_P = np.asarray(score_of(text_P, label_P), dtype=np.float32) + added_P

    counts_B = np.bincount(text_P, minlength=num_texts)
    shape = (num_texts, found.k + int(counts_B.max()))
    ids, scores = np.full(shape, PADDING, dtype=np.int64), np.full(shape, -np.inf, dtype=np.float32)
    ids[:, : found.k], scores[:, : found.k] = found.ids, scores_BK
    column_P = found.k + np.arange(len(text_P)) - (np.cumsum(counts_B) - counts_B)[text_P]
    ids[text_P, column_P], scores[text_P, column_P] = label_P, scores_P
    return TopK.rank(ids, scores, num_places)
