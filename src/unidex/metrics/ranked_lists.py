"""Ranking metrics as pure functions.

Shapes: N texts, L labels, K places; a result has one value per text, N. ``gains_NK`` is what each place of a list is
worth. With the places that hit as gains (``hits``), the functions are P, R and nDCG; with hits weighted by inverse
propensity, they are the upper half of PSP, PSR and PSnDCG; with the best gains that were possible (``best_gains``),
they are the lower half. A list with fewer than k places is worth nothing where it has no place. A text without
positives is worth 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex.sparse_rows import contains
from unidex.topk import TopK

Gains = NDArray[np.float64] | NDArray[np.bool_]


def binary(truth_NL: sparse.csr_array) -> sparse.csr_array:
    """The pairs with a stored value > 0, columns sorted, each once; the same object where that holds already.

    >>> graded = sparse.csr_array(([0.3, 0.0, -1.0], [1, 0, 2], [0, 3]), shape=(1, 3))
    >>> binary(graded).indices.tolist()
    [1]
    """
    if truth_NL.has_canonical_format and bool((truth_NL.data > 0).all()):
        return truth_NL
    positive = sparse.csr_array((truth_NL.data > 0, truth_NL.indices, truth_NL.indptr), shape=truth_NL.shape, copy=True)
    positive.eliminate_zeros()
    positive.sum_duplicates()
    return positive


def hits(topk: TopK, truth_NL: sparse.csr_array) -> NDArray[np.bool_]:
    """Which places hold a label of the truth; any stored value > 0 is a positive.

    >>> truth = sparse.csr_array(np.array([[0, 1, 1], [1, 0, 0]]))
    >>> hits(TopK.rank([[1, 0], [2, -1]], [[0.9, 0.5], [-0.2, 0.0]]), truth)
    array([[ True, False],
           [False, False]])
    """
    return contains(binary(truth_NL), topk.ids)


def precision(gains_NK: Gains, k: int) -> NDArray[np.float64]:
    """P@k: the gains of the first k places, always divided by k.

    Formula: (1/k) sum_{j<=k} g_j.

    References: Bhatia et al.: The Extreme Classification Repository, 2016.

    Hits at places 1 and 3 of three, k = 3: (1 + 0 + 1) / 3. The second list has one place, k = 3: 1 / 3.

    >>> precision(np.array([[True, False, True]]), 3).round(4).tolist()
    [0.6667]
    >>> precision(np.array([[True]]), 3).round(4).tolist()
    [0.3333]
    """
    at_least_one(k)
    values_N: NDArray[np.float64] = gains_NK[:, :k].sum(axis=1, dtype=np.float64) / k
    return values_N


def recall(gains_NK: Gains, num_positives_N: NDArray[np.integer[Any]], k: int) -> NDArray[np.float64]:
    """R@k: the gains of the first k places, divided by the number of positives.

    Formula: (1/n) sum_{j<=k} g_j, 0 where n = 0.

    Relations: Equals P@k * k / n. At most k / n, so below 1 where a text has more than k positives.

    Hits at places 1 and 3, four positives, k = 3: 2 / 4.

    >>> recall(np.array([[True, False, True]]), np.array([4]), 3).tolist()
    [0.5]
    """
    at_least_one(k)
    values_N: NDArray[np.float64] = gains_NK[:, :k].sum(axis=1, dtype=np.float64) / np.maximum(num_positives_N, 1)
    return values_N


def f1(hits_NK: NDArray[np.bool_], num_positives_N: NDArray[np.integer[Any]], k: int) -> NDArray[np.float64]:
    """F1@k: the harmonic mean of precision and recall of the first k places.

    Formula: 2 hits / (k + n), with n positives.

    Relations: Equals 2 P@k R@k / (P@k + R@k). At most 2 n / (k + n) where a text has fewer than k positives.

    Hits at places 1 and 3, four positives, k = 3: 2 * 2 / (3 + 4).

    >>> f1(np.array([[True, False, True]]), np.array([4]), 3).round(4).tolist()
    [0.5714]
    """
    at_least_one(k)
    values_N: NDArray[np.float64] = 2 * hits_NK[:, :k].sum(axis=1, dtype=np.float64) / (float(k) + num_positives_N)
    return values_N


def ndcg(gains_NK: Gains, num_positives_N: NDArray[np.integer[Any]], k: int) -> NDArray[np.float64]:
    """nDCG@k: gains discounted by place, divided by what hits on all first min(k, n) places would be worth.

    Formula: [ sum_{j<=k} g_j / log2(j + 1) ] / [ sum_{j<=min(k,n)} 1 / log2(j + 1) ], 0 where n = 0.

    References: Jarvelin, Kekalainen: Cumulated gain-based evaluation of IR techniques. TOIS 20(4), 2002; the normaliser
    min(k, n) as in the Extreme Classification Repository.

    Relations: The normaliser counts positives, not their weights: with inverse propensities as gains the value may pass
    1, and PSnDCG divides it by the same of the best gains.

    Hits at places 1 and 3, two positives, k = 3: (1 + 1/2) / (1 + 1/log2(3)) = 1.5 / 1.6309.

    >>> ndcg(np.array([[True, False, True]]), np.array([2]), 3).round(4).tolist()
    [0.9197]
    """
    at_least_one(k)
    # int64, because k may be larger than what the index type of a sparse matrix holds.
    firsts_N = np.minimum(num_positives_N.astype(np.int64), k)
    # Tables only as long as a place or a positive can be: k itself may be any number.
    num_places = min(k, gains_NK.shape[1])
    length = max(num_places, int(firsts_N.max(initial=1)))
    discounts = 1 / np.log2(np.arange(2, length + 2))
    ideal = np.cumsum(discounts)
    gained_N = gains_NK[:, :num_places] @ discounts[:num_places]
    values_N: NDArray[np.float64] = gained_N / ideal[np.maximum(firsts_N, 1) - 1]
    return values_N


def any_hit(hits_NK: NDArray[np.bool_], k: int) -> NDArray[np.float64]:
    """hits@k: 1 where one of the first k places hits, else 0.

    Formula: 1[ sum_{j<=k} y_j > 0 ].

    The first text is hit at place 2, the second nowhere:

    >>> any_hit(np.array([[False, True], [False, False]]), 2).tolist()
    [1.0, 0.0]
    """
    at_least_one(k)
    return np.asarray(hits_NK[:, :k].any(axis=1), dtype=np.float64)


def reciprocal_rank(hits_NK: NDArray[np.bool_], k: int) -> NDArray[np.float64]:
    """MRR@k (its mean over texts): 1 / place of the first hit, 0 where the first k places have none.

    Formula: max_{j<=k} y_j / j.

    References: Voorhees: The TREC-8 Question Answering Track Report. TREC 1999.

    The first text is hit at places 2 and 3, the second only behind place 2:

    >>> reciprocal_rank(np.array([[False, True, True], [False, False, True]]), 2).tolist()
    [0.5, 0.0]
    """
    at_least_one(k)
    firsts_NK = hits_NK[:, :k]
    if firsts_NK.shape[1] == 0:
        return np.zeros(len(hits_NK))
    values_N: NDArray[np.float64] = firsts_NK.any(axis=1) / (firsts_NK.argmax(axis=1) + 1)
    return values_N


@dataclass(frozen=True, eq=False)
class LabelWeights:
    """What a hit on each label is worth. Labels of one group have one weight."""

    groups_L: NDArray[np.integer[Any]]  # group of each label
    values_G: NDArray[np.float64]  # weight of each group
    ranks_G: NDArray[np.int64]  # place of each group by descending weight
    descending: NDArray[np.float64]  # the weights, largest first

    @classmethod
    def of(cls, values_L: NDArray[np.float64]) -> LabelWeights:
        """Weights of labels, one by one."""
        return cls.of_groups(np.arange(len(values_L)), values_L)

    @classmethod
    def of_groups(cls, groups_L: NDArray[np.integer[Any]], values_G: NDArray[np.float64]) -> LabelWeights:
        """Weights of labels by their groups.

        >>> LabelWeights.of_groups(np.array([1, 0, 1]), np.array([2.0, 5.0])).values(np.array([0, 1])).tolist()
        [5.0, 2.0]
        """
        order_G = np.argsort(-values_G, kind="stable")
        ranks_G = np.empty(len(values_G), dtype=np.int64)
        ranks_G[order_G] = np.arange(len(values_G))
        return cls(groups_L, values_G, ranks_G, values_G[order_G])

    def values(self, labels: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
        """Weights of labels."""
        found: NDArray[np.float64] = self.values_G[self.groups_L[labels]]
        return found

    def ranks(self, labels: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """Places of labels by descending weight; labels of one group share a place."""
        found: NDArray[np.int64] = self.ranks_G[self.groups_L[labels]]
        return found


def best_gains(truth_NL: sparse.csr_array, weights: LabelWeights, k: int) -> NDArray[np.float64]:
    """The k largest weights among the positives of each text, largest first, then zeros: the best possible gains.

    Shapes:
        truth_NL [N, L], as ``binary`` gives it; result [N, min(k, max positives per text)].

    A text with labels 0 and 2 of weights 1.5 and 4 can gain 4, then 1.5, then nothing:

    >>> truth = sparse.csr_array(np.array([[1, 0, 1], [0, 1, 0]]))
    >>> best_gains(truth, LabelWeights.of(np.array([1.5, 2.0, 4.0])), 5).tolist()
    [[4.0, 1.5], [2.0, 0.0]]
    """
    at_least_one(k)
    num_rows, num_labels = truth_NL.shape
    counts_N = np.diff(truth_NL.indptr)
    row_of_pair = np.repeat(np.arange(num_rows, dtype=np.int64), counts_N)
    # One plain sort of row-major keys is ten times faster than a lexsort of rows and weights.
    keys = row_of_pair * num_labels + weights.ranks(truth_NL.indices)
    keys.sort()
    place = np.arange(truth_NL.nnz) - np.repeat(truth_NL.indptr[:-1], counts_N)
    kept = place < k
    gains = np.zeros((num_rows, min(k, int(counts_N.max(initial=0)))))
    gains[row_of_pair[kept], place[kept]] = weights.descending[keys[kept] % num_labels]
    return gains


def coverage(label_hits_L: NDArray[np.integer[Any]], label_truth_L: NDArray[np.integer[Any]]) -> float:
    """coverage@k: of the labels in the truth of any text, the share that is hit in the first k places of any text.

    Formula: number of labels with hits_l > 0 / number of labels with truth_l > 0; 0 if no text has a positive.

    Labels 0 and 1 are in the truth, label 0 is hit (twice, which counts once):

    >>> coverage(np.array([2, 0, 0]), np.array([3, 1, 0]))
    0.5
    """
    num_true = int(np.count_nonzero(label_truth_L))
    return int(np.count_nonzero(label_hits_L)) / num_true if num_true else 0.0


def at_least_one(k: int) -> None:
    """A metric has at least one place."""
    if k < 1:
        raise ValueError(f"k must be at least 1, but is {k}")
