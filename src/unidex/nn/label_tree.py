"""Clusters of labels: balanced 2-means, again and again, on the features that a label's texts have in common.

Shapes: N texts, L labels, F features, C clusters, M children of a cluster.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Ids = NDArray[np.int64]
# Rows of unit length, dense or sparse.
Rows = Any
# Of 2-means.
_STARTS, _MAX_ROUNDS = 3, 20


def label_centroids(
    texts_NF: Rows, positives: sparse.csr_array, graph_LL: sparse.csr_array | None = None
) -> NDArray[np.float32] | sparse.csr_array:
    """The centroid of each label: the direction of the sum of its texts, each of length 1; 0 for a label without texts.

    Formula, with Y the positives, X the texts and rows divided by their lengths::

        C = unit(Y^T unit(X)),  with a label graph G: unit(G C)

    A graph relates labels that occur together, such as `unidex.augment.walks` finds; its rows need not sum to 1.

    Texts are features or vectors, sparse or dense. The stored pairs of Y count, whatever their relevance.

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
    one centre than to the other, and the first ones go there. Neighbouring clusters have numbers that are near. For the
    arguments see `nested_clusters`.

    References: Parabel (WWW 2018); Astec (arXiv 2111.06685) with 65,536 clusters.

    >>> centroids = np.array([[1.0, 0.0], [0.0, 1.0], [0.9, 0.1], [0.1, 0.9]])
    >>> found = balanced_clusters(centroids, 2, np.random.default_rng(0))
    >>> bool(found[0] == found[2] != found[1] == found[3])
    True
    """
    return nested_clusters(centroids_LF, [num_clusters], rng, narrow=False).parents[-1]


def _divided(centroids_LF: Rows, members: Ids, sizes: Ids, rng: np.random.Generator, *, narrow: bool) -> list[Ids]:
    """Groups of these sizes, by cutting in two again and again; groups that are near have numbers that are near."""
    found = [members] * len(sizes)
    groups = [(members, 0, len(sizes))]
    while groups:
        members, first, count = groups.pop()
        if count == 1:
            found[first] = members
            continue
        left = (count + 1) // 2
        size = int(sizes[first : first + left].sum())
        nearer, others = cut(centroids_LF, members, size, rng, narrow=narrow)
        groups += [(others, first + left, count - left), (nearer, first, left)]
    return found


def _even(total: int, count: int) -> Ids:
    """Sizes of so many parts of a whole that differ by at most one, the larger ones first."""
    return np.full(count, total // count) + (np.arange(count) < total % count)


@dataclass(frozen=True, eq=False)
class LabelTree:
    """Clusters of clusters of labels.

    >>> tree = LabelTree((np.array([0, 0, 1]), np.array([2, 0, 1, 2])), (0, 1))
    >>> tree.num_clusters, tree.num_labels
    ((2, 3), 4)
    >>> [children.tolist() for children in tree.children]
    [[[0, 1], [2, -1]], [[1, -1], [2, -1], [0, 3]]]
    """

    # Of each level, the coarsest first: the cluster there of each cluster of the next level, or, of the last level, of
    # each label.
    parents: tuple[Ids, ...]
    levels: tuple[int, ...]  # which levels of a recipe they are

    @property
    def num_labels(self) -> int:
        """Number of labels."""
        return len(self.parents[-1])

    @cached_property
    def num_clusters(self) -> tuple[int, ...]:
        """Number of clusters of each level."""
        above = self.parents[0]
        return (int(above.max(initial=-1)) + 1, *(len(parents) for parents in self.parents[:-1]))

    @cached_property
    def children(self) -> tuple[Ids, ...]:
        """Of each level, C x M: what is in each cluster, in ascending order; -1 behind the last."""
        return tuple(_padded(*pair) for pair in zip(self.parents, self.num_clusters, strict=True))

    def clusters_of_labels(self) -> tuple[Ids, ...]:
        """Of each level, the cluster there of each label, L."""
        found = [self.parents[-1]]
        for parents in reversed(self.parents[:-1]):
            found.insert(0, parents[found[0]])
        return tuple(found)


def nested_clusters(
    centroids_LF: Rows,
    counts: Sequence[int],
    rng: np.random.Generator,
    levels: Sequence[int] | None = None,
    *,
    narrow: bool = True,
) -> LabelTree:
    """A tree whose finest clusters are balanced, and whose coarser ones are the upper cuts of the same recursion.

    Sizes of the finest clusters differ by at most one, and a cluster of a coarser level has as many of the next one's
    as any other there, or one more.

    There is one row per label, of length 1, dense or sparse. ``counts`` are the clusters of each level, the coarsest
    first, rising, at most L; ``levels`` are their numbers in a recipe, the first ones unless given. For ``narrow`` see
    `cut`.

    References: Parabel (WWW 2018); AttentionXML (arXiv 1811.01727), whose shallow trees CascadeXML takes.

    >>> centroids = np.array([[1.0, 0.0], [0.0, 1.0], [0.9, 0.1], [0.1, 0.9]])
    >>> tree = nested_clusters(centroids, [2, 4], np.random.default_rng(0))
    >>> found = tree.clusters_of_labels()[0]
    >>> bool(found[0] == found[2] != found[1] == found[3])
    True
    """
    num_labels = centroids_LF.shape[0]
    if not counts or any(low >= high for low, high in pairwise(counts)):
        raise ValueError(f"clusters of levels must rise from level to level, but are {list(counts)}")
    if not 1 <= counts[0] <= counts[-1] <= max(1, num_labels):
        raise ValueError(f"clusters must be 1 to {num_labels}, as many as labels, but are {list(counts)}")
    # From below: how many children a cluster has, and how many labels.
    widths = [_even(below, count) for count, below in zip(counts, [*counts[1:], num_labels], strict=True)]
    sizes = [widths[-1]]
    for width in reversed(widths[:-1]):
        sizes.insert(0, np.add.reduceat(sizes[0], np.cumsum(width) - width))
    groups = _divided(centroids_LF, np.arange(num_labels), sizes[0], rng, narrow=narrow)
    parents = []
    for width, below in zip(widths[:-1], sizes[1:], strict=True):
        parts = np.split(below, np.cumsum(width)[:-1])
        groups = [
            child
            for group, part in zip(groups, parts, strict=True)
            for child in _divided(centroids_LF, group, part, rng, narrow=narrow)
        ]
        parents.append(np.repeat(np.arange(len(width)), width))
    found = np.zeros(num_labels, dtype=np.int64)
    for number, members in enumerate(groups):
        found[members] = number
    return LabelTree((*parents, found), tuple(range(len(counts)) if levels is None else levels))


def _padded(parents: Ids, num_clusters: int) -> Ids:
    order = np.argsort(parents, kind="stable")
    counts = np.bincount(parents, minlength=num_clusters)
    found = np.full((num_clusters, int(counts.max(initial=0))), -1, dtype=np.int64)
    found[np.arange(found.shape[1]) < counts[:, None]] = order
    return found


def cut(
    centroids_LF: Rows,
    members: Ids,
    size: int,
    rng: np.random.Generator,
    *,
    min_gain: float = 1e-4,
    narrow: bool = False,
) -> tuple[Ids, Ids]:
    """The members of two groups, the first of ``size``, by spherical 2-means until the mean similarity gains little.

    For given centres no other split of these sizes has a higher sum of similarities to them. With ``narrow``, centres
    of sparse rows have the columns of the members alone: the cost of a cut does not depend on the number of features.
    Sums are then made in another order, so that labels near the middle may go to the other side.

    >>> [part.tolist() for part in cut(np.array([[1.0], [-1.0], [1.0]]), np.arange(3), 2, np.random.default_rng(0))]
    [[0, 2], [1]]
    """
    rows = _narrow(centroids_LF[members]) if narrow else centroids_LF[members]
    # The result of 2-means depends on its first centres, and on which of two unequal groups has which: best of a few.
    starts = [rng.choice(len(members), 2, replace=False) for _ in range(_STARTS)]
    if 2 * size != len(members):
        starts += [ends[::-1] for ends in starts]
    tried = [_rounds(rows, ends, size, min_gain) for ends in starts]
    _, order = max(tried, key=lambda found: found[0])
    return members[np.sort(order[:size])], members[np.sort(order[size:])]


def _rounds(rows: Rows, ends: Ids, size: int, min_gain: float) -> tuple[float, Ids]:
    centres_2F = _dense(rows[ends])
    before, order = -math.inf, np.arange(rows.shape[0])
    for _ in range(_MAX_ROUNDS):
        similarity = np.asarray(rows @ centres_2F.T)
        tried = np.argsort(similarity[:, 1] - similarity[:, 0], kind="stable")
        first, second = tried[:size], tried[size:]
        mean = float(similarity[first, 0].sum() + similarity[second, 1].sum()) / len(tried)
        if mean - before < min_gain:
            break
        before, order = mean, tried
        centres_2F = _unit(np.stack([np.asarray(rows[part].sum(axis=0)).ravel() for part in (first, second)]))
    return before, order


def _narrow(rows: Rows) -> Rows:
    """Sparse rows with the columns that any of them has, alone: a few labels have few of all features."""
    if not sparse.issparse(rows) or rows.nnz >= rows.shape[1]:
        return rows
    columns, places = np.unique(rows.indices, return_inverse=True)
    return sparse.csr_array((rows.data, places, rows.indptr), shape=(rows.shape[0], len(columns)))


def _dense(rows: Rows) -> NDArray[np.float32]:
    return np.asarray(rows.todense() if sparse.issparse(rows) else rows, dtype=np.float32)


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
