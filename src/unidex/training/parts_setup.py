"""Classifiers made of parts, for a run: the words and the label graph they are made of."""

from __future__ import annotations

import logging

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex.augment.walks import walk_targets
from unidex.config import Augment, Config
from unidex.distributed import ALONE, Processes
from unidex.nn.classifier_parts import FREE, GRAPH, TEXT, ClassifierParts, normalised_graph
from unidex.nn.network import Network
from unidex.training.training_set import TrainingSet

logger = logging.getLogger(__name__)

_GRAPH = 11  # part of a seed: what else draws from the seed of a run has other numbers


def has_parts(config: Config) -> bool:
    """Whether classifiers are made of more than free vectors."""
    return config.heads.classifier and config.heads.classifier_parts != [FREE]


def make_parts(
    network: Network,
    config: Config,
    data: TrainingSet,
    positives: sparse.csr_array,
    rows: NDArray[np.int64] | None,
    seed: int,
    processes: Processes = ALONE,
) -> ClassifierParts | None:
    """The parts of a network's classifiers before training, or None where those are free vectors alone.

    The label graph is made of ``positives``, train texts x labels, of the texts that are trained on (``rows``); that of
    clusters is made of theirs. Each process has the parts of its own labels. The caller seeds torch.
    """
    if not has_parts(config):
        return None
    assert network.classifier is not None
    assert network.classifiers is not None
    heads, table = config.heads, network.words
    words_LW = network.encoder.word_counts(data.labels)
    words: dict[str, sparse.csr_array] = {}
    if TEXT in heads.classifier_parts:
        words[TEXT] = words_LW
    if GRAPH in heads.classifier_parts:
        if config.train.surrogate:
            positives = data.positives
        elif rows is not None:
            positives = positives[rows]
        # Sums of vectors are linear: words of neighbours, weighed once, cost a step what a longer text costs.
        words[GRAPH] = sparse.csr_array(label_graph(positives, config.augment, seed) @ words_LW)
        own, all_told = (part.nnz / max(1, part.shape[0]) for part in (words_LW, words[GRAPH]))
        logger.info("Label graph: %.1f words per label, %.1f with the words of similar labels.", own, all_told)
    shard = processes.shard(data.labels.shape[0])
    parts = ClassifierParts(
        words if processes.size == 1 else {kind: rows[shard] for kind, rows in words.items()},
        free=FREE in heads.classifier_parts,
        dim_words=table.dim,
        dim=network.classifiers.dim - network.classifier.bias,
        joined=heads.combine_parts,
        dropout=config.encoder.layer_dropout,
        projection=heads.projection,
    )
    return parts.to(network.device)


def label_graph(positives: sparse.csr_array, settings: Augment, seed: int) -> sparse.csr_array:
    """Which labels come together, by random walks, as a graph whose rows and columns are evened out; L x L."""
    return normalised_graph(walk_targets(settings, positives, np.random.default_rng([seed, _GRAPH])))
