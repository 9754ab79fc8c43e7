"""The probabilistic contrastive loss of SiameseXML: a score is the logarithm of a probability, up to two constants.

Shapes: B texts, P labels in the pool, L labels of this process, D dimensions, M positive pairs, K hardest negatives per
text.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from unidex.losses.blocks import LabelBlocks
from unidex.losses.gradient import LossGrad
from unidex.losses.hardest import BlockedHardest, HardestLoss, Terms, dense_hardest
from unidex.losses.registry import register_with_options
from unidex.losses.targets import Targets

# A negative whose log-probability is above this is pushed down along the tangent: at 0 the term would be infinite.
_HIGHEST = -0.01


def contrastive(
    scores_BP: Tensor,
    targets: Targets,
    *,
    c: float = 0.9,
    d: float = 1.5,
    num_negatives: int = 10,
    min_term: float = 0.0,
) -> LossGrad:
    """Positives are to be likely, and the hardest negatives of each text unlikely.

    Formula, with H_i the ``num_negatives`` highest negatives of text i, of which those with n_il >= min_term count::

        log p_il = log c + d (s_il - 1)                                       so that a score of 1 has probability c
        n_il  = -log(1 - p_il)
        value = 1/n sum_i (sum_p y_ip (-log p_ip) + sum_{l in H_i} n_il)      n texts have a positive
        d value / d s_ip = -d y_ip / n
        d value / d s_il = d p_il / (1 - p_il) / n                            l in H_i

    Where log p_il is above -0.01, which no cosine reaches with c below 0.99, n_il continues along its tangent:
    scores that are not cosines give a finite loss too.

    Args:
        scores_BP: cosines, not divided by a temperature; consumed, as by every loss.
        targets: the positive and ignored pairs.
        c: the probability of a pair whose score is 1, between 0 and 1.
        d: how fast it falls with the score.
        num_negatives: how many of the hardest negatives count.
        min_term: terms of negatives that are smaller than this are 0, and so is their gradient.

    References: SiameseXML (Dahiya et al., ICML 2021) and its code: one negative, c = 0.9 and d = 1.5 for its encoder;
    c = 0.75, d = 3 and the whole shortlist for its classifiers, where everything is scaled by 1/d, which Adam does not
    notice, and scaled terms below 0.05, so terms below 0.15 here, are dropped. Terms are summed over a text's labels.

    Relations: the positive term is linear in the score and pulls forever, so a score must be bounded, as cosines are.
    Binary cross-entropy with p as the probability, summed over the positives and the hardest negatives of a text.

    >>> scores, targets = torch.tensor([[0.5, 0.4, -1.0]]), Targets.of([0], [0], shape=(1, 3))
    >>> contrastive(scores, targets, num_negatives=1)
    LossGrad(value=tensor(1.3109), gradient=tensor([[-1.5000,  0.8656,  0.0000]]))
    """
    return dense_hardest(scores_BP, targets, _loss(c, d, min_term), num_negatives)


class BlockedContrastive(BlockedHardest):
    """`contrastive` over all labels, block by block, with the same options; SiameseXML's negatives come from a pool."""

    def __init__(self, labels: LabelBlocks, *, num_negatives: int = 10, **options: Any) -> None:
        super().__init__(labels, _loss(**options), num_negatives)


def _loss(c: float = 0.9, d: float = 1.5, min_term: float = 0.0) -> HardestLoss:
    if not 0 < c < 1:
        raise ValueError(f"c must be between 0 and 1, but is {c}")
    if not d > 0:
        raise ValueError(f"d must be > 0, but is {d}")

    def loss(hardest_BK: Tensor, positives_M: Tensor, targets: Targets) -> Terms:
        logs_BK = math.log(c) + d * (hardest_BK - 1)
        bounded_BK = logs_BK.clamp(max=_HIGHEST)
        slopes_BK = 1 / torch.expm1(-bounded_BK)
        terms_BK = -torch.log(-torch.expm1(bounded_BK)) + slopes_BK * (logs_BK - bounded_BK).nan_to_num(0.0)
        # A missing negative, at -inf, has probability 0 and is not counted.
        dropped_BK = (terms_BK < min_term) | (hardest_BK == -torch.inf)
        # The weight of a text in the mean over texts: 0 without a positive.
        is_counted_B = targets.totals(positives_M.dtype) > 0
        weights_B = is_counted_B.to(positives_M.dtype) / is_counted_B.sum().clamp_min(1)
        shares_M = targets.weights.to(positives_M.dtype) * weights_B[targets.rows]
        value = (shares_M * (d * (1 - positives_M) - math.log(c))).sum()
        value = value + (weights_B[:, None] * terms_BK.masked_fill(dropped_BK, 0)).sum()
        pushes_BK = (d * weights_B[:, None] * slopes_BK).masked_fill_(dropped_BK, 0)
        return Terms(value, pushes_BK, -d * shares_M)

    return loss


register_with_options(
    "contrastive",
    contrastive,
    BlockedContrastive,
    {"c": "contrastive_c", "d": "contrastive_d", "num_negatives": "hardest_negatives", "min_term": "contrastive_min"},
    samples_positives=True,
)
