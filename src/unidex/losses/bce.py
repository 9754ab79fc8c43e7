"""Binary cross-entropy: every pair of a text and a label is a question of its own.

Shapes: B texts, P labels in the pool, L labels of this process, l labels of a block, b texts of a chunk, D dimensions,
M positive pairs.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812  # the name everybody knows it by
from torch import Tensor

from unidex.distributed import ALONE, Processes
from unidex.losses.blocks import Block, LabelBlocks, LastPass
from unidex.losses.gradient import LossGrad, check_scores
from unidex.losses.registry import register_with_options
from unidex.losses.targets import Targets

Reduction = Literal["mean", "sum"]

# The temporary of the value has at most this many numbers, or one text's.
CHUNK = 1 << 17


def bce(
    scores_BP: Tensor,
    targets: Targets,
    *,
    reduction: Reduction = "mean",
    keep_texts_without_positive: bool = False,
) -> LossGrad:
    """Binary cross-entropy on logits with soft targets.

    Formula, over pairs that are not ignored, with y_ip the target and 0 for a negative::

        b_ip  = softplus(s_ip) - y_ip s_ip = y_ip softplus(-s_ip) + (1 - y_ip) softplus(s_ip)
        value = sum_ip b_ip / c                      c = number of pairs ("mean") or of texts ("sum")
        d value / d s_ip = (sigmoid(s_ip) - y_ip) / c

    Args:
        scores_BP: logits; consumed, as by every loss.
        targets: the positive and ignored pairs. A target of 0 (a positive that was not drawn) is ignored.
        reduction: "mean" over pairs, or "sum" over the labels of a text and mean over texts.
        keep_texts_without_positive: whether a text without a positive counts with its negatives. Other losses leave
            such a text out, and so does this one by default.

    References: UniDEC adds the mean over the pool to the loss of its classifier; Renee sums over all labels, because
    a mean over many labels leaves too small a gradient; DEXML's baseline is the mean over all labels.

    Relations: "sum" is "mean" times the number of labels when no pair is ignored.

    >>> value, gradient = bce(torch.tensor([[2.0, 0.0]]), Targets.of([0], [0], [0.5], shape=(1, 2)))
    >>> value, gradient
    (tensor(0.9100), tensor([[0.1904, 0.2500]]))
    """
    check_scores(scores_BP, targets)
    factors_B = _factors(targets, scores_BP.dtype, reduction, keep_texts_without_positive, ALONE)
    return LossGrad(_differentiate_(scores_BP, targets, factors_B), scores_BP)


class BlockedBce(LastPass):
    """`bce` over all labels, block by block.

    A pair does not depend on the others, so the last pass is the only one: three matrix products.

    Memory, in numbers, besides that of `run_blocked`: at most max(2^17, l) for the value of some texts of a block.

    References: Renee sums over all labels and never keeps the scores for a backward pass.
    """

    def __init__(
        self, labels: LabelBlocks, *, reduction: Reduction = "mean", keep_texts_without_positive: bool = False
    ) -> None:
        self._factors_B = _factors(labels.targets, labels.dtype, reduction, keep_texts_without_positive, labels.ranks)
        self._value = self._factors_B.new_zeros(())

    def gradient_(self, scores_Bl: Tensor | None, block: Block) -> Tensor:
        """The gradient of a block, in the memory of its scores."""
        assert scores_Bl is not None
        self._value = self._value + _differentiate_(scores_Bl, block.targets, self._factors_B)
        return scores_Bl

    def value(self) -> Tensor:
        """The value over the labels of this process."""
        return self._value


def softplus(scores: Tensor) -> Tensor:
    """log(1 + exp(scores)), exact to the last digit in float64 too.

    >>> softplus(torch.tensor([0.0, 100.0]))
    tensor([  0.6931, 100.0000])
    """
    # Above 40, softplus(x) is x in float64 as well; torch's own threshold of 20 is 2e-9 off there.
    return F.softplus(scores, threshold=40)


def _factors(
    targets: Targets, dtype: torch.dtype, reduction: Reduction, keep_texts_without_positive: bool, ranks: Processes
) -> Tensor:
    """The weight of each pair of a text, B: 0 for a text that is left out, else 1 over the number of pairs or texts."""
    if reduction not in ("mean", "sum"):
        raise ValueError(f'reduction must be "mean" or "sum", but is {reduction!r}')
    totals_B = targets.totals(dtype)
    left_out_M = (targets.weights == 0).to(dtype)
    left_out_I = torch.ones_like(targets.ignored_rows, dtype=dtype)
    pairs_B = torch.full_like(totals_B, targets.shape[1])
    pairs_B.index_add_(0, targets.rows, left_out_M, alpha=-1).index_add_(0, targets.ignored_rows, left_out_I, alpha=-1)
    totals_B, pairs_B = ranks.sum_(torch.stack([totals_B, pairs_B]))
    kept_B = torch.ones_like(totals_B) if keep_texts_without_positive else (totals_B > 0).to(dtype)
    return kept_B / ((kept_B * pairs_B).sum() if reduction == "mean" else kept_B.sum()).clamp_min(1)


def _differentiate_(scores_BP: Tensor, targets: Targets, factors_B: Tensor) -> Tensor:
    """The value; the scores become the gradient, in place."""
    rows, columns, dtype = targets.rows, targets.columns, scores_BP.dtype
    positives_M, targets_M = scores_BP[rows, columns], targets.weights.to(dtype)
    factors_M = factors_B[rows] * (targets_M > 0)
    # Positives are taken out and computed alone: softplus(s) - s of a large score would lose all its digits.
    # At -inf both softplus and sigmoid are exactly 0.
    scores_BP[rows, columns] = -torch.inf
    scores_BP[targets.ignored_rows, targets.ignored_columns] = -torch.inf
    value = (factors_M * (targets_M * softplus(-positives_M) + (1 - targets_M) * softplus(positives_M))).sum()
    size = max(1, CHUNK // max(1, scores_BP.shape[1]))
    for start in range(0, len(scores_BP), size):
        sums_b = softplus(scores_BP[start : start + size]).sum(1)
        value = value + (sums_b * factors_B[start : start + size]).sum()
    scores_BP.sigmoid_().mul_(factors_B[:, None])
    scores_BP[rows, columns] = factors_M * (
        (1 - targets_M) * torch.sigmoid(positives_M) - targets_M * torch.sigmoid(-positives_M)
    )
    return value


register_with_options("bce", bce, BlockedBce, {"reduction": "bce_reduction"})
