"""Batches of texts: any texts, or similar ones."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Ids = NDArray[np.int64]

# Of 2-means.
_MAX_ROUNDS, _MIN_GAIN = 20, 1e-4


def random_batches(num_texts: int, size: int, rng: np.random.Generator) -> list[Ids]:
    """All texts once, in random batches of about equal size, at most ``size``.

    >>> [len(batch) for batch in random_batches(10, 4, np.random.default_rng(0))]
    [4, 3, 3]
    """
    return np.array_split(rng.permutation(num_texts), max(1, math.ceil(num_texts / size)))


def num_clusters(num_texts: int, size: int) -> int:
    """How many batches ``clustered_batches`` makes: the largest power of two that leaves them at least ``size`` texts.

    >>> num_clusters(294805, 512), num_clusters(100, 512)
    (512, 1)
    """
    return 1 << max(0, math.floor(math.log2(max(num_texts, 1) / size)))


def clustered_batches(vectors_ND: Tensor, size: int, rng: np.random.Generator) -> list[Ids]:
    """All texts once, similar ones together: recursive balanced 2-means on unit vectors.

    Batches have from ``size`` to just under twice as many texts, and differ by at most one. Similar texts are each
    other's hard negatives: their labels are in one pool.

    References: UniDEC (arXiv 2405.03714): 294805 texts and 512 make 512 batches of 576.
    """
    groups = [np.arange(len(vectors_ND))]
    while len(groups) < num_clusters(len(vectors_ND), size):
        groups = [half for group in groups for half in halves(vectors_ND, group, rng)]
    return groups


def cluster_size(epoch: int, growth: Sequence[int], size: int) -> int:
    """How many texts a cluster has at an epoch: one initially, twice as many from each epoch of ``growth`` on.

    At most ``size``, the texts of a batch. Epochs are counted from 0.

    References: NGAME (arXiv 2207.04452): the better the encoder, the harder the negatives it is ready for.

    >>> [cluster_size(epoch, [2, 3, 5], 512) for epoch in range(6)]
    [1, 1, 2, 4, 4, 8]
    """
    return min(size, 1 << sum(epoch >= grown for grown in growth))


def joined_clusters(clusters: list[Ids], size: int, rng: np.random.Generator) -> list[Ids]:
    """All texts of clusters once, in batches of about equal size, at most ``size``: whole clusters in random order.

    A cluster may be cut where a batch ends. There are as many batches as ``random_batches`` makes.

    >>> batches = joined_clusters([np.array([0, 1]), np.array([2, 3]), np.array([4])], 3, np.random.default_rng(0))
    >>> [batch.tolist() for batch in batches]
    [[4, 0, 1], [2, 3]]
    """
    order = np.concatenate([clusters[number] for number in rng.permutation(len(clusters))])
    return np.array_split(order, max(1, math.ceil(len(order) / size)))


def halves(vectors_ND: Tensor, group: Ids, rng: np.random.Generator) -> tuple[Ids, Ids]:
    """Two equal halves of a group by spherical 2-means, until the mean similarity gains less than 0.0001."""
    members = vectors_ND[torch.from_numpy(group).to(vectors_ND.device)]
    middle = (len(group) + 1) // 2
    centres = members[torch.from_numpy(rng.choice(len(group), 2, replace=False)).to(members.device)].T
    before = -math.inf
    for _ in range(_MAX_ROUNDS):
        similarity = members @ centres
        order = torch.argsort(similarity[:, 1] - similarity[:, 0], stable=True)
        first, second = order[:middle], order[middle:]
        mean = float((similarity[first, 0].sum() + similarity[second, 1].sum()) / len(group))
        if mean - before < _MIN_GAIN:
            break
        before = mean
        sums = torch.stack([members[first].sum(0), members[second].sum(0)], dim=1)
        centres = torch.nn.functional.normalize(sums, dim=0)
    return group[np.sort(first.cpu().numpy())], group[np.sort(second.cpu().numpy())]
