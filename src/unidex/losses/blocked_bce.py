"""Binary cross-entropy over all labels, block by block.

Shapes: B texts, L labels of this process, l labels of a block, b texts of a chunk, D dimensions, M positive pairs, m of
them in a block.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

import torch
from torch import Tensor

from unidex.losses.bce import bce, softplus
from unidex.losses.blocked import Products, check_sides, in_blocks
from unidex.losses.blocks import ALONE, BlockedGrad, Ranks, Sink
from unidex.losses.registry import RegisteredLoss, register
from unidex.losses.targets import Targets

# The temporary of the value has at most this many numbers, or one text's.
CHUNK = 1 << 17


@torch.no_grad()
def blocked_bce(
    texts_BD: Tensor,
    labels_LD: Tensor,
    scale: Tensor,
    targets: Targets,
    *,
    reduction: Literal["sum", "mean"] = "sum",
    keep_texts_without_positive: bool = False,
    block_size: int | None = None,
    ranks: Ranks = ALONE,
    sink: Sink | None = None,
) -> BlockedGrad:
    """Binary cross-entropy over all labels; its scores exist one block of labels at a time.

    Formula, with S = scale texts labels^T over the labels of all processes::

        value = bce(S, Y)

    A pair needs to know nothing of the others, so one pass over the blocks does: three matrix products.

    Memory, in numbers, besides arguments and results: B l for the scores of a block of l labels and at most
    max(2^17, l) for the value of some of its texts; 3 B D for texts and their gradient; about ten a pair of the
    targets; l D for the gradient of a block that goes to a sink.

    Args:
        texts_BD: B x D.
        labels_LD: L x D, the labels of this process.
        scale: without dimensions; the inverse of the temperature.
        targets: the positive and ignored pairs of the B texts and the L labels of this process. A target of 0 (a
            positive that was not drawn) is ignored.
        reduction: "sum" over the labels of a text and mean over texts, or "mean" over pairs.
        keep_texts_without_positive: whether a text without a positive counts with its negatives.
        block_size: the most labels of a block; chosen by the number of texts and dimensions where there is none.
        ranks: the processes that hold other labels of the same texts.
        sink: takes the gradient of the labels block by block.

    References: Renee sums over all labels and never keeps the scores for a backward pass.

    Relations: equals `bce` on the whole matrix.

    >>> texts, labels = torch.tensor([[2.0, 0.0]]), torch.eye(2)
    >>> blocked_bce(texts, labels, torch.tensor(1.0), Targets.of([0], [0], [0.5], shape=(1, 2)), block_size=1)
    BlockedGrad(value=tensor(1.8201), texts_BD=tensor([[0.3808, 0.5000]]), labels_LD=tensor([[0.7616, 0.0000],
                [1.0000, 0.0000]]), scale=tensor(0.7616))
    """
    check_sides(texts_BD, labels_LD, scale, targets)
    if reduction not in ("mean", "sum"):
        raise ValueError(f'reduction must be "mean" or "sum", but is {reduction!r}')
    targets, blocks = in_blocks(targets, block_size, texts_BD.shape[1])
    products = Products(texts_BD, labels_LD, scale, blocks, sink=sink)
    factors_B = _factors(targets, texts_BD.dtype, reduction, keep_texts_without_positive, ranks)
    value = texts_BD.new_zeros(())
    for block in blocks:
        rows, columns = block.targets.rows, block.targets.columns
        scores_Bl = products.scores(block)
        positives_m, targets_m = scores_Bl[rows, columns], block.targets.weights.to(texts_BD.dtype)
        factors_m = factors_B[rows] * (targets_m > 0)

        # As in `bce`: positives are taken out and reckoned alone, and at -inf both softplus and sigmoid are 0.
        scores_Bl[rows, columns] = -torch.inf
        scores_Bl[block.targets.ignored_rows, block.targets.ignored_columns] = -torch.inf
        value = (
            value + (factors_m * (targets_m * softplus(-positives_m) + (1 - targets_m) * softplus(positives_m))).sum()
        )
        size = max(1, CHUNK // scores_Bl.shape[1])
        for start in range(0, len(scores_Bl), size):
            sums_b = softplus(scores_Bl[start : start + size]).sum(1)
            value = value + (sums_b * factors_B[start : start + size]).sum()
        scores_Bl.sigmoid_().mul_(factors_B[:, None])
        scores_Bl[rows, columns] = factors_m * (
            (1 - targets_m) * torch.sigmoid(positives_m) - targets_m * torch.sigmoid(-positives_m)
        )
        products.add(block, scores_Bl)
    return products.result(ranks.sum_(value))


def _factors(
    targets: Targets, dtype: torch.dtype, reduction: str, keep_texts_without_positive: bool, ranks: Ranks
) -> Tensor:
    """What each pair of a text weighs, B: 0 for a text that is left out, over the number of pairs or of texts."""
    totals_B = targets.totals(dtype)
    left_out_M = (targets.weights == 0).to(dtype)
    left_out_I = torch.ones_like(targets.ignored_rows, dtype=dtype)
    pairs_B = torch.full_like(totals_B, targets.shape[1])
    pairs_B.index_add_(0, targets.rows, left_out_M, alpha=-1).index_add_(0, targets.ignored_rows, left_out_I, alpha=-1)
    totals_B, pairs_B = ranks.sum_(torch.stack([totals_B, pairs_B]))
    kept_B = torch.ones_like(totals_B) if keep_texts_without_positive else (totals_B > 0).to(dtype)
    return kept_B / ((kept_B * pairs_B).sum() if reduction == "mean" else kept_B.sum()).clamp_min(1)


register(
    RegisteredLoss(
        "bce",
        dense=lambda settings: partial(bce, reduction=settings.bce_reduction),
        blocked=lambda settings: partial(blocked_bce, reduction=settings.bce_reduction),
        settings=("bce_reduction",),
    )
)
