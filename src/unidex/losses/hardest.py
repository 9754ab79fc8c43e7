"""Losses on the positives and the hardest negatives of each text: the part that `triplet` and `contrastive` share.

Shapes: B texts, P labels in the pool, L labels of this process, l labels of a block, M positive pairs, K hardest
negatives per text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from unidex.losses.blocks import Block, LabelBlocks, LastPass
from unidex.losses.gradient import LossGrad, check_scores
from unidex.losses.targets import Targets


class Terms(NamedTuple):
    """The value of a loss and its gradient with respect to the scores that count."""

    value: Tensor  # a scalar
    hardest_BK: Tensor  # gradient of the hardest negatives
    positives_M: Tensor  # gradient of the positives


# From the scores of the hardest negatives (B x K, -inf where a text has fewer), the scores of the positives (M) and
# the targets.
HardestLoss = Callable[[Tensor, Tensor, Targets], Terms]


def dense_hardest(scores_BP: Tensor, targets: Targets, loss: HardestLoss, num_negatives: int) -> LossGrad:
    """A loss on the hardest negatives of a matrix of scores, which it consumes."""
    check_scores(scores_BP, targets)
    if num_negatives < 1:
        raise ValueError(f"num_negatives must be at least 1, but is {num_negatives}")
    if scores_BP.numel() == 0:
        return LossGrad(scores_BP.sum(), scores_BP)
    positives_M, hardest_BK, places_BK = _take_(scores_BP, targets, num_negatives)
    terms = loss(hardest_BK, positives_M, targets)
    scores_BP.zero_().scatter_(1, places_BK, terms.hardest_BK)
    scores_BP[targets.rows, targets.columns] = terms.positives_M
    return LossGrad(terms.value, scores_BP)


class BlockedHardest(LastPass):
    """A loss on the hardest negatives, block by block.

    One pass keeps the scores of the positives and the K highest negatives of each text so far. Then every process gets
    the positives and the hardest negatives of all, and computes the same loss. The gradient has B K + M numbers, so
    there is one matrix product, and two sparse ones. Of equal scores either may be the one that counts.

    Memory, in numbers, besides that of `run_blocked`: about 5 B K for each process.
    """

    def __init__(self, labels: LabelBlocks, loss: HardestLoss, num_negatives: int) -> None:
        if num_negatives < 1:
            raise ValueError(f"num_negatives must be at least 1, but is {num_negatives}")
        own, ranks = labels.targets, labels.ranks
        hardest_BK = labels.texts_BD.new_full((len(labels.texts_BD), num_negatives), -torch.inf)
        columns_BK = torch.zeros_like(hardest_BK, dtype=torch.int64)
        positives_M = hardest_BK.new_empty(own.num_positives)
        for block in labels.blocks:
            positives_M[block.positives], found_BK, places_BK = _take_(
                labels.scores(block), block.targets, num_negatives
            )
            hardest_BK, columns_BK = _highest(
                torch.cat([hardest_BK, found_BK], dim=1),
                torch.cat([columns_BK, places_BK + block.labels.start], dim=1),
                num_negatives,
            )
        everywhere = labels.everywhere()
        # Labels of other processes have places outside this process's range.
        hardest_BK, columns_BK = _highest(
            ranks.gather(hardest_BK.T).T, ranks.gather(columns_BK.T + everywhere.labels.start).T, num_negatives
        )
        columns_BK = columns_BK - everywhere.labels.start
        terms = loss(hardest_BK, ranks.gather(positives_M), everywhere.targets)
        # All processes have the same value; one of them gives it.
        self._value = terms.value if ranks.rank == 0 else torch.zeros_like(terms.value)
        is_own_BK = (hardest_BK > -torch.inf) & (columns_BK >= 0) & (columns_BK < len(labels.labels_LD))
        gradient = replace(
            own,
            rows=torch.cat([own.rows, is_own_BK.nonzero()[:, 0]]),
            columns=torch.cat([own.columns, columns_BK[is_own_BK]]),
            weights=torch.cat([terms.positives_M[everywhere.positives], terms.hardest_BK[is_own_BK]]),
        )
        self._gradient = [block.targets for block in labels.split(gradient)[1]]

    def needs_scores(self, block: Block) -> bool:
        """The gradient is known already."""
        return False

    def gradient_(self, scores_Bl: Tensor | None, block: Block) -> Tensor:
        """The gradient of a block, sparse."""
        pairs = self._gradient[block.number]
        places = torch.stack([pairs.rows, pairs.columns])
        return torch.sparse_coo_tensor(places, pairs.weights, pairs.shape, check_invariants=False)

    def value(self) -> Tensor:
        """The value on the first process, 0 on the others."""
        return self._value


def _take_(scores_BP: Tensor, targets: Targets, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The scores of the positives, and the highest negatives with their places; all other pairs become -inf."""
    positives_M = scores_BP[targets.rows, targets.columns]
    scores_BP[targets.rows, targets.columns] = -torch.inf
    scores_BP[targets.ignored_rows, targets.ignored_columns] = -torch.inf
    # A text with fewer negatives gets masked pairs too, at -inf.
    return positives_M, *scores_BP.topk(min(count, scores_BP.shape[1]), dim=1, sorted=False)


def _highest(scores_BN: Tensor, columns_BN: Tensor, count: int) -> tuple[Tensor, Tensor]:
    highest_BK, places_BK = scores_BN.topk(min(count, scores_BN.shape[1]), dim=1)
    return highest_BK, columns_BN.gather(1, places_BK)
