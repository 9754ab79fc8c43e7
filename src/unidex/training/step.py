"""One training step: encode, enumerate candidates, score them, take the loss and its gradient.

Texts are split evenly over the processes and labels by shards. How candidates are enumerated decides what a step costs:
a pool of labels or blocks of all labels (`SharedPool`), each text's own labels of a pool (`OwnCandidates`), or each
text's own labels by a label tree (`Beam`). Encoding in chunks, several processes and mixup are the same for all of them
(`batch_vectors`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from unidex.augment.mixup import draw_mixture
from unidex.config import Config
from unidex.distributed import Processes
from unidex.nn.network import Network
from unidex.nn.row_table import Touched
from unidex.pools.pool import Batch, log_inclusion
from unidex.training.backward_pass import backward
from unidex.training.batch_vectors import BatchVectors, Chunks, OneGraph, Rows, Sides
from unidex.training.beam import Beam
from unidex.training.gradient_cache import Ids
from unidex.training.shared_pool import MoveRows, PoolLabels, SharedPool
from unidex.training.towers import Towers
from unidex.training.training_set import TrainingSet


class Step:
    """What stays the same from step to step.

    The network has the classifiers of this process's labels. ``move_rows`` moves rows of them whose gradient is known
    before the step ends.
    """

    def __init__(
        self, network: Network, data: TrainingSet, config: Config, processes: Processes, move_rows: MoveRows
    ) -> None:
        self.network, self.data, self.config, self.processes = network, data, config, processes
        self._towers = Towers(network, config)
        self._shard = processes.shard(data.labels.shape[0])
        self._beam = None if network.tree is None else Beam(self._towers, processes)
        is_alone = processes.size == 1 and not config.train.chunk
        # All labels are encoded by themselves: a graph of texts and labels together saves nothing there.
        self._is_one_graph = is_alone and (config.pool.labels == "picked" or self._beam is not None)
        log_q = _log_q(data, config, network.device)
        self._pool = SharedPool(self._towers, processes, log_q, move_rows, is_dense=self._is_one_graph)

    def __call__(self, batch: Batch, epoch: int, rng: np.random.Generator) -> tuple[Tensor, list[Touched]]:
        """The loss of a batch, the same on each process, and the rows of tables that were used; gradients are there."""
        touched: list[Touched] = []
        seed = int(rng.integers(2**62))
        vectors = self._encoded(batch, epoch, seed, rng, touched)
        scales = self.network.log_scales.exp()
        if self._beam is not None:
            value, of_texts, of_scales = self._beam(vectors, scales, seed, touched)
        else:
            value, of_texts, of_scales = self._pool(vectors, self._pool_labels(batch), scales, seed, touched)
        vectors.send_texts(tuple(of_texts))
        backward((scales,), (of_scales,))
        return value, touched

    def _encoded(
        self, batch: Batch, epoch: int, seed: int, rng: np.random.Generator, touched: list[Touched]
    ) -> BatchVectors:
        ids, mixture = batch.labels, None
        if self._towers.encodes_labels and not self._towers.has_dual:
            # Only labels that are mixed into texts are encoded.
            mixture = draw_mixture(self.config.augment, batch.targets, rng)
            assert mixture is not None
            ids, places = np.unique(mixture.partners_B.numpy(), return_inverse=True)
            mixture = replace(mixture, partners_B=torch.from_numpy(places))
        own = self._own(ids)
        sides = Sides(
            self._towers,
            Rows(self.data.texts, batch.texts),
            Rows(self.data.labels, ids[own]),
            batch.targets,
            first_label=own.start,
            mixture=mixture,
            is_detached=self._beam is not None and epoch < self.config.tree.detached_epochs,
            rng=rng,
            touched=touched,
        )
        if self._is_one_graph:
            return OneGraph(sides)
        return Chunks(sides, seed, self.processes, gathers=self._beam is None)

    def _pool_labels(self, batch: Batch) -> PoolLabels:
        own = self._own(batch.labels)
        ids = torch.from_numpy(batch.labels[own]).to(self.network.device)
        mined_BN = None if batch.mined is None else torch.from_numpy(batch.mined)
        return PoolLabels(ids, ids - self._shard.start, own.start, mined_BN)

    def _own(self, labels: Ids) -> slice:
        """Which of some labels, ascending, this process has."""
        return slice(*np.searchsorted(labels, [self._shard.start, self._shard.stop]).tolist())


def _log_q(data: TrainingSet, config: Config, device: torch.device) -> Tensor | None:
    """How often each label enters a pool. Batches of labels take each as often as any: there is nothing to correct."""
    if not config.loss.log_q or config.pool.batches == "labels":
        return None
    found = log_inclusion(data.positives, config.train.batch_size, config.pool.positives)
    return torch.from_numpy(found).to(device) * config.loss.log_q
