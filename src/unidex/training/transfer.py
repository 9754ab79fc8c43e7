"""From one stage of a recipe to the next: what a network inherits, and stages that learn clusters of labels."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import torch
from scipy import sparse

from unidex.config import Config
from unidex.nn.label_tree import balanced_clusters, label_centroids
from unidex.nn.network import Network
from unidex.training.training_set import TrainingSet
from unidex.training.tree_setup import membership, smoothing_graph, targets_of_clusters

logger = logging.getLogger(__name__)

_CLUSTERS = 3  # part of a seed: batching has 0 to 2


def inherit(network: Network, before: Network, *, same_labels: bool) -> bool:
    """Let a network take what it has in common with the network of the previous stage.

    Encoders, heads, parts of classifiers, a tree and classifiers are taken; a new head stays as it was built.
    Classifiers of clusters (train.surrogate) are not classifiers of labels (not ``same_labels``).

    Returns whether classifiers were taken.
    """
    for name in ("dual", "classifier"):
        new, old = getattr(network, name), getattr(before, name)
        if new is not None and old is not None:
            new.load_state_dict(old.state_dict())
    if network.classifier_encoder is not None and before.classifier_encoder is not None:
        network.classifier_encoder = before.classifier_encoder
    if network.parts is not None and before.parts is not None:
        network.parts.inherit(before.parts)
    if network.tree is not None and before.tree is not None:
        network.tree.load_state_dict(before.tree.state_dict())
        network.tree.tables = before.tree.tables
    if network.log_scales.requires_grad and before.log_scales.requires_grad:
        with torch.no_grad():
            network.log_scales.copy_(before.log_scales)
    if network.classifiers is None or before.classifiers is None or not same_labels:
        return False
    network.classifiers = before.classifiers
    return True


def surrogate_set(
    data: TrainingSet, texts_NF: Any, config: Config, seed: int, label_rows_LF: sparse.csr_array | None = None
) -> TrainingSet:
    """The training set of a stage that learns clusters of labels: a text has the clusters of its labels.

    Labels are clustered by the features or vectors of their texts, ``texts_NF``. Where classifiers are made of words,
    ``label_rows_LF``, a cluster has those of its labels.

    References: Astec (arXiv 2111.06685), its surrogate task.
    """
    positives = data.positives
    num_labels = positives.shape[1]
    count = min(config.train.surrogate, num_labels)
    rng = np.random.default_rng([seed, _CLUSTERS])
    graph = smoothing_graph(positives, rng)
    clusters_L = balanced_clusters(label_centroids(texts_NF, positives, graph), count, rng)
    sizes = num_labels // count, -(-num_labels // count)
    logger.info("%d labels in %d clusters of %d or %d labels.", num_labels, count, *sizes)
    members_LC = membership(clusters_L, count)
    return TrainingSet(
        data.texts,
        # Clusters have no texts; what is never read has no columns.
        np.empty((count, 0), dtype=np.float32)
        if label_rows_LF is None
        else sparse.csr_array(members_LC.T @ label_rows_LF),
        targets_of_clusters(positives, members_LC),
        sparse.csr_array((len(data.positives.indptr) - 1, count), dtype=bool),
    )


def summarise_stages(stages: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The results of the stages, together and one by one."""
    last = list(stages.values())[-1]
    sums = {key: sum(result[key] for result in stages.values()) for key in ("epochs", "steps", "seconds")}
    return last | sums | {"seconds": round(sums["seconds"], 1), "stages": stages}
