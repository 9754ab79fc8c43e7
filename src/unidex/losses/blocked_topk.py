"""The soft top-k loss over all labels, block by block.

Shapes: B texts, L labels of this process, l labels of a block, D dimensions, M positive pairs, H highest scores a text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812  # the name everybody knows it by
from torch import Tensor

from unidex.losses.blocked import Block, Products, check_sides, in_blocks
from unidex.losses.blocks import ALONE, BlockedGrad, Ranks, Sink
from unidex.losses.registry import RegisteredLoss, register
from unidex.losses.soft_topk import (
    check_options,
    num_positives,
    pulls,
    push_,
    push_factors,
    soft_topk_loss,
)
from unidex.losses.softmax import finite_or_zero
from unidex.losses.targets import Targets, draw_positives
from unidex.losses.topk_threshold import LOG_2, NUM_STEPS, TOLERANCE, Cut, Threshold, exponentials_, odds_sums, solve

# How many of its highest scores are kept of each text at least. What is below the H highest has a p of at most k / H,
# and may be summed as if p were small.
NUM_HIGHEST = 64


@torch.no_grad()
def blocked_soft_topk(
    texts_BD: Tensor,
    labels_LD: Tensor,
    scale: Tensor,
    targets: Targets,
    *,
    k: int | Literal["positives"] = 5,
    alpha: float = 2.0,
    block_size: int | None = None,
    ranks: Ranks = ALONE,
    sink: Sink | None = None,
) -> BlockedGrad:
    """The soft top-k loss over all labels; its scores exist one block of labels at a time.

    Formula, with S = scale texts labels^T over the labels of all processes::

        value = soft_topk_loss(S, Y)

    Each pass over the blocks computes the scores again. The first keeps, of each text, its H highest scores with
    their labels (H is 64, or 2 k if that is more) and the sum of the exponentials of all others. These give
    the threshold almost, since a label below the H highest has a small p, which is then its odds. From there each step
    of Newton's method takes a pass, for the two sums of `thresholds`: mostly two in float32, three in float64. The last
    pass turns scores into the gradient and that into the gradients of both sides.

    Memory, in numbers, besides arguments and results: 2 B l for a block of l labels; 3 B D for texts and their
    gradient; about 10 B H; 6 values a positive; l D for the gradient of a block that goes to a sink.

    Args:
        texts_BD: B x D.
        labels_LD: L x D, the labels of this process.
        scale: without dimensions; the inverse of the temperature.
        targets: the positive and ignored pairs of the B texts and the L labels of this process. A target of 0 (a
            positive that was not drawn, see `draw_positives`) takes no part, as an ignored pair.
        k: how many labels are chosen; "positives" for ceil(sum_p y_ip) over the labels of all processes, at least 1.
        alpha: how sharp the choice is.
        block_size: the most labels of a block; chosen by the number of texts and dimensions where there is none.
        ranks: the processes that hold other labels of the same texts. Whether another pass is needed is decided on
            values of all of them, so that each takes as many.
        sink: takes the gradient of the labels block by block, first block first.

    References: DEXML (arXiv 2310.10636, section 4.3) computes the same from the whole matrix of scores, with 32 steps
    of bisection.

    Relations: equals `soft_topk_loss` on the whole matrix.

    >>> texts, labels = torch.tensor([[3.0, 1.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> targets = Targets.of([0], [1], shape=(1, 3))
    >>> blocked_soft_topk(texts, labels, torch.tensor(1.0), targets, k=1, block_size=2)
    BlockedGrad(value=tensor(2.1372), texts_BD=tensor([[ 0.8796, -0.9201]]), labels_LD=tensor([[ 2.6389,  0.8796],
                [-2.6996, -0.8999], [ 0.0607,  0.0202]]), scale=tensor(1.7187))
    """
    check_sides(texts_BD, labels_LD, scale, targets)
    check_options(k, alpha)
    dtype = texts_BD.dtype
    targets, blocks = in_blocks(_undrawn_ignored(targets), block_size, texts_BD.shape[1])
    # Scores are held in bits, alpha s / log 2, so that alpha takes no pass over them.
    products = Products(texts_BD, labels_LD, scale, blocks, unit=LOG_2 / alpha, sink=sink)
    if len(texts_BD) == 0:
        for block in blocks:
            products.add(block, products.scores(block))
        return products.result(texts_BD.new_zeros(()))
    totals_B = ranks.sum_(targets.totals(torch.float64))
    num_labels = int(ranks.sum_(torch.tensor(len(labels_LD), device=texts_BD.device)))
    k_B = (
        (torch.full_like(totals_B, k) if isinstance(k, int) else num_positives(totals_B)).long().clamp_max_(num_labels)
    )

    first = _first_pass(products, blocks, targets, max(NUM_HIGHEST, 2 * int(k_B.max())), texts_BD)
    cut = Cut.of(*_kth_highest(first.highest_BH, k_B, ranks), k_B, LOG_2)
    top, top_blocks = in_blocks(_top_pairs(first, cut, targets), block_size, texts_BD.shape[1])
    threshold = _threshold(products, top_blocks, first, cut, ranks)

    rows = targets.rows
    shares_M = targets.weights.double() / totals_B[rows] / (totals_B > 0).sum()
    value, pulls_M = pulls(shares_M, threshold.logits(first.positives_M, rows, cut, LOG_2), alpha)
    sums = ranks.sum_(torch.cat([value[None], torch.zeros_like(totals_B).index_add_(0, rows, pulls_M)]))
    q_B, m_B = threshold.odds(cut)
    others_B, top_B = push_factors(cut, threshold, sums[1:])
    top_M = push_(top.weights, m_B[top.rows], top_B[top.rows]).to(dtype)
    for block, top_block in zip(blocks, top_blocks, strict=True):
        grad_Bl = push_(_ratios(products, top_block, cut), q_B[:, None], others_B[:, None])
        grad_Bl[top_block.targets.rows, top_block.targets.columns] = top_M[top_block.positives]
        grad_Bl[block.targets.rows, block.targets.columns] -= pulls_M[block.positives].to(dtype)
        products.add(block, grad_Bl)
    return products.result(sums[0].to(dtype))


class _First(NamedTuple):
    """What the first pass keeps. Scores are in bits.

    Attributes:
        highest_BH: the H highest scores of each text among the labels of this process, highest first.
        columns_BH: their labels.
        log_others_B: float64, the binary logarithm of the sum of 2^score over all other labels of this process.
        positives_M: the scores of the positives.
    """

    highest_BH: Tensor
    columns_BH: Tensor
    log_others_B: Tensor
    positives_M: Tensor


def _first_pass(
    products: Products, blocks: list[Block], targets: Targets, num_highest: int, texts_BD: Tensor
) -> _First:
    highest_BH = texts_BD.new_full((len(texts_BD), num_highest), -torch.inf)
    columns_BH = torch.zeros_like(highest_BH, dtype=torch.int64)
    log_others_B = torch.full_like(highest_BH[:, 0], -torch.inf, dtype=torch.float64)
    positives_M = texts_BD.new_empty(targets.num_positives)
    for block in blocks:
        pairs = block.targets
        scores_Bl = products.scores(block)
        scores_Bl[pairs.ignored_rows, pairs.ignored_columns] = -torch.inf
        positives_M[block.positives] = scores_Bl[pairs.rows, pairs.columns]
        found_BH, places_BH = scores_Bl.topk(min(num_highest, pairs.shape[1]), dim=1)
        lowest_B = finite_or_zero(found_BH[:, -1])
        scores_Bl.scatter_(1, places_BH, -torch.inf)
        sums_B = exponentials_(scores_Bl, lowest_B, LOG_2).sum(1)
        log_others_B = torch.logaddexp2(log_others_B, sums_B.log2().double() + lowest_B.double())
        # The best of the block against the best of those before it; who loses joins the others.
        both_B2H = torch.cat([highest_BH, found_BH], dim=1)
        both_columns_B2H = torch.cat([columns_BH, places_BH + block.labels.start], dim=1)
        highest_BH, kept_BH = both_B2H.topk(num_highest, dim=1)
        columns_BH = both_columns_B2H.gather(1, kept_BH)
        losers_B2H = both_B2H.double().mul_(LOG_2).scatter_(1, kept_BH, -torch.inf)
        log_others_B = torch.logaddexp2(log_others_B, losers_B2H.logsumexp(1) / LOG_2)
    return _First(highest_BH, columns_BH, log_others_B, positives_M)


def _kth_highest(highest_BH: Tensor, k_B: Tensor, ranks: Ranks) -> tuple[Tensor, Tensor, Tensor]:
    """The k-th highest score of each text over all processes, the one after it, and how many are above that one.

    All processes go down the different scores of a text together, from the highest, and count. That is a few numbers
    a text at most k + 1 times, small beside a pass over the labels.
    """
    num_highest = highest_BH.shape[1]
    ascending_BH = highest_BH.flip(1).contiguous()
    padded_BH = F.pad(highest_BH, (0, 1), value=-torch.inf)
    num_mine_B, num_above_B, counts_B = torch.zeros_like(k_B), torch.zeros_like(k_B), torch.zeros_like(k_B)
    # Where scores are not numbers, nothing is ever found, and the loss must not be a number either.
    kth_B = torch.full_like(highest_BH[:, 0], torch.nan)
    next_B = kth_B.clone()
    for _ in range(int(k_B.max()) + 1):
        score_B = ranks.max_(padded_BH.gather(1, num_mine_B[:, None]).squeeze(1))
        num_mine_B = num_highest - torch.searchsorted(ascending_BH, score_B[:, None]).squeeze(1)
        num_so_far_B = ranks.sum_(num_mine_B.clone())
        is_kth_B, is_next_B = (counts_B < k_B) & (num_so_far_B >= k_B), (counts_B <= k_B) & (num_so_far_B > k_B)
        kth_B, next_B = torch.where(is_kth_B, score_B, kth_B), torch.where(is_next_B, score_B, next_B)
        num_above_B = torch.where(is_next_B, counts_B, num_above_B)
        counts_B = num_so_far_B
        if bool((counts_B > k_B).all()):
            break
    return kth_B, next_B, num_above_B


def _top_pairs(first: _First, cut: Cut, targets: Targets) -> Targets:
    """The labels of this process among the top k, with their ratios as weights, and the ignored pairs."""
    is_top_BH = cut.above(first.highest_BH)
    rows, places = is_top_BH.nonzero(as_tuple=True)
    ratios_M = cut.top_ratios(first.highest_BH, is_top_BH, LOG_2)[rows, places]
    return replace(targets, rows=rows, columns=first.columns_BH[rows, places], weights=ratios_M)


def _threshold(products: Products, top_blocks: list[Block], first: _First, cut: Cut, ranks: Ranks) -> Threshold:
    """Newton's method, first on what the first pass has kept, then from there on passes over all labels."""
    is_top_BH = cut.above(first.highest_BH)
    top_ratios_BH = cut.top_ratios(first.highest_BH, is_top_BH, LOG_2)
    next_B = cut.next_B.double()
    ratios_BH = (first.highest_BH.double() - next_B[:, None]).masked_fill_(is_top_BH, -torch.inf).exp2_()
    others_B = (first.log_others_B - next_B).exp2_()

    def sums_of_kept(q_B: Tensor, m_B: Tensor) -> Tensor:
        # For all others, 1 + q e is taken for 1.
        found_2B = torch.stack(odds_sums(ratios_BH, q_B)) + others_B
        return ranks.sum_(torch.cat([found_2B, torch.stack(odds_sums(top_ratios_BH, m_B))]))

    def sums_of_all(q_B: Tensor, m_B: Tensor) -> Tensor:
        found_2B = torch.zeros(2, len(q_B), dtype=torch.float64, device=q_B.device)
        for block in top_blocks:
            ratios_Bl = _ratios(products, block, cut)
            found_2B += torch.stack(odds_sums(ratios_Bl, q_B, out=ratios_Bl))
        return ranks.sum_(torch.cat([found_2B, torch.stack(odds_sums(top_ratios_BH, m_B))]))

    def is_close(tolerance: float) -> Callable[[Tensor], bool]:
        # What is not a number will not become one. All are asked: a last digit must not part the processes.
        return lambda errors_B: not bool(ranks.max_(errors_B.max()) > tolerance)

    start = solve(cut, sums_of_kept, is_close(1e-4), num_steps=NUM_STEPS)
    tolerance = TOLERANCE[first.highest_BH.dtype]
    return solve(cut, sums_of_all, is_close(tolerance), num_steps=NUM_STEPS, start_B=start.offset_B)


def _ratios(products: Products, top_block: Block, cut: Cut) -> Tensor:
    """The ratios of the others in a block, B x l; 0 for the top k and ignored pairs."""
    scores_Bl, pairs = products.scores(top_block), top_block.targets
    scores_Bl[pairs.rows, pairs.columns] = -torch.inf
    scores_Bl[pairs.ignored_rows, pairs.ignored_columns] = -torch.inf
    return exponentials_(scores_Bl, cut.next_B, LOG_2)


def _undrawn_ignored(targets: Targets) -> Targets:
    """Positives that were not drawn become ignored pairs."""
    is_drawn_M = targets.weights > 0
    return Targets(
        targets.rows[is_drawn_M],
        targets.columns[is_drawn_M],
        targets.weights[is_drawn_M],
        torch.cat([targets.ignored_rows, targets.rows[~is_drawn_M]]),
        torch.cat([targets.ignored_columns, targets.columns[~is_drawn_M]]),
        targets.shape,
    )


register(
    RegisteredLoss(
        "soft-top-k",
        dense=lambda settings: partial(soft_topk_loss, k=settings.k or "positives", alpha=settings.alpha),
        blocked=lambda settings: partial(blocked_soft_topk, k=settings.k or "positives", alpha=settings.alpha),
        settings=("k", "alpha"),
        sample=lambda targets, settings, generator: (
            draw_positives(targets, settings.k, generator) if settings.k else targets
        ),
    )
)
