"""Hierarchical precision and recall: a predicted label that shares broader labels with a true one is partly right.

Predictions and truth are completed by all their broader labels first. With P_i the first k labels of text i and T_i its
true ones, and A(S) the labels of S with everything broader than them::

    hP@k = sum_i |A(P_i) & A(T_i)| / sum_i |A(P_i)|
    hR@k = sum_i |A(P_i) & A(T_i)| / sum_i |A(T_i)|
    hF1@k = 2 hP@k hR@k / (hP@k + hR@k)

Reference: Kiritchenko, Matwin, Nock, Famili: Learning and evaluation in the presence of class hierarchies, 2006.

Shapes: N texts, K places, L labels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import sparse

from unidex.topk import TopK


def with_broader(broader_LL: sparse.csr_array) -> sparse.csr_array:
    """Each label with all labels broader than it, at any distance: L x L, true also on the diagonal.

    Args:
        broader_LL: row l has the next broader labels of l.

    >>> with_broader(sparse.csr_array(np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]]))).toarray().astype(int).tolist()
    [[1, 1, 1], [0, 1, 1], [0, 0, 1]]
    """
    step = sparse.csr_array((broader_LL != 0) + sparse.eye_array(broader_LL.shape[0], dtype=bool, format="csr"))
    reached = step
    while True:
        # Each product doubles the distance; a cycle ends too, as nothing new is reached.
        further = sparse.csr_array((reached @ reached) != 0)
        if further.nnz == reached.nnz:
            return further
        reached = further


def hierarchical_scores(
    topk: TopK, truth: sparse.csr_array, closed_LL: sparse.csr_array, ks: Sequence[int] = (1, 3, 5)
) -> dict[str, float]:
    """hP@k, hR@k and hF1@k in percent.

    Args:
        topk: predictions, N x K.
        truth: N x L, a stored value > 0 is a positive.
        closed_LL: each label with all broader ones, as ``with_broader`` gives it.
        ks: the places.

    Label 0 is narrower than 2, and so is 1. The text has 0, and 1 is predicted: of {1, 2}, 2 is right.

    >>> closed = with_broader(sparse.csr_array(np.array([[0, 0, 1], [0, 0, 1], [0, 0, 0]])))
    >>> hierarchical_scores(TopK.rank([[1]], [[0.5]]), sparse.csr_array(np.array([[1, 0, 0]])), closed, [1])
    {'hP@1': 50.0, 'hR@1': 50.0, 'hF1@1': 50.0}
    """
    closed = closed_LL.astype(np.int32)
    true_NL = sparse.csr_array(((truth > 0).astype(np.int32) @ closed) != 0)
    found: dict[str, float] = {}
    for k in ks:
        ids = topk.ids[:, :k]
        rows, places = np.nonzero(ids >= 0)
        entries = (np.ones(len(rows), dtype=np.int32), (rows, ids[rows, places]))
        predicted_NL = sparse.csr_array((sparse.csr_array(entries, shape=truth.shape) @ closed) != 0)
        num_both = predicted_NL.multiply(true_NL).nnz
        precision = 100 * num_both / max(1, predicted_NL.nnz)
        recall = 100 * num_both / max(1, true_NL.nnz)
        f1 = 2 * precision * recall / (precision + recall) if num_both else 0.0
        found |= {f"hP@{k}": precision, f"hR@{k}": recall, f"hF1@{k}": f1}
    return found
