"""The label tree of a run, and the targets of its clusters."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex.augment.walks import walk_targets
from unidex.config import Augment, Config
from unidex.config.tree import Tree, kept_levels
from unidex.features.tokens import TokenRows, token_weights
from unidex.nn.label_tree import LabelTree, label_centroids, nested_clusters

logger = logging.getLogger(__name__)

# Astec's walks between labels, which smooth their centroids; none where a label has too many texts.
_MAX_TEXTS_PER_LABEL = 5000
_WALKS = Augment(walk_length=50, walk_restart=0.2, walk_max_labels=10, walk_verbose=_MAX_TEXTS_PER_LABEL)
_TREE = 4  # part of a seed: batching has 0 to 2, clusters of a surrogate 3


def smoothing_graph(positives: sparse.csr_array, rng: np.random.Generator) -> sparse.csr_array | None:
    """Which labels go together by walks between them, rows that add up to 1; None where a label has too many texts."""
    if np.bincount(positives.indices, minlength=positives.shape[1]).max(initial=0) > _MAX_TEXTS_PER_LABEL:
        return None
    graph = walk_targets(_WALKS, positives, rng)
    return sparse.csr_array(graph / graph.sum(axis=1)[:, None])


def grow_tree(texts: Any, positives: sparse.csr_array, settings: Tree, seed: int) -> LabelTree:
    """The tree over the labels of a training set, by the words or tokens that the texts of a label have in common.

    Prepared texts are sparse rows or token rows; ``positives`` are texts x labels.
    """
    num_labels, rng = positives.shape[1], np.random.default_rng([seed, _TREE])
    rows = token_weights(texts) if isinstance(texts, TokenRows) else texts
    graph = smoothing_graph(positives, rng) if settings.smooth_centroids else None
    levels = kept_levels(settings.levels, num_labels)
    counts = [min(settings.levels[level], num_labels) for level in levels]
    tree = nested_clusters(label_centroids(rows, positives, graph), counts, rng, levels)
    logger.info("Label tree: %d labels in %s clusters.", num_labels, " and ".join(map(str, counts)))
    return tree


def cluster_positives(tree: LabelTree, positives: sparse.csr_array) -> list[sparse.csr_array]:
    """Texts x clusters of each level: the sum of the targets of a cluster's labels, at most 1."""
    levels = zip(tree.clusters_of_labels(), tree.num_clusters, strict=True)
    return [targets_of_clusters(positives, membership(clusters_L, count)) for clusters_L, count in levels]


def membership(clusters_L: NDArray[np.int64], num_clusters: int) -> sparse.csr_array:
    """Labels x clusters, 1 where a label is in a cluster."""
    member = (np.ones(len(clusters_L), dtype=np.float32), (np.arange(len(clusters_L)), clusters_L))
    return sparse.csr_array(member, shape=(len(clusters_L), num_clusters))


def targets_of_clusters(positives: sparse.csr_array, members_LC: sparse.csr_array) -> sparse.csr_array:
    """Texts x clusters: the sum of the targets of a cluster's labels, at most 1.

    >>> targets_of_clusters(sparse.csr_array([[0.5, 0.7, 0.2]]), membership(np.array([0, 0, 1]), 2)).toarray().round(1)
    array([[1. , 0.2]], dtype=float32)
    """
    found = sparse.csr_array(positives @ members_LC)
    found.sort_indices()
    found.data = np.minimum(found.data, 1).astype(np.float32)
    return found


def learns_labels(config: Config) -> bool:
    """Whether the labels themselves are learned, not clusters of them alone."""
    return not (config.train.surrogate or (config.has_tree and config.tree.losses == "clusters"))
