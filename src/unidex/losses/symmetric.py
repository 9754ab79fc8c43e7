"""A loss in both directions: texts choose among labels, labels choose among texts.

Shapes: B texts, P labels in the pool, M positive pairs.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from unidex.losses import softmax
from unidex.losses.exponentials import exponentials_, highest, multiply_pushes_
from unidex.losses.gradient import Loss, LossGrad, check_scores
from unidex.losses.targets import Targets


def symmetric(
    scores_BP: Tensor,
    targets: Targets,
    loss: Loss = softmax.decoupled_softmax,
    *,
    text_to_label: float = 0.5,
    log_q_P: Tensor | None = None,
) -> LossGrad:
    """A loss on the scores and on their transpose.

    Formula::

        value = lam loss(S - log q, Y) + (1 - lam) loss(S^T, Y^T)             lam = text_to_label

    In the label-to-text direction the anchors are the labels with a positive text in the batch and their pool are the
    texts of the batch. A text without a positive is no anchor, yet it stays in the labels' pool.

    A soft target is divided by the sum over its text in the one direction and over its label in the other. ``log_q_P``
    is the correction of `correct_log_q`, in the text-to-label direction.

    References: UniDEC (arXiv 2405.03714), L_D and L_C with lambda 0.5.

    On a CPU, `decoupled_softmax` and `supcon` exponentiate the scores once for both directions, as long as one shift
    fits all rows and columns; other losses, other devices and wider scores take one pass per direction and one copy.

    >>> value, gradient = symmetric(torch.tensor([[2.0, 1.0], [0.0, 1.0]]), Targets.of([0, 1], [0, 1], shape=(2, 2)))
    >>> value, gradient
    (tensor(0.3616), tensor([[-0.0970,  0.1922],
                             [ 0.0970, -0.1922]]))
    """
    check_scores(scores_BP, targets)
    if not 0 <= text_to_label <= 1:
        raise ValueError(f"text_to_label must be between 0 and 1, but is {text_to_label}")
    form = (
        softmax.DECOUPLED if loss is softmax.decoupled_softmax else softmax.SUPCON if loss is softmax.supcon else None
    )
    # The fused form has to look at the range of the scores first. On a CPU that is a branch; elsewhere it
    # would wait for the device, and two passes are cheaper than waiting.
    if form is not None and scores_BP.device.type == "cpu" and scores_BP.numel():
        fused = _fused(scores_BP, targets, form, text_to_label, log_q_P)
        if fused is not None:
            return fused
    return _two_passes(scores_BP, targets, loss, text_to_label, log_q_P)


def _two_passes(
    scores_BP: Tensor, targets: Targets, loss: Loss, text_to_label: float, log_q_P: Tensor | None
) -> LossGrad:
    copy_BP = scores_BP.clone()
    by_text = loss(copy_BP if log_q_P is None else softmax.correct_log_q(copy_BP, log_q_P), targets)
    by_label = loss(scores_BP.T, targets.transposed())
    value = text_to_label * by_text.value + (1 - text_to_label) * by_label.value
    return LossGrad(value, scores_BP.mul_(1 - text_to_label).add_(by_text.gradient, alpha=text_to_label))


def _fused(
    scores_BP: Tensor, targets: Targets, form: softmax.Form, text_to_label: float, log_q_P: Tensor | None
) -> LossGrad | None:
    """One exponential for both directions: E_ip = exp(s_ip - top) gives both sums, E_ip (u_i r_p + v_p) the gradient.

    r_p = 1 / q_p, up to a constant, is the correction. None where one shift does not fit all anchors; the scores are
    then as they were.
    """
    rows, columns, dtype = targets.rows, targets.columns, scores_BP.dtype
    transposed = targets.transposed()
    positives_M = scores_BP[rows, columns]
    ignored_I = scores_BP[targets.ignored_rows, targets.ignored_columns]
    log_r_P = None if log_q_P is None else log_q_P.to(dtype).neg()
    if log_r_P is not None:
        log_r_P = log_r_P - log_r_P.amax()
    softmax.mask_(scores_BP, targets, form, -torch.inf)
    highest_B, highest_P = highest(scores_BP)
    top = softmax.finite_or_zero(highest_B.amax())
    range_ = top - torch.minimum(
        _lowest(highest_B, targets.totals(dtype), top), _lowest(highest_P, transposed.totals(dtype), top)
    )
    if log_r_P is not None:
        range_ = range_ - log_r_P.amin()
    # An anchor whose highest exponential is exp(-range) still sees those that are eps^1.5 of it as normal numbers.
    info = torch.finfo(dtype)
    if float(range_) > 1.5 * math.log(info.eps) - math.log(info.tiny):
        scores_BP[rows, columns] = positives_M
        scores_BP[targets.ignored_rows, targets.ignored_columns] = ignored_I
        return None

    r_P = None if log_r_P is None else log_r_P.exp()
    sums_B, sums_P = exponentials_(scores_BP, float(top), r_P)
    shifted_M = positives_M - top
    gaps_by_text_M = sums_B.log()[rows] - (shifted_M if log_r_P is None else shifted_M + log_r_P[columns])
    gaps_by_label_M = sums_P.log()[columns] - shifted_M
    values_by_text_M, pulls_by_text_M = form.terms(text_to_label * targets.shares(dtype), gaps_by_text_M)
    values_by_label_M, pulls_by_label_M = form.terms((1 - text_to_label) * transposed.shares(dtype), gaps_by_label_M)
    pushes_B = softmax.pushes(pulls_by_text_M, rows, sums_B)
    pushes_P = softmax.pushes(pulls_by_label_M, columns, sums_P)
    multiply_pushes_(scores_BP, pushes_B, pushes_P, r_P)
    scores_BP[rows, columns] -= pulls_by_text_M + pulls_by_label_M
    return LossGrad(values_by_text_M.sum() + values_by_label_M.sum(), scores_BP)


def _lowest(highest: Tensor, totals: Tensor, top: Tensor) -> Tensor:
    """The lowest of the anchors' highest scores. Rows that are no anchors, or have nothing to sum, take no part."""
    return torch.where((totals > 0) & (highest > -torch.inf), highest, top).amin()
