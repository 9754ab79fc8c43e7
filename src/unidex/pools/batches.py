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


def num_batches(num_texts: int, size: int) -> int:
    """How many batches of at most ``size`` texts hold all texts; random and clustered batches are as many.

    >>> num_batches(294805, 576), num_batches(100, 512)
    (512, 1)
    """
    return max(1, math.ceil(num_texts / size))


def random_batches(num_texts: int, size: int, rng: np.random.Generator) -> list[Ids]:
    """All texts once, in random batches of about equal size, at most ``size``.

    >>> [len(batch) for batch in random_batches(10, 4, np.random.default_rng(0))]
    [4, 3, 3]
    """
    return np.array_split(rng.permutation(num_texts), num_batches(num_texts, size))


def clustered_batches(vectors_ND: Tensor, size: int, rng: np.random.Generator) -> list[Ids]:
    """All texts once, similar ones together: recursive balanced 2-means on unit vectors.

    Batches have at most ``size`` texts and differ by at most one. Similar texts are each other's hard negatives: their
    labels are in one pool. A group that becomes an odd number of batches is divided in that proportion.

    References: UniDEC (arXiv 2405.03714): 294805 texts make 512 batches of 576. Its code takes powers of two only.
    """
    groups = [(np.arange(len(vectors_ND)), num_batches(len(vectors_ND), size))]
    while any(count > 1 for _, count in groups):
        groups = [part for group, count in groups for part in _divided(vectors_ND, group, count, rng)]
    return [group for group, _ in groups]


def _divided(vectors_ND: Tensor, group: Ids, count: int, rng: np.random.Generator) -> list[tuple[Ids, int]]:
    """Two parts of a group of ``count`` batches, each with its number of batches; a group of one batch stays whole."""
    if count == 1:
        return [(group, count)]
    size, larger = divmod(len(group), count)  # `larger` batches have one text more
    first = (count + 1) // 2
    parts = split_in_two(vectors_ND, group, first * size + (larger + 1) // 2, rng)
    return [(parts[0], first), (parts[1], count - first)]


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
    return np.array_split(order, num_batches(len(order), size))


def split_in_two(vectors_ND: Tensor, group: Ids, num_first: int, rng: np.random.Generator) -> tuple[Ids, Ids]:
    """Two parts of a group by spherical 2-means, until the mean similarity gains less than 0.0001.

    The first part has ``num_first`` texts.

    >>> vectors = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6], [0.6, 0.8]])
    >>> parts = split_in_two(vectors, np.arange(4), 2, np.random.default_rng(0))
    >>> sorted(part.tolist() for part in parts)
    [[0, 2], [1, 3]]
    """
    members = vectors_ND[torch.from_numpy(group).to(vectors_ND.device)]
    centres = members[torch.from_numpy(rng.choice(len(group), 2, replace=False)).to(members.device)].T
    before = -math.inf
    for _ in range(_MAX_ROUNDS):
        similarity = members @ centres
        order = torch.argsort(similarity[:, 1] - similarity[:, 0], stable=True)
        first, second = order[:num_first], order[num_first:]
        mean = float((similarity[first, 0].sum() + similarity[second, 1].sum()) / len(group))
        if mean - before < _MIN_GAIN:
            break
        before = mean
        sums = torch.stack([members[first].sum(0), members[second].sum(0)], dim=1)
        centres = torch.nn.functional.normalize(sums, dim=0)
    return group[np.sort(first.cpu().numpy())], group[np.sort(second.cpu().numpy())]
