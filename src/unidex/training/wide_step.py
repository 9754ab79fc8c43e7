"""A step over any number of labels: in bounded memory, on one process or many.

Texts are split evenly over the processes and labels by shards. A process encodes its texts and its labels of the pool,
in chunks where the recipe asks for them (`GradientCache`), gets the vectors of all texts, and scores them against its
own labels block by block. The gradients of text vectors are summed over the processes and sent back to whoever
encoded them; those of labels stay where they are.

Shapes: B texts, P labels of the pool that are mine, D dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unidex.config import Config
from unidex.distributed import Processes
from unidex.errors import ConfigError
from unidex.losses import HeadLoss
from unidex.losses.blocks import BlockedGrad, Sink
from unidex.nn.network import Network
from unidex.nn.row_table import RowTable, Touched
from unidex.pools.pool import Batch
from unidex.training.gradient_cache import GradientCache

# Takes the gradient of neighbouring rows of a table, as soon as it is known.
MoveRows = Callable[[RowTable, slice, Tensor], None]


@dataclass(frozen=True, eq=False)
class WideStep:
    """What stays the same from step to step.

    Attributes:
        network: with the classifiers of this process's labels.
        texts: all prepared texts.
        labels: all prepared label texts.
        config: the recipe.
        processes: who takes part.
        log_q: how often each label enters a pool, or None.
        move_rows: moves rows of the classifiers whose gradient is known.
    """

    network: Network
    texts: Any
    labels: Any
    config: Config
    processes: Processes
    log_q: Tensor | None
    move_rows: MoveRows

    def __post_init__(self) -> None:
        config = self.config
        names = [config.loss.dual] * config.heads.dual + [config.loss.classifier] * config.heads.classifier
        unfit = None
        if "triplet" in names:
            unfit = "the triplet loss"
        elif "contrastive" in names:
            unfit = "the contrastive loss"
        elif config.heads.classifier and config.loss.classifier_bce:
            unfit = "loss.classifier_bce"
        elif config.augment.mixup != "none":
            unfit = "augment.mixup"
        if config.encoder.kind == "inception" and (self.processes.size > 1 or config.train.chunk):
            raise ConfigError(
                "the inception encoder's BatchNorm must see all texts of a step at once, but this run has "
                f"{self.processes.size} processes and train.chunk = {config.train.chunk}; train it on one process with "
                "train.chunk = 0"
            )
        if unfit is not None:
            raise ConfigError(
                "all labels (pool.labels = 'all'), a gradient cache (train.chunk) and several processes need losses "
                f"that are taken block by block, but this recipe has {unfit}; train it on one process with a picked "
                "pool and train.chunk = 0"
            )

    def __call__(self, batch: Batch, rng: np.random.Generator) -> tuple[Tensor, list[Touched]]:
        """The loss of a batch, the same on each process, and the rows of tables that were used; gradients are there."""
        network, config, device = self.network, self.config, self.network.device
        seed = int(rng.integers(2**62))
        shard = self.processes.shard(self.labels.shape[0])
        first, stop = np.searchsorted(batch.labels, [shard.start, shard.stop]).tolist()
        mine = batch.labels[first:stop]
        own_texts = batch.texts[self.processes.part(len(batch.texts))]
        touched: list[Touched] = []

        def encode_texts(ids: Any, chunk_rng: np.random.Generator) -> tuple[Tensor, ...]:
            rows, used = self.texts[ids], touched if torch.is_grad_enabled() else []
            encoded = network.encoder(rows, used, chunk_rng)
            dual = None if network.dual is None else network.dual(encoded)
            if network.classifier_encoder is not None:
                encoded = network.classifier_encoder(rows, used, chunk_rng)
            classifier = None if network.classifier is None else network.classifier(encoded)
            if classifier is not None and config.heads.classifier_normalised:
                classifier = nn.functional.normalize(classifier, dim=1)
            return tuple(part for part in (dual, classifier) if part is not None)

        def encode_labels(ids: Any, chunk_rng: np.random.Generator) -> tuple[Tensor, ...]:
            assert network.dual is not None
            used = touched if torch.is_grad_enabled() else []
            return (network.dual(network.encoder(self.labels[ids], used, chunk_rng)),)

        text_cache = GradientCache(
            encode_texts, own_texts, chunk=config.train.chunk, seed=[seed, 0, self.processes.rank]
        )
        parts = tuple(self.processes.gather(part) for part in text_cache.vectors())
        scales = network.log_scales.exp()
        gradients: list[Tensor] = []
        scale_gradients = torch.zeros_like(scales)
        value = torch.zeros((), device=device)
        log_q_P = None if self.log_q is None else self.log_q[torch.from_numpy(mine).to(device)]

        def loss(name: str, vectors: Tensor, head: int, sink: Sink | None = None) -> BlockedGrad:
            of_head = HeadLoss.of(name, config.loss, bce_weight=config.loss.classifier_bce if head else 0.0)
            local = of_head.sample(batch.targets, seed).between(first, stop).to(device)
            scale, texts = scales[head].detach(), parts[len(gradients)]
            return of_head.blocked(texts, vectors, scale, local, log_q_L=log_q_P, ranks=self.processes, sink=sink)

        def add(result: BlockedGrad, head: int, weight: float) -> Tensor:
            gradients.append(self.processes.sum_of_mine(result.texts_BD * weight))
            scale_gradients[head] = result.scale * weight
            return result.value * weight

        if network.dual is not None:
            weight = config.loss.dual_weight if network.classifier is not None else 1.0
            label_cache = GradientCache(
                encode_labels, mine, chunk=config.train.chunk, seed=[seed, 1, self.processes.rank]
            )
            (vectors,) = label_cache.vectors()
            result = loss(config.loss.dual, vectors, 0)
            value = value + add(result, 0, weight)
            assert result.labels_LD is not None
            label_cache.backward((result.labels_LD * weight,))
        if network.classifier is not None and network.classifiers is not None:
            weight = 1 - config.loss.dual_weight if network.dual is not None else 1.0
            table = network.classifiers
            if config.pool.labels == "all" and not _changed(config):
                # The rows are scored as they are: each block is moved as soon as its gradient is known.
                def move(rows: slice, gradient: Tensor) -> None:
                    self.move_rows(table, rows, gradient * weight)

                result = loss(config.loss.classifier, table.weight, 1, move)
            else:
                ids = torch.from_numpy(mine - shard.start).to(device)
                rows = network.gather_classifiers(ids, touched)
                changed = nn.functional.dropout(rows, config.heads.classifier_dropout)
                if config.heads.classifier_normalised:
                    changed = nn.functional.normalize(changed, dim=1)
                result = loss(config.loss.classifier, changed.detach(), 1)
                assert result.labels_LD is not None
                changed.backward(result.labels_LD * weight)  # type: ignore[no-untyped-call]
            value = value + add(result, 1, weight)
        text_cache.backward(tuple(gradients))
        if scales.requires_grad:
            scales.backward(scale_gradients)  # type: ignore[no-untyped-call]
        return value, touched


def _changed(config: Config) -> bool:
    """Whether classifiers are scored otherwise than as they are stored."""
    heads = config.heads
    return heads.classifier_normalised or heads.classifier_dropout > 0 or heads.classifier_parts != ["free"]
