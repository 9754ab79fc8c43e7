"""The loss of one head: a registered loss with its settings, and a BCE beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from unidex.config import Loss as Settings
from unidex.losses.bce import BlockedBce, bce
from unidex.losses.blocks import Block, BlockedGrad, BlockedLoss, LabelBlocks, LastPass, run_blocked
from unidex.losses.gradient import Loss, LossGrad
from unidex.losses.registry import RegisteredLoss, get
from unidex.losses.softmax import correct_log_q
from unidex.losses.symmetric import symmetric
from unidex.losses.targets import Targets


@dataclass(frozen=True)
class HeadLoss:
    """What one head minimises: ``loss + bce_weight * bce``, both on the same scores.

    >>> loss = HeadLoss.of("one-positive", Settings(text_to_label=1.0))
    >>> targets = loss.sample(Targets.of([0, 0], [0, 1], shape=(1, 2)), seed=0)
    >>> targets.totals(torch.float32)
    tensor([1.])
    """

    registered: RegisteredLoss  # the loss
    settings: Settings  # the section [loss] of the recipe
    bce_weight: float = 0.0  # weight of an additional BCE, the mean over pairs; 0 for none

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
        """The loss on a B x P matrix of scores, corrected by `correct_log_q` where ``log_q_P`` is given."""
        main = self._main(log_q_P if self.registered.takes_log_q else None)
        return _with_bce(main, self.bce_weight) if self.bce_weight else main

    def blocked(
        self,
        texts_BD: Tensor,
        labels_LD: Tensor,
        scale: Tensor,
        targets: Targets,
        *,
        log_q_L: Tensor | None = None,
        **options: Any,
    ) -> BlockedGrad:
        """The loss on texts and labels, block by block; arguments and options are those of `run_blocked`."""
        loss: BlockedLoss
        if self.registered.blocked is None:
            loss = partial(Collected, dense=self._main)
        else:
            loss = self.registered.blocked(self.settings)
        if self.bce_weight:
            loss = partial(_BlockedWithBce, main=loss, weight=self.bce_weight)
        log_q_L = log_q_L if self.registered.takes_log_q else None
        return run_blocked(loss, texts_BD, labels_LD, scale, targets, log_q_L=log_q_L, **options)

    def _main(self, log_q_P: Tensor | None) -> Loss:
        """The dense form without the BCE."""
        loss = self.registered.dense(self.settings)
        if self.registered.takes_text_to_label and self.settings.text_to_label < 1:
            return partial(symmetric, loss=loss, text_to_label=self.settings.text_to_label, log_q_P=log_q_P)
        if log_q_P is None:
            return loss
        return lambda scores_BP, targets: loss(correct_log_q(scores_BP, log_q_P), targets)


class Collected(LastPass):
    """The blocked form of a loss that has only a dense one: it collects the scores of all blocks and processes.

    Memory, in numbers, besides that of `run_blocked`: B P for the P labels of all processes, on each process; twice
    that while several processes exchange them; and what the dense form takes.
    """

    def __init__(self, labels: LabelBlocks, *, dense: Callable[[Tensor | None], Loss]) -> None:
        ranks, everywhere = labels.ranks, labels.everywhere()
        scores_BL = torch.empty(labels.targets.shape, dtype=labels.dtype, device=labels.texts_BD.device)
        for block in labels.blocks:
            scores_BL[:, block.labels] = labels.scores(block)
        loss = dense(None if labels.log_q_L is None else ranks.gather(labels.log_q_L))
        value, grad_BP = loss(ranks.gather(scores_BL.T).T.contiguous(), everywhere.targets)
        self._grad_BL = grad_BP[:, everywhere.labels]
        # All processes have the same value; one of them gives it.
        self._value = value if ranks.rank == 0 else torch.zeros_like(value)

    def needs_scores(self, block: Block) -> bool:
        """The gradient is known already."""
        return False

    def gradient_(self, scores_Bl: Tensor | None, block: Block) -> Tensor:
        """The gradient of a block."""
        return self._grad_BL[:, block.labels]

    def value(self) -> Tensor:
        """The value on the first process, 0 on the others."""
        return self._value


class _BlockedWithBce(LastPass):
    """A blocked loss plus a weighted BCE, in one pass over the same scores."""

    def __init__(self, labels: LabelBlocks, *, main: BlockedLoss, weight: float) -> None:
        self._main, self._bce, self._weight = main(labels), BlockedBce(labels), weight
        self.unit, self.is_reversed = self._main.unit, self._main.is_reversed

    def gradient_(self, scores_Bl: Tensor | None, block: Block) -> Tensor:
        assert scores_Bl is not None
        grad_Bl = self._bce.gradient_(scores_Bl * self.unit, block).mul_(self._weight)
        return grad_Bl.add_(self._main.gradient_(scores_Bl, block))

    def value(self) -> Tensor:
        return self._main.value() + self._weight * self._bce.value()


def _with_bce(loss: Loss, weight: float) -> Loss:
    def both(scores_BP: Tensor, targets: Targets) -> LossGrad:
        extra = bce(scores_BP.clone(), targets)
        main = loss(scores_BP, targets)
        return LossGrad(main.value + weight * extra.value, main.gradient.add_(extra.gradient, alpha=weight))

    return both
