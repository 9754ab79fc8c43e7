"""Softmax losses over a pool: decoupled softmax, supervised contrastive, one positive.

Shapes: B texts, P labels in the pool, M positive pairs. s_ip is the score of text i for label p, already divided by
the temperature; w_ip = y_ip / sum_p y_ip is the share of a positive among all positives of its text; n is the number of
texts with a positive; N_i are the pairs of text i that are neither positive nor ignored.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812  # the name everybody knows it by
from torch import Tensor

from unidex.losses.gradient import LossGrad, check_scores
from unidex.losses.targets import Targets


def decoupled_softmax(scores_BP: Tensor, targets: Targets) -> LossGrad:
    """Each positive against the negatives alone, so that no positive pushes another one down.

    Formula::

        Z_i   = sum_{l in N_i} exp(s_il)
        q_ip  = exp(s_ip) / (exp(s_ip) + Z_i)
        value = 1/n sum_i sum_p w_ip (-log q_ip) = 1/n sum_i sum_p w_ip softplus(log Z_i - s_ip)
        d value / d s_ip = -w_ip (1 - q_ip) / n                               positives
        d value / d s_il = exp(s_il) / Z_i * sum_p w_ip (1 - q_ip) / n        negatives

    References: DEXML (arXiv 2310.10636); UniDEC (arXiv 2405.03714).

    Relations: equals `supcon` and `softmax_one_positive` when no text has two positives in the pool. A text whose
    positives are all of its pool has nothing to learn: value and gradient 0.

    >>> value, gradient = decoupled_softmax(torch.tensor([[2.0, 1.0, 1.0]]), Targets.of([0, 0], [0, 1], shape=(1, 3)))
    >>> value, gradient
    (tensor(0.5032), tensor([[-0.1345, -0.2500,  0.3845]]))
    """
    return _plain(scores_BP, targets, DECOUPLED)


def supcon(scores_BP: Tensor, targets: Targets) -> LossGrad:
    """Supervised contrastive loss: each positive against the whole pool, the other positives included.

    Formula::

        Z_i   = sum_{l not ignored} exp(s_il)
        value = 1/n sum_i sum_p w_ip (log Z_i - s_ip)
        d value / d s_il = (exp(s_il) / Z_i - w_il) / n                       w_il = 0 for negatives

    A positive whose probability exceeds its share w_ip is pushed down; `decoupled_softmax` never does that.

    References: SupCon (arXiv 2004.11362, eq. 2); UniDEC (arXiv 2405.03714). DEXML's softmax baseline sums over the
    positives of a text where this takes their mean.

    Relations: see `decoupled_softmax`. The value is smallest, but not 0, when the probabilities equal the shares.

    >>> value, gradient = supcon(torch.tensor([[2.0, 1.0, 1.0]]), Targets.of([0, 0], [0, 1], shape=(1, 3)))
    >>> value, gradient
    (tensor(1.0514), tensor([[ 0.0761, -0.2881,  0.2119]]))
    """
    return _plain(scores_BP, targets, SUPCON)


def softmax_one_positive(
    scores_BP: Tensor, targets: Targets, *, others: Literal["ignored", "negatives"] = "ignored"
) -> LossGrad:
    """Softmax on one drawn positive per text (pick one label); `one_positive` draws it.

    Formula::

        value = 1/n sum_i (log(exp(s_ip) + Z_i) - s_ip)            p is the drawn positive of text i
        Z_i   = sum_{l in N_i} exp(s_il)                           others = "ignored"
        Z_i   = sum_{l in N_i} exp(s_il) + sum_{p' != p} exp(s_ip')     others = "negatives"

    The targets are 1 for the drawn positive of a text and 0 for its others. ``others`` is how those count that happen
    to be in the pool.

    References: DPR (arXiv 2004.04906) and ANCE count them as negatives; DEXML with sampled positives leaves
    them out.

    Relations: "ignored" is `decoupled_softmax`, "negatives" is `supcon`, both on the drawn targets: a positive with
    the target 0 pulls nothing, and stands outside the denominator of the one and inside that of the other.

    >>> from unidex.losses import one_positive
    >>> targets = one_positive(Targets.of([0, 0], [0, 1], shape=(1, 3)), torch.Generator().manual_seed(3))
    >>> softmax_one_positive(torch.tensor([[2.0, 1.0, 1.0]]), targets).gradient
    tensor([[-0.2689,  0.0000,  0.2689]])
    >>> softmax_one_positive(torch.tensor([[2.0, 1.0, 1.0]]), targets, others="negatives").gradient
    tensor([[-0.4239,  0.2119,  0.2119]])
    """
    if others not in ("ignored", "negatives"):
        raise ValueError(f'others must be "ignored" or "negatives", but is {others!r}')
    # Only where looking at values does not wait for the device.
    if targets.rows.device.type == "cpu" and len(targets.rows):
        count = int(torch.bincount(targets.rows[targets.weights > 0], minlength=1).max())
        if count > 1:
            raise ValueError(f"a text must have one drawn positive, but one has {count}; draw with one_positive first")
    return _plain(scores_BP, targets, DECOUPLED if others == "ignored" else SUPCON)


def correct_log_q(scores_BP: Tensor, log_q_P: Tensor) -> Tensor:
    """Lower each label's scores by log q_l, where q_l is how often the label enters the pool; in place.

    A label that is in every pool (q = 1) is met as a negative more often than its part in the sum over all labels;
    the corrected sum over the pool estimates the sum over all labels. It belongs to the text-to-label direction only:
    the texts of a batch are drawn evenly. The correction is constant, so the gradient with respect to the corrected
    scores is the gradient with respect to the scores.

    References: Bengio and Senecal 2008; Yi et al. 2019 (sampling-bias-corrected neural modelling).

    >>> correct_log_q(torch.zeros(1, 2), torch.tensor([1.0, 0.5]).log())
    tensor([[0.0000, 0.6931]])
    """
    if log_q_P.shape != scores_BP.shape[1:]:
        raise ValueError(f"log q must have one value per label ({scores_BP.shape[1]}), but has {tuple(log_q_P.shape)}")
    return scores_BP.sub_(log_q_P.to(scores_BP.dtype))


class Form(NamedTuple):
    """What tells the softmax losses apart."""

    masks_positives: bool  # whether positives stay out of the denominator
    # From shares_M (w_ip / n) and gaps_M (log Z_i - s_ip), the value of each positive and how hard it pulls.
    terms: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def _decoupled_terms(shares_M: Tensor, gaps_M: Tensor) -> tuple[Tensor, Tensor]:
    # -logsigmoid(-x) is softplus(x) without the threshold above which torch returns x. A gap of -inf (no negatives)
    # gives 0 in both.
    return -shares_M * F.logsigmoid(-gaps_M), shares_M * torch.sigmoid(gaps_M)


def _supcon_terms(shares_M: Tensor, gaps_M: Tensor) -> tuple[Tensor, Tensor]:
    return shares_M * gaps_M, shares_M


DECOUPLED = Form(True, _decoupled_terms)
SUPCON = Form(False, _supcon_terms)


def mask_(scores_BP: Tensor, targets: Targets, form: Form, value: float) -> None:
    """Write ``value`` at every pair that is not in a denominator.

    >>> scores = torch.tensor([[1.0, 2.0, 3.0]])
    >>> mask_(scores, Targets.of([0], [1], shape=(1, 3)), DECOUPLED, -torch.inf)
    >>> scores
    tensor([[1., -inf, 3.]])
    """
    if form.masks_positives:
        scores_BP[targets.rows, targets.columns] = value
    if len(targets.ignored_rows):
        scores_BP[targets.ignored_rows, targets.ignored_columns] = value


def exponentials_(scores_BP: Tensor, highest: Tensor, *, in_bits: bool = False) -> None:
    """exp(scores - highest), or 2^(...), in place; ``highest`` broadcasts and must be finite.

    Masked pairs do not become 0 exactly: mask them again.
    """
    # The exponential of float32 costs twenty times as much where its result is not a normal number, as measured on
    # x86 with MKL. What is below the smallest normal number next to 1 is nothing, whichever small number it is.
    lowest = (math.log2 if in_bits else math.log)(torch.finfo(scores_BP.dtype).tiny) + 0.1
    scores_BP.sub_(highest).clamp_min_(lowest)
    (torch.exp2_ if in_bits else torch.exp_)(scores_BP)


def _plain(scores_BP: Tensor, targets: Targets, form: Form) -> LossGrad:
    check_scores(scores_BP, targets)
    if scores_BP.numel() == 0:
        return LossGrad(scores_BP.sum(), scores_BP)
    rows, columns = targets.rows, targets.columns
    positives_M = scores_BP[rows, columns]
    mask_(scores_BP, targets, form, -torch.inf)
    highest_B = finite_or_zero(scores_BP.amax(1))
    exponentials_(scores_BP, highest_B[:, None])
    mask_(scores_BP, targets, form, 0.0)
    sums_B = scores_BP.sum(1)
    # log Z_i - s_ip from two differences to the row's highest: scores of 10,000 lose no digits to each other.
    gaps_M = sums_B.log()[rows] - (positives_M - highest_B[rows])
    values_M, pulls_M = form.terms(targets.shares(scores_BP.dtype), gaps_M)
    scores_BP.mul_(pushes(pulls_M, rows, sums_B)[:, None])
    scores_BP[rows, columns] -= pulls_M
    return LossGrad(values_M.sum(), scores_BP)


def finite_or_zero(highest: Tensor) -> Tensor:
    """The highest scores, 0 where every pair is masked: there is nothing to shift.

    >>> finite_or_zero(torch.tensor([2.0, -torch.inf]))
    tensor([2., 0.])
    """
    return torch.where(highest == -torch.inf, 0, highest)


def pushes(pulls_M: Tensor, anchors_M: Tensor, sums: Tensor) -> Tensor:
    """The factor per anchor that turns exponentials into gradients: the pull of its positives over its sum."""
    # An anchor without negatives has the sum 0 and pulls 0.
    return torch.zeros_like(sums).index_add_(0, anchors_M, pulls_M) / torch.where(sums > 0, sums, 1)
