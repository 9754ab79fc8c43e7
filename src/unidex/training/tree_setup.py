"""The label tree of a run: what its labels are clustered by, and what a recipe with one cannot have."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex.augment.walks import walk_targets
from unidex.config import Config
from unidex.config.tree import Tree, kept_levels
from unidex.distributed import Processes
from unidex.errors import ConfigError
from unidex.features.tokens import TokenRows, token_weights
from unidex.nn.label_tree import LabelTree, label_centroids, nested_clusters

logger = logging.getLogger(__name__)

# Astec's walks between labels, which smooth their centroids; none where a label has too many texts.
_WALK = {"length": 50, "restart": 0.2, "most": 10}
_MOST_TEXTS_OF_A_LABEL = 5000
_TREE = 4  # part of a seed: batching has 0 to 2, clusters of a surrogate 3


def smoothing_graph(positives: sparse.csr_array, rng: np.random.Generator) -> sparse.csr_array | None:
    """Which labels go together by walks between them, rows that add up to 1; None where a label has too many texts."""
    if np.bincount(positives.indices, minlength=positives.shape[1]).max(initial=0) > _MOST_TEXTS_OF_A_LABEL:
        return None
    graph = walk_targets(positives, rng, verbose=_MOST_TEXTS_OF_A_LABEL, **_WALK)  # type: ignore[arg-type]
    return sparse.csr_array(graph / graph.sum(axis=1)[:, None])


def grown_tree(texts: Any, positives: sparse.csr_array, settings: Tree, seed: int) -> LabelTree:
    """The tree over the labels of a training set, by the words or tokens that the texts of a label have in common.

    Args:
        texts: prepared texts: sparse rows, or token rows.
        positives: texts x labels.
        settings: the section [tree] of a recipe.
        seed: of every random choice.
    """
    num_labels, rng = positives.shape[1], np.random.default_rng([seed, _TREE])
    rows = token_weights(texts) if isinstance(texts, TokenRows) else texts
    graph = smoothing_graph(positives, rng) if settings.smooth_centroids else None
    levels = kept_levels(settings.levels, num_labels)
    counts = [min(settings.levels[level], num_labels) for level in levels]
    tree = nested_clusters(label_centroids(rows, positives, graph), counts, rng, levels)
    logger.info("%d labels in %s clusters", num_labels, " and ".join(map(str, counts)))
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
    return not (config.train.surrogate or (config.tree.levels and config.tree.losses == "clusters"))


def check_tree(config: Config, processes: Processes, *, followed: bool) -> None:
    """Refuse what a recipe with a label tree cannot have, before anything is trained."""
    tree, heads, predict = config.tree, config.heads, config.predict
    if not tree.levels:
        return
    if tree.layers and (config.encoder.kind != "transformer" or len(tree.layers) != len(tree.levels)):
        raise ConfigError(
            f"tree.layers are those of a transformer, one list for each of the {len(tree.levels)} levels, but there "
            f"are {len(tree.layers)} and encoder.kind = {config.encoder.kind!r}; set tree.layers=[] or as many"
        )
    if tree.losses == "clusters" and not followed:
        raise ConfigError(
            "tree.losses = 'clusters' is for a stage that another follows, but is set in the last one; a model must "
            "know the labels themselves"
        )
    as_trained = heads.classifier_normalised == (heads.classifier_search_vectors == "unit")
    wanted = {
        "heads.classifier = true and heads.dual = false": heads.classifier and not heads.dual,
        "loss.classifier = 'bce'": config.loss.classifier == "bce",
        "loss.classifier_bce = 0": config.loss.classifier_bce == 0,
        "heads.classifier_search_vectors = 'unit' just where heads.classifier_normalised = true, as probabilities "
        "are those that were trained": as_trained,
        "pool.labels = 'picked'": config.pool.labels == "picked",
        "pool.hard_negatives = 0, as the beam finds them": config.pool.hard_negatives == 0,
        "pool.try_hard_negatives = 0": config.pool.try_hard_negatives == 0,
        "augment.mixup = 'none'": config.augment.mixup == "none",
        "train.surrogate = 0": config.train.surrogate == 0,
        "train.chunk = 0": config.train.chunk == 0,
        "one process": processes.size == 1,
        "tree.layers = [] where the encoder is frozen": not (config.train.freeze_encoder and tree.layers),
        "predict.index = 'exact', as the tree is the index": predict.index == "exact",
        "predict.knn = 0, not chosen": predict.knn == 0 and not predict.choose_knn,
        "predict.label_prior = 0, not chosen": predict.label_prior == 0 and not predict.choose_label_prior,
        "predict.snippet_length = 0": predict.snippet_length == 0,
    }
    missing = [rule for rule, holds in wanted.items() if not holds]
    if missing:
        raise ConfigError(
            f"a label tree (tree.levels) needs {missing[0]}, but this recipe has otherwise; change that, or set "
            "tree.levels=[]"
        )
