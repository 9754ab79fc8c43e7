"""Precision, recall and F1 as averages over documents, subjects and pairs, and NDCG: the figures of Annif's ``eval``.

The first labels of every list count as its answer, however sure they are. With t the right ones among them, p their
number and n the number of positives, precision is t / p, recall is t / n and F1 is 2 t / (p + n), 0 where the lower
half is 0. A document average takes the mean over texts of these, a subject average the mean over all labels, a weighted
subject average weighs each label by its number of test texts, and the micro average divides the sums.

NDCG is the discounted gain of the list over that of all positives of the text, not only of as many as the list has
places; as in Annif, a text without positives counts as 1.

Shapes: N texts, L labels, K places.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex.metrics import LIMIT
from unidex.metrics.ranked_lists import binary, hits
from unidex.topk import TopK

KINDS = ("document", "subject", "weighted_subject", "micro")


def averages(
    topk: TopK, truth_NL: sparse.csr_array, filter_pairs_NL: sparse.csr_array | None = None, limit: int = LIMIT
) -> dict[str, Any]:
    """All averages of predictions, in percent.

    Args:
        topk: the predicted labels, best first.
        truth_NL: any stored value > 0 is a positive.
        filter_pairs_NL: pairs that are taken out of the predictions before the cut.
        limit: labels per text that count as its answer.

    Two texts and three labels; the lists are (0, 1) and (2, 1), the positives 0 and (1, 2).

    >>> truth = sparse.csr_array(np.array([[1, 0, 0], [0, 1, 1]]))
    >>> found = averages(TopK.rank([[0, 1], [2, 1]], [[0.9, 0.2], [0.8, 0.1]]), truth)
    >>> {name: round(value, 2) for name, value in found["document"].items()}, found["NDCG"]
    ({'precision': 75.0, 'recall': 100.0, 'F1': 83.33}, 100.0)
    """
    if filter_pairs_NL is not None:
        topk = topk.without(filter_pairs_NL)
    topk = TopK(topk.ids[:, :limit], topk.scores[:, :limit])
    truth_NL = binary(truth_NL)
    num_labels = truth_NL.shape[1]
    hits_NK = hits(topk, truth_NL)
    found: dict[str, Any] = {"limit": limit}
    counts: dict[str, tuple[NDArray[Any], ...]] = {
        "document": (hits_NK.sum(axis=1), (topk.ids >= 0).sum(axis=1), np.diff(truth_NL.indptr)),
        "subject": _label_counts([topk.ids[hits_NK], topk.ids[topk.ids >= 0], truth_NL.indices]),
    }
    counts["micro"] = tuple(np.array([part.sum()]) for part in counts["document"])
    for kind in KINDS:
        right, predicted, positive = counts[kind.removeprefix("weighted_")]
        weights = positive if kind == "weighted_subject" else np.ones(len(positive))
        # All other labels count as 0.
        total = num_labels if kind == "subject" else weights.sum()
        found[kind] = {
            "precision": _mean(right, predicted, weights, total),
            "recall": _mean(right, positive, weights, total),
            "F1": _mean(2 * right, predicted + positive, weights, total),
        }
    num_right, num_predicted, num_positive = (int(part[0]) for part in counts["micro"])
    pairs = {
        "true_positives": num_right,
        "false_positives": num_predicted - num_right,
        "false_negatives": num_positive - num_right,
    }
    return found | {"NDCG": _ndcg(hits_NK, counts["document"][2])} | pairs


def _label_counts(ids: list[NDArray[np.integer[Any]]]) -> tuple[NDArray[np.int64], ...]:
    """How often each label occurs in each list, of the labels that occur in any."""
    labels, places = np.unique(np.concatenate(ids), return_inverse=True)
    parts = np.split(places, np.cumsum([len(part) for part in ids])[:-1])
    return tuple(np.bincount(part, minlength=len(labels)) for part in parts)


def _mean(upper: NDArray[Any], lower: NDArray[Any], weights: NDArray[Any], total: float) -> float:
    ratios = np.divide(upper, lower, out=np.zeros(len(upper)), where=lower > 0)
    return 100 * float((ratios * weights).sum() / total) if total > 0 else 0.0


def _ndcg(hits_NK: NDArray[np.bool_], num_positives_N: NDArray[Any]) -> float:
    longest = max(hits_NK.shape[1], int(num_positives_N.max(initial=0)))
    discounts = 1 / np.log2(np.arange(longest) + 2)
    best = np.concatenate([[0.0], np.cumsum(discounts)])[num_positives_N]
    gains = hits_NK @ discounts[: hits_NK.shape[1]]
    return 100 * float(np.divide(gains, best, out=np.ones(len(best)), where=best > 0).mean())
