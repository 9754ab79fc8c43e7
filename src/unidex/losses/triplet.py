"""The triplet loss of NGAME: a positive must beat the hardest negatives by a margin.

Shapes: B texts, P labels in the pool, L labels of this process, D dimensions, M positive pairs, K hardest negatives per
text.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from unidex.losses.blocks import LabelBlocks
from unidex.losses.gradient import LossGrad
from unidex.losses.hardest import BlockedHardest, HardestLoss, Terms, dense_hardest
from unidex.losses.registry import register_with_options
from unidex.losses.softmax import finite_or_zero
from unidex.losses.targets import Targets, lowest_positives


def triplet(
    scores_BP: Tensor,
    targets: Targets,
    *,
    margin: float = 0.3,
    num_negatives: int = 10,
    temperature: float = 0.1,
    num_positives: int = 0,
) -> LossGrad:
    """Hinges on the hardest negatives of each text, the harder the heavier.

    Formula, with H_i the ``num_negatives`` highest negatives of text i::

        h_ipn = max(0, s_in - s_ip + margin)                                  n in H_i
        a_ipn = exp(s_in / temperature) / sum_{m: h_ipm > 0} exp(s_im / temperature)     where h_ipn > 0, else 0
        l_ip  = sum_n a_ipn h_ipn
        value = 1/n sum_i sum_p w_ip l_ip
        d value / d s_in = 1/n sum_p w_ip a_ipn (1 + (h_ipn - l_ip) / temperature)
        d value / d s_ip = -w_ip / n                                          where some h_ipn > 0, else 0

    The weights a are differentiated too, as autograd does in NGAME's code; the gradient is that of the value above. So
    a violator whose hinge is more than ``temperature`` below the mean is pushed up a little, not down.

    Args:
        scores_BP: cosines, not divided by a temperature; consumed, as by every loss.
        targets: the positive and ignored pairs; NGAME draws one positive per text (`one_positive`).
        margin: by how much a positive must beat a negative.
        num_negatives: how many of the hardest negatives count.
        temperature: how strongly the hardest of them dominate.
        num_positives: how many of a text's positives count, the hardest first; 0 for all. The hardest miss the margin
            to the highest negative by most, times their targets: with equal targets the lowest scores, while a soft
            target of 0.1 may have a low score. NGAME's classifiers are trained on 3 positives x 5 negatives of a text.

    References: NGAME (arXiv 2207.04452). Its code gives negatives that violate nothing a weight of
    exp(0) in the normaliser of a, and divides by ``num_negatives`` once more; here they have no weight, and the
    weights of a positive add up to 1. Its temperature is 0.1 for the encoder and 1 for the classifiers, where weights
    come from the hinges: the same, since they are cut off at negatives that violate nothing.

    >>> value, gradient = triplet(torch.tensor([[0.5, 0.4, 0.3, -1.0]]), Targets.of([0], [0], shape=(1, 4)))
    >>> value, gradient
    (tensor(0.1731), tensor([[-1.0000,  0.9277,  0.0723,  0.0000]]))
    """
    return dense_hardest(scores_BP, targets, _loss(margin, temperature, num_positives), num_negatives)


class BlockedTriplet(BlockedHardest):
    """`triplet` over all labels, block by block, with the same options; NGAME takes negatives from a pool alone."""

    def __init__(self, labels: LabelBlocks, *, num_negatives: int = 10, **options: Any) -> None:
        super().__init__(labels, _loss(**options), num_negatives)


def _loss(margin: float = 0.3, temperature: float = 0.1, num_positives: int = 0) -> HardestLoss:
    if num_positives < 0:
        raise ValueError(f"num_positives must be at least 0, but is {num_positives}")
    if not temperature > 0:
        raise ValueError(f"temperature must be > 0, but is {temperature}")

    def loss(hardest_BK: Tensor, positives_M: Tensor, targets: Targets) -> Terms:
        rows = targets.rows
        if num_positives:
            targets = lowest_positives(targets, _leads(hardest_BK, positives_M, targets, margin), num_positives)
        # A missing negative, at -inf, violates nothing.
        hinges_MK = (hardest_BK[rows] - positives_M[:, None] + margin).clamp_min_(0)
        # The difference before the division: where there are violators, the hardest negative is one of them.
        logits_BK = (hardest_BK - finite_or_zero(hardest_BK.amax(1, keepdim=True))) / temperature
        # A positive without violators has no weights: softmax of nothing is not a number, so it is written as 0.
        weights_MK = torch.softmax(logits_BK[rows].masked_fill_(hinges_MK == 0, -torch.inf), dim=1)
        weights_MK.masked_fill_(hinges_MK == 0, 0)
        losses_M = (weights_MK * hinges_MK).sum(1)
        shares_M = targets.shares(positives_M.dtype)
        pulls_M = shares_M * (hinges_MK > 0).any(1)
        pushes_MK = weights_MK * (1 + (hinges_MK - losses_M[:, None]) / temperature) * shares_M[:, None]
        pushes_BK = torch.zeros_like(hardest_BK).index_add_(0, rows, pushes_MK)
        return Terms((shares_M * losses_M).sum(), pushes_BK, -pulls_M)

    return loss


def _leads(hardest_BK: Tensor, positives_M: Tensor, targets: Targets, margin: float) -> Tensor:
    """By how much each positive is ahead of the highest negative and the margin; a shortfall counts by its target."""
    leads_M = positives_M - (hardest_BK.amax(1)[targets.rows] + margin)
    return torch.where(leads_M < 0, leads_M * targets.weights.to(leads_M.dtype), leads_M)


register_with_options(
    "triplet",
    triplet,
    BlockedTriplet,
    {
        "margin": "margin",
        "num_negatives": "hardest_negatives",
        "num_positives": "hardest_positives",
        "temperature": "triplet_temperature",
    },
    samples_positives=True,
)
