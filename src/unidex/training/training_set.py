"""The training set, and its batches: texts, their pools, clusters and mined negatives."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from unidex.augment.label_points import label_points
from unidex.config import Augment, Config
from unidex.distributed import Processes
from unidex.errors import UnidexError
from unidex.features.tokens import TokenRows, token_weights
from unidex.nn.network import Network
from unidex.nn.vectors import Vectors
from unidex.pools.batches import cluster_size, clustered_batches, joined_clusters, num_batches, random_batches
from unidex.pools.pool import Batch, label_batch, make_batch, mine_negatives, whole_batch
from unidex.pools.word_vectors import word_vectors

logger = logging.getLogger(__name__)

Ids = NDArray[np.int64]

# What a random choice is for; part of its seed, so that no two draw the same numbers.
BATCHES, CLUSTERS, STEP = range(3)
WORDS = 4  # `transfer` has 3


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """What is trained on."""

    texts: Any  # prepared texts
    labels: Any  # prepared label texts
    positives: sparse.csr_array  # texts x labels, targets in (0, 1]
    filter_pairs: sparse.csr_array  # texts x labels, neither positives nor negatives


def with_label_points(
    data: TrainingSet, settings: Augment, seed: int, stack: Any, label_texts: Any, further_labels: Ids
) -> TrainingSet:
    """A training set with label texts as further texts (Gandalf): texts first, then label texts.

    A label text has no filter pairs, except that its own label does not count against it where it is no target.

    Co-occurrence comes from the positives of ``data``; ``stack`` joins prepared texts. ``label_texts`` are the prepared
    texts of all labels, then further texts of the labels ``further_labels``.
    """
    points = label_points(data.positives, settings, seed, further_labels)
    num_points, num_labels = len(points.labels), data.positives.shape[1]
    logger.info(
        "%s: %d label texts as training points beside %d texts, %.1f targets each.",
        settings.method,
        num_points,
        len(points.texts),
        points.targets.nnz / max(1, num_points),
    )
    own = np.arange(num_points) if not settings.self_label else np.arange(0)
    pairs = (np.ones(len(own), dtype=bool), (own, points.labels[own]))
    return TrainingSet(
        stack([data.texts[points.texts], label_texts[points.label_texts]]),
        data.labels,
        sparse.vstack([data.positives[points.texts], points.targets], format="csr"),
        sparse.vstack(
            [data.filter_pairs[points.texts], sparse.csr_array(pairs, shape=(num_points, num_labels))], format="csr"
        ),
    )


class Batching:
    """The batches of a run. Clusters of texts and hard negatives are made anew from the network every few epochs."""

    def __init__(self, data: TrainingSet, config: Config, seed: int, processes: Processes) -> None:
        self._data, self._config, self._seed, self._processes = data, config, seed, processes
        # Texts without a positive teach nothing.
        self._rows = np.flatnonzero(np.diff(data.positives.indptr))
        if len(self._rows) == 0:
            raise UnidexError("training needs at least one text with a label, but there is none")
        self._positives_LN: sparse.csr_array | None = None
        if config.pool.batches == "labels":
            # What is gone through in an epoch are labels with texts.
            self._positives_LN = sparse.csr_array(data.positives.T)
            self._rows = np.flatnonzero(np.diff(self._positives_LN.indptr))
        self._clusters: list[Ids] | None = None
        self._shortlist: Ids | None = None
        self.num_steps = config.train.epochs * num_batches(len(self._rows), config.train.batch_size)

    def refresh(self, network: Network, epoch: int) -> None:
        """Cluster the texts and mine negatives, where it is time for that."""
        pool, data = self._config.pool, self._data
        is_clustered, by_words = pool.batches == "clustered", pool.similar_by == "words"
        # Words stay what they are: clusters of them change with their size alone.
        if is_clustered and by_words and (epoch == 0 or epoch in pool.cluster_growth):
            texts = token_weights(data.texts) if isinstance(data.texts, TokenRows) else data.texts
            vectors_ND = word_vectors(texts, np.random.default_rng([self._seed, WORDS]))
            self._cluster(vectors_ND[torch.from_numpy(self._rows)], epoch)
        since = epoch - pool.start
        mines = pool.hard_negatives > 0 and pool.labels == "picked"
        by_vectors = is_clustered and not by_words
        if since < 0 or since % pool.refresh_every or not (mines or by_vectors):
            return
        network.eval()
        vectors = self._trained(network.text_vectors(data.texts, self._processes))
        if by_vectors:
            self._cluster(vectors[torch.from_numpy(self._rows).to(vectors.device)], epoch)
        if mines:
            own = self._processes.own_rows(data.labels)
            self._shortlist = mine_negatives(
                vectors,
                self._trained(network.label_vectors(own)),
                data.positives,
                data.filter_pairs,
                pool.shortlist or pool.hard_negatives * pool.refresh_every,
                self._processes,
            )

    def _cluster(self, vectors_ND: Tensor, epoch: int) -> None:
        """Cluster the texts that are gone through, whose vectors these are."""
        growth, size = self._config.pool.cluster_growth, self._config.train.batch_size
        rng = np.random.default_rng([self._seed, CLUSTERS, epoch])
        groups = clustered_batches(vectors_ND, cluster_size(epoch, growth, size) if growth else size, rng)
        self._clusters = [self._rows[group] for group in groups]

    def batches(self, epoch: int) -> list[Ids]:
        """The texts of each batch of an epoch, or its labels where batches are of labels."""
        rng = np.random.default_rng([self._seed, BATCHES, epoch])
        if self._clusters is None:
            size = self._config.train.batch_size
            return [self._rows[batch] for batch in random_batches(len(self._rows), size, rng)]
        if self._config.pool.cluster_growth:
            return joined_clusters(self._clusters, self._config.train.batch_size, rng)
        return [self._clusters[number] for number in rng.permutation(len(self._clusters))]

    def batch(self, texts: Ids, rng: np.random.Generator) -> Batch:
        """The pool and the targets of a batch of texts; of labels, their texts and the targets."""
        pool, data = self._config.pool, self._data
        if self._positives_LN is not None:
            batch = label_batch(data.positives, data.filter_pairs, self._positives_LN, texts, rng)
            if not self._config.has_tree:
                return batch
            texts = batch.texts
        if pool.labels == "all" or self._config.has_tree:
            return whole_batch(data.positives, data.filter_pairs, texts)
        return make_batch(
            data.positives,
            data.filter_pairs,
            texts,
            num_positives=pool.positives,
            num_negatives=pool.hard_negatives,
            size=pool.size,
            shortlist=self._shortlist,
            rng=rng,
            fill=pool.fill,
            is_shared=pool.candidates == "pool",
        )

    def state(self) -> dict[str, Tensor]:
        """What was made from the network, to be saved."""
        found = {}
        if self._shortlist is not None:
            found["shortlist"] = torch.from_numpy(self._shortlist)
        if self._clusters is not None:
            found["clusters"] = torch.from_numpy(np.concatenate(self._clusters))
            found["cluster_sizes"] = torch.tensor([len(group) for group in self._clusters])
        return found

    def load(self, state: dict[str, Tensor]) -> None:
        """Take a saved state."""
        if "shortlist" in state:
            self._shortlist = state["shortlist"].numpy()
        if "clusters" in state:
            ends = np.cumsum(state["cluster_sizes"].numpy())
            self._clusters = np.split(state["clusters"].numpy(), ends[:-1])

    def _trained(self, vectors: Vectors) -> Tensor:
        """The vectors of the dual encoder where it is trained, else of the classifier."""
        dual = vectors.dual if self._config.loss.dual_weight > 0 or vectors.classifier is None else None
        found: Tensor | None = vectors.classifier if dual is None else dual
        assert found is not None
        return found
