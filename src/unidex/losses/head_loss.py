"""The loss of one head: a registered loss with its settings, and a BCE beside it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unidex.config import Loss as Settings
from unidex.losses.bce import bce
from unidex.losses.blocks import ALONE, BlockedGrad, Ranks, Sink
from unidex.losses.collected import collected
from unidex.losses.gradient import Loss, LossGrad
from unidex.losses.registry import RegisteredLoss, get
from unidex.losses.softmax import correct_log_q
from unidex.losses.symmetric import symmetric
from unidex.losses.targets import Targets


@dataclass(frozen=True)
class HeadLoss:
    """What one head minimises: ``loss + bce_weight * bce``, both on the same scores.

    Attributes:
        registered: the loss.
        settings: the section [loss] of the recipe.
        bce_weight: weight of an additional BCE, the mean over pairs; 0 for none.

    >>> loss = HeadLoss.of("one-positive", Settings(text_to_label=1.0))
    >>> targets = loss.sample(Targets.of([0, 0], [0, 1], shape=(1, 2)), seed=0)
    >>> targets.totals(torch.float32)
    tensor([1.])
    """

    registered: RegisteredLoss
    settings: Settings
    bce_weight: float = 0.0

    @classmethod
    def of(cls, name: str, settings: Settings, *, bce_weight: float = 0.0) -> HeadLoss:
        """The loss of a name."""
        return cls(get(name), settings, bce_weight)

    def sample(self, targets: Targets, seed: int) -> Targets:
        """The targets of a step: the positives of each text that the loss trains on.

        The same seed draws the same positives. So both heads agree, and so do all processes if they sample before
        they split the labels.
        """
        generator = torch.Generator(targets.rows.device).manual_seed(seed)
        return self.registered.sample(targets, self.settings, generator)

    def dense(self, log_q_P: Tensor | None = None) -> Loss:
        """The loss on a B x P matrix of scores.

        Args:
            log_q_P: the logarithm of how often each label enters a pool, see `correct_log_q`; None for no correction.
        """
        loss = self.registered.dense(self.settings)
        log_q_P = log_q_P if self.registered.takes_log_q else None
        if self.registered.takes_text_to_label and self.settings.text_to_label < 1:
            main = _both_directions(loss, self.settings.text_to_label, log_q_P)
        else:
            main = loss if log_q_P is None else _corrected(loss, log_q_P)
        return _with_bce(main, self.bce_weight) if self.bce_weight else main

    def blocked(
        self,
        texts_BD: Tensor,
        labels_LD: Tensor,
        scale: Tensor,
        targets: Targets,
        *,
        log_q_L: Tensor | None = None,
        block_size: int | None = None,
        ranks: Ranks = ALONE,
        sink: Sink | None = None,
    ) -> BlockedGrad:
        """The loss on texts and labels, block by block.

        Args:
            texts_BD: B x D.
            labels_LD: L x D, the labels of this process.
            scale: without dimensions; the inverse of the temperature.
            targets: the positive and ignored pairs of the B texts and the L labels of this process.
            log_q_L: the logarithm of how often each label enters a pool; None for no correction.
            block_size: the maximum number of labels per block; None chooses it by the number of texts and dimensions.
            ranks: the processes that hold other labels of the same texts.
            sink: takes the gradient of the labels block by block.
        """
        if self.registered.blocked is None or self.bce_weight:
            return collected(self.dense, texts_BD, labels_LD, scale, targets, log_q_L=log_q_L, ranks=ranks, sink=sink)
        loss = self.registered.blocked(self.settings)
        correction = {"log_q_L": log_q_L} if self.registered.takes_log_q else {}
        return loss(texts_BD, labels_LD, scale, targets, block_size=block_size, ranks=ranks, sink=sink, **correction)


def _both_directions(loss: Loss, text_to_label: float, log_q_P: Tensor | None) -> Loss:
    return lambda scores_BP, targets: symmetric(scores_BP, targets, loss, text_to_label=text_to_label, log_q_P=log_q_P)


def _corrected(loss: Loss, log_q_P: Tensor) -> Loss:
    return lambda scores_BP, targets: loss(correct_log_q(scores_BP, log_q_P), targets)


def _with_bce(loss: Loss, weight: float) -> Loss:
    def both(scores_BP: Tensor, targets: Targets) -> LossGrad:
        extra = bce(scores_BP.clone(), targets)
        main = loss(scores_BP, targets)
        return LossGrad(main.value + weight * extra.value, main.gradient.add_(extra.gradient, alpha=weight))

    return both
