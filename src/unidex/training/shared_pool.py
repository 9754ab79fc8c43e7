"""The labels of a step: a pool, or all labels block by block.

All texts share them, or each text has candidates of its own among them (`OwnCandidates`). Where they are shared, on one
process with a picked pool, a loss sees one matrix of scores. Otherwise it sees blocks of the labels of this process,
and knows of the others' labels by a few numbers per text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from unidex.config import Config
from unidex.distributed import Processes
from unidex.losses import HeadLoss
from unidex.losses.blocks import BlockedGrad, Sink
from unidex.losses.gradient import inner_product_loss
from unidex.nn.row_table import RowTable, Touched
from unidex.training.backward_pass import backward
from unidex.training.batch_vectors import BatchVectors
from unidex.training.own_candidates import OwnCandidates
from unidex.training.towers import Towers

# Takes the gradient of neighbouring rows of a table, as soon as it is known.
MoveRows = Callable[[RowTable, slice, Tensor], None]
DUAL, CLASSIFIER = range(2)


@dataclass(frozen=True, eq=False)
class PoolLabels:
    """The labels of a step that this process has."""

    ids: Tensor  # P ids, ascending
    rows: Tensor  # P, their rows of this process's table
    first: int  # the place in the pool of the first of them
    mined_BN: Tensor | None = None  # places in the pool of the labels mined for each text; None to share the pool


@dataclass(frozen=True, eq=False)
class SharedPool:
    """The losses of both heads over the labels of a step."""

    towers: Towers  # encoders, heads and classifiers
    processes: Processes  # the processes that share the labels
    log_q: Tensor | None  # how often each label enters a pool, or None
    move_rows: MoveRows  # moves rows of the classifiers whose gradient is known
    is_dense: bool  # whether the scores of a step are one matrix

    def __call__(
        self, vectors: BatchVectors, labels: PoolLabels, scales: Tensor, seed: int, touched: list[Touched]
    ) -> tuple[Tensor, list[Tensor], Tensor]:
        """The value, the gradients of the texts' vectors and of the scales. Gradients of labels are sent already."""
        config, network = self.towers.config, self.towers.network
        value, of_scales = torch.zeros((), device=network.device), torch.zeros_like(scales)
        of_texts: list[Tensor] = []
        own = None
        if labels.mined_BN is not None:
            own = OwnCandidates.of(vectors.targets, labels.mined_BN, self.processes)

        def take(head: int, labels_PD: Tensor, weight: float, sink: Sink | None = None) -> Tensor | None:
            nonlocal value
            if own is None:
                result = self._loss(head, vectors, len(of_texts), labels_PD, labels, scales[head], seed, sink)
            else:
                loss, texts_BD = head_loss(config, head, one_way=True), vectors.texts[len(of_texts)]
                result = own.loss(texts_BD, labels_PD, labels.first, scales[head], loss, seed, self.processes)
            value = value + result.value * weight
            of_texts.append(result.texts_BD * weight)
            of_scales[head] = result.scale * weight
            return None if result.labels_LD is None else result.labels_LD * weight

        dual_weight, classifier_weight = self.towers.weights
        if self.towers.has_dual:
            assert vectors.labels is not None
            gradient_PD = take(DUAL, vectors.labels, dual_weight)
            assert gradient_PD is not None
            vectors.send_labels(gradient_PD)
        if self.towers.has_classifier:
            weight, table = classifier_weight, network.classifiers
            assert table is not None
            if config.pool.labels == "all" and self.towers.classifiers_are_as_stored:
                # Each block is moved as soon as its gradient is known.
                take(CLASSIFIER, table.weight, weight, lambda rows, part: self.move_rows(table, rows, part * weight))
            else:
                rows_PD = self.towers.gather_classifiers(labels.rows, touched)
                gradient_PD = take(CLASSIFIER, rows_PD.detach(), weight)
                assert gradient_PD is not None
                backward((rows_PD,), (gradient_PD,))
        return value, of_texts, of_scales

    def _loss(
        self,
        head: int,
        vectors: BatchVectors,
        number: int,
        labels_PD: Tensor,
        labels: PoolLabels,
        scale: Tensor,
        seed: int,
        sink: Sink | None,
    ) -> BlockedGrad:
        loss, texts_BD = head_loss(self.towers.config, head), vectors.texts[number]
        log_q_P = None if self.log_q is None else self.log_q[labels.ids]
        targets = loss.sample(vectors.targets, seed)
        if self.is_dense:
            targets = targets.to(texts_BD.device)
            return inner_product_loss(texts_BD, labels_PD, scale.detach(), targets, loss.dense(log_q_P))
        targets = targets.between(labels.first, labels.first + len(labels_PD)).to(texts_BD.device)
        return loss.blocked(
            texts_BD, labels_PD, scale.detach(), targets, log_q_L=log_q_P, ranks=self.processes, sink=sink
        )


def head_loss(config: Config, head: int, *, one_way: bool = False) -> HeadLoss:
    """The loss of a head by its recipe.

    ``one_way`` leaves the direction from labels to texts out, which candidates of each text's own do not have.
    """
    settings = config.loss.model_copy(update={"text_to_label": 1.0}) if one_way else config.loss
    if head == DUAL:
        return HeadLoss.of(settings.dual, settings)
    return HeadLoss.of(settings.classifier, settings, bce_weight=settings.classifier_bce)
