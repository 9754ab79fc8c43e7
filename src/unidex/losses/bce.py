"""Binary cross-entropy: every pair of a text and a label is a question of its own.

Shapes: B texts, P labels in the pool, M positive pairs.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812  # the name everybody knows it by
from torch import Tensor

from unidex.losses.gradient import LossGrad, check_scores
from unidex.losses.targets import Targets

# The temporary of the value has at most this many numbers.
BLOCK = 1 << 20


def bce(
    scores_BP: Tensor,
    targets: Targets,
    *,
    reduction: Literal["mean", "sum"] = "mean",
    keep_texts_without_positive: bool = False,
) -> LossGrad:
    """Binary cross-entropy on logits with soft targets.

    Formula, over pairs that are not ignored, with y_ip the target and 0 for a negative::

        b_ip  = softplus(s_ip) - y_ip s_ip = y_ip softplus(-s_ip) + (1 - y_ip) softplus(s_ip)
        value = sum_ip b_ip / c                      c = number of pairs ("mean") or of texts ("sum")
        d value / d s_ip = (sigmoid(s_ip) - y_ip) / c

    Args:
        scores_BP: B x P logits; consumed, their memory holds the gradient afterwards.
        targets: the positive and ignored pairs. A target of 0 (a positive that was not drawn) is ignored.
        reduction: "mean" over pairs, or "sum" over the labels of a text and mean over texts.
        keep_texts_without_positive: whether a text without a positive counts with its negatives. Other losses have
            nothing to say about such a text, so it is left out unless it is asked for.

    References: UniDEC adds the mean over the pool to the loss of its classifier; Renee sums over all labels, because
    a mean over many labels leaves too small a gradient; DEXML's baseline is the mean over all labels.

    Relations: "sum" is "mean" times the number of labels when no pair is ignored.

    >>> value, gradient = bce(torch.tensor([[2.0, 0.0]]), Targets.of([0], [0], [0.5], shape=(1, 2)))
    >>> value, gradient
    (tensor(0.9100), tensor([[0.1904, 0.2500]]))
    """
    check_scores(scores_BP, targets)
    if reduction not in ("mean", "sum"):
        raise ValueError(f'reduction must be "mean" or "sum", but is {reduction!r}')
    if scores_BP.numel() == 0:
        return LossGrad(scores_BP.sum(), scores_BP)
    rows, columns, dtype = targets.rows, targets.columns, scores_BP.dtype
    positives_M, targets_M = scores_BP[rows, columns], targets.weights.to(dtype)
    drawn_M = (targets_M > 0).to(dtype)

    kept_B = torch.ones_like(scores_BP[:, 0]) if keep_texts_without_positive else (targets.totals(dtype) > 0).to(dtype)
    count = (kept_B * _num_pairs(targets, drawn_M)).sum() if reduction == "mean" else kept_B.sum()
    factors_B = kept_B / count.clamp_min(1)
    factors_M = factors_B[rows] * drawn_M

    # Positives are taken out and reckoned alone: softplus(s) - s of a large score would lose all its digits.
    # At -inf both softplus and sigmoid are exactly 0.
    scores_BP[rows, columns] = -torch.inf
    scores_BP[targets.ignored_rows, targets.ignored_columns] = -torch.inf
    size = max(1, BLOCK // scores_BP.shape[1])
    value = (factors_M * (targets_M * softplus(-positives_M) + (1 - targets_M) * softplus(positives_M))).sum()
    for start in range(0, scores_BP.shape[0], size):
        block_bP, factors_b = scores_BP[start : start + size], factors_B[start : start + size]
        value = value + (softplus(block_bP).sum(1) * factors_b).sum()
    scores_BP.sigmoid_().mul_(factors_B[:, None])
    scores_BP[rows, columns] = factors_M * (
        (1 - targets_M) * torch.sigmoid(positives_M) - targets_M * torch.sigmoid(-positives_M)
    )
    return LossGrad(value, scores_BP)


def _num_pairs(targets: Targets, drawn_M: Tensor) -> Tensor:
    """The number of pairs of each text that are not ignored, B."""
    num_texts, num_labels = targets.shape
    counts_B = torch.full((num_texts,), float(num_labels), dtype=drawn_M.dtype, device=drawn_M.device)
    counts_B.index_add_(0, targets.rows, drawn_M - 1)
    return counts_B.index_add_(0, targets.ignored_rows, torch.full_like(targets.ignored_rows, -1).to(drawn_M.dtype))


def softplus(scores: Tensor) -> Tensor:
    """log(1 + exp(scores)), exact to the last digit in float64 too."""
    # Above 40, softplus(x) is x in float64 as well; torch's own threshold of 20 is 2e-9 off there.
    return F.softplus(scores, threshold=40)
