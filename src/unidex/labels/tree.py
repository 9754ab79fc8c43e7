"""Clusters of labels: balanced 2-means, again and again, on the features that a label's texts have in common.

Shapes: N texts, L labels, F features, C clusters.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Ids = NDArray[np.int64]
# Rows of unit length, dense or sparse.
Rows = Any
_STARTS = 3


def label_centroids(
    texts_NF: Rows, positives: sparse.csr_array, graph_LL: sparse.csr_array | None = None
) -> NDArray[np.float32] | sparse.csr_array:
    """Where each label stands: the direction of the sum of its texts, each of length 1; 0 for a label without texts.

    Formula, with Y the positives, X the texts and rows divided by their lengths::

        C = unit(Y^T unit(X)),  with a label graph G: unit(G C)

    A graph says which labels go together, such as `unidex.augment.walks` finds; its rows need not add up to 1.

    Args:
        texts_NF: features or vectors of the texts, sparse or dense.
        positives: Y; the stored pairs count, whatever their relevance.
        graph_LL: G, or None for none.

    References: Parabel, Astec (arXiv 2111.06685); smoothed by the graph as in ECLARE (WWW 2021).

    >>> texts = np.array([[2.0, 0.0], [0.0, 5.0]])
    >>> label_centroids(texts, sparse.csr_array(np.array([[1, 1, 0], [0, 1, 0]]))).astype(float).round(2).tolist()
    [[1.0, 0.0], [0.71, 0.71], [0.0, 0.0]]
    """
    ones = np.ones(positives.nnz, dtype=np.float32)
    pairs = sparse.csr_array((ones, positives.indices, positives.indptr), shape=positives.shape)
    centroids = _unit(pairs.T @ _unit(texts_NF))
    return centroids if graph_LL is None else _unit(graph_LL @ centroids)


def balanced_clusters(centroids_LF: Rows, num_clusters: int, rng: np.random.Generator) -> Ids:
    """The cluster of each label, L, by recursive balanced spherical 2-means; sizes differ by at most one.

    A group is cut in two by 2-means with sizes that are given: labels are ordered by how much nearer they are to the
    one centre than to the other, and the first ones go there. Neighbouring clusters have numbers that are near.

    Args:
        centroids_LF: a row a label, of length 1, dense or sparse.
        num_clusters: C, at most L.
        rng: for the first two centres of each cut.

    References: Parabel (WWW 2018); Astec (arXiv 2111.06685) with 65,536 clusters.

    >>> centroids = np.array([[1.0, 0.0], [0.0, 1.0], [0.9, 0.1], [0.1, 0.9]])
    >>> found = balanced_clusters(centroids, 2, np.random.default_rng(0))
    >>> bool(found[0] == found[2] != found[1] == found[3])
    True
    """
    num_labels = centroids_LF.shape[0]
    if not 1 <= num_clusters <= max(1, num_labels):
        raise ValueError(f"clusters must be 1 to {num_labels}, as many as labels, but are {num_clusters}")
    found = np.zeros(num_labels, dtype=np.int64)
    groups = [(np.arange(num_labels), 0, num_clusters)]
    while groups:
        members, first, count = groups.pop()
        if count == 1:
            found[members] = first
            continue
        left = (count + 1) // 2
        # As if all of them were cut at once into clusters as even as can be.
        size = sum(len(part) for part in np.array_split(members, count)[:left])
        nearer, others = cut(centroids_LF, members, size, rng)
        groups += [(others, first + left, count - left), (nearer, first, left)]
    return found


def cut(
    centroids_LF: Rows,
    members: Ids,
    size: int,
    rng: np.random.Generator,
    *,
    most_rounds: int = 20,
    least_gain: float = 1e-4,
) -> tuple[Ids, Ids]:
    """The members of two groups, the first of ``size``, by spherical 2-means until the mean similarity gains little.

    For given centres no other split of these sizes has a higher sum of similarities to them.

    >>> [part.tolist() for part in cut(np.array([[1.0], [-1.0], [1.0]]), np.arange(3), 2, np.random.default_rng(0))]
    [[0, 2], [1]]
    """
    rows = centroids_LF[members]
    # Where 2-means ends depends on where it begins, and on which of two unequal groups begins where: the best of a few.
    starts = [rng.choice(len(members), 2, replace=False) for _ in range(_STARTS)]
    if 2 * size != len(members):
        starts += [ends[::-1] for ends in starts]
    tried = [_rounds(rows, ends, size, most_rounds, least_gain) for ends in starts]
    _, order = max(tried, key=lambda found: found[0])
    return members[np.sort(order[:size])], members[np.sort(order[size:])]


def _rounds(rows: Rows, ends: Ids, size: int, most_rounds: int, least_gain: float) -> tuple[float, Ids]:
    centres_2F = _dense(rows[ends])
    before, order = -math.inf, np.arange(rows.shape[0])
    for _ in range(most_rounds):
        similarity = np.asarray(rows @ centres_2F.T)
        tried = np.argsort(similarity[:, 1] - similarity[:, 0], kind="stable")
        first, second = tried[:size], tried[size:]
        mean = float(similarity[first, 0].sum() + similarity[second, 1].sum()) / len(tried)
        if mean - before < least_gain:
            break
        before, order = mean, tried
        centres_2F = _unit(np.stack([np.asarray(rows[part].sum(axis=0)).ravel() for part in (first, second)]))
    return before, order


def _dense(rows: Rows) -> NDArray[np.float32]:
    found: NDArray[np.float32] = np.asarray(rows.todense() if sparse.issparse(rows) else rows, dtype=np.float32)
    return found


def _unit(rows: Rows) -> Any:
    """Rows divided by their lengths; 0 stays."""
    if not sparse.issparse(rows):
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        return (rows / np.where(lengths > 0, lengths, 1)).astype(np.float32)
    rows = sparse.csr_array(rows)
    lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
    scale = 1 / np.where(lengths > 0, lengths, 1)
    data = (rows.data * np.repeat(scale, np.diff(rows.indptr))).astype(np.float32)
    return sparse.csr_array((data, rows.indices, rows.indptr), shape=rows.shape)
