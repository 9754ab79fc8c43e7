"""The probabilistic contrastive loss of SiameseXML: a score is the logarithm of a probability, up to two constants.

Shapes: B texts, P labels in the pool, M positive pairs, K hardest negatives a text.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

from unidex.losses.gradient import LossGrad, check_scores
from unidex.losses.registry import RegisteredLoss, register, sampled_positives
from unidex.losses.targets import Targets

# A negative whose log-probability is above this is pushed down along the tangent: at 0 the term would be infinite.
_HIGHEST = -0.01


def contrastive(
    scores_BP: Tensor, targets: Targets, *, c: float = 0.9, d: float = 1.5, num_negatives: int = 10, least: float = 0.0
) -> LossGrad:
    """Positives are to be likely, and the hardest negatives of each text unlikely.

    Formula, with H_i the ``num_negatives`` highest negatives of text i, of which those with n_il >= least count::

        log p_il = log c + d (s_il - 1)                                       so that a score of 1 has probability c
        n_il  = -log(1 - p_il)
        value = 1/n sum_i (sum_p w_ip (-log p_ip) + sum_{l in H_i} n_il / |H_i|)
        d value / d s_ip = -d w_ip / n
        d value / d s_il = d p_il / (1 - p_il) / (n |H_i|)                    l in H_i

    Where log p_il is above -0.01, which no cosine reaches with c below 0.99, n_il goes on along its tangent: scores
    that are not cosines give a finite loss too.

    Args:
        scores_BP: B x P cosines, not divided by a temperature; consumed, their memory holds the gradient afterwards.
        targets: the positive and ignored pairs.
        c: the probability of a pair whose score is 1, between 0 and 1.
        d: how fast it falls with the score.
        num_negatives: how many of the hardest negatives count.
        least: terms of negatives that are smaller than this are 0, and so is their gradient.

    References: SiameseXML (Dahiya et al., ICML 2021): c = 0.9 and d = 1.5 for its encoder;
    c = 0.75, d = 3 and terms from 0.05 on for its classifiers, scaled by 1/d, which Adam does not notice. Whether terms
    of positives and negatives are summed or averaged is left open there: here each text has the mean of both.

    Relations: the positive term is linear in the score and pulls forever, so a score must be bounded, as cosines are.
    Binary cross-entropy with p as the probability, positives and hardest negatives averaged apart.

    >>> scores, targets = torch.tensor([[0.5, 0.4, -1.0]]), Targets.of([0], [0], shape=(1, 3))
    >>> contrastive(scores, targets, num_negatives=1)
    LossGrad(value=tensor(1.3109), gradient=tensor([[-1.5000,  0.8656,  0.0000]]))
    """
    check_scores(scores_BP, targets)
    if not 0 < c < 1:
        raise ValueError(f"c must be between 0 and 1, but is {c}")
    if not d > 0:
        raise ValueError(f"d must be > 0, but is {d}")
    if num_negatives < 1:
        raise ValueError(f"num_negatives must be at least 1, but is {num_negatives}")
    if scores_BP.numel() == 0:
        return LossGrad(scores_BP.sum(), scores_BP)
    rows, columns = targets.rows, targets.columns
    positives_M = scores_BP[rows, columns]
    scores_BP[rows, columns] = -torch.inf
    scores_BP[targets.ignored_rows, targets.ignored_columns] = -torch.inf
    hardest_BK, places_BK = scores_BP.topk(min(num_negatives, scores_BP.shape[1]), dim=1, sorted=False)
    # A text with fewer negatives gets masked pairs too; they have probability 0, and are not counted.
    counts_B = (hardest_BK > -torch.inf).sum(1)
    logs_BK = math.log(c) + d * (hardest_BK - 1)
    bounded_BK = logs_BK.clamp(max=_HIGHEST)
    slopes_BK = 1 / torch.expm1(-bounded_BK)
    terms_BK = -torch.log(-torch.expm1(bounded_BK)) + slopes_BK * (logs_BK - bounded_BK).nan_to_num(0.0)
    dropped_BK = (terms_BK < least) | (hardest_BK == -torch.inf)
    shares_M = targets.shares(scores_BP.dtype)
    # What a text weighs in the mean over texts: nothing without a positive.
    weights_B = torch.zeros_like(scores_BP[:, 0]).index_add_(0, rows, shares_M) / counts_B.clamp_min(1)

    value = (shares_M * (d * (1 - positives_M) - math.log(c))).sum()
    value = value + (weights_B[:, None] * terms_BK.masked_fill(dropped_BK, 0)).sum()
    pushes_BK = (d * weights_B[:, None] * slopes_BK).masked_fill_(dropped_BK, 0)
    scores_BP.zero_().scatter_(1, places_BK, pushes_BK)
    scores_BP[rows, columns] = -d * shares_M
    return LossGrad(value, scores_BP)


register(
    RegisteredLoss(
        "contrastive",
        dense=lambda settings: partial(
            contrastive,
            c=settings.contrastive_c,
            d=settings.contrastive_d,
            num_negatives=settings.hardest_negatives,
            least=settings.contrastive_min,
        ),
        settings=("contrastive_c", "contrastive_d", "contrastive_min", "hardest_negatives", "sampled_positives"),
        sample=sampled_positives,
    )
)
