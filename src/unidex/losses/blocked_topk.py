"""The soft top-k loss over all labels, block by block.

Shapes: B texts, L labels of this process, l labels of a block, D dimensions, M positive pairs, H highest scores
per text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from unidex.distributed import Processes
from unidex.losses.blocks import Block, LabelBlocks, LastPass
from unidex.losses.registry import RegisteredLoss, register
from unidex.losses.soft_topk import check_options, num_positives, pulls, push_, push_factors, soft_topk_loss
from unidex.losses.softmax import finite_or_zero
from unidex.losses.targets import Targets, draw_positives
from unidex.losses.topk_threshold import LOG_2, NUM_STEPS, TOLERANCE, Cut, Threshold, exponentials_, odds_sums, solve

# The minimum number of highest scores kept per text. A label below the H highest has a p of at most k / H, and is
# summed as if p were small.
NUM_HIGHEST = 64


class BlockedSoftTopk(LastPass):
    """`soft_topk_loss` over all labels, block by block.

    Each pass over the blocks computes the scores again. The first keeps, of each text, its H highest scores with
    their labels (H is 64, or 2 k if that is more) and the sum of the exponentials of all others. These give almost
    the threshold, since a label below the H highest has a small p, which is then its odds. From there each step of
    Newton's method takes a pass, for the two sums of `solve`: mostly two in float32, three in float64. Whether another
    pass is needed is decided on values of all processes, so that each takes as many.

    Memory, in numbers, besides that of `run_blocked`: B l more for a block of l labels; about 10 B H; 6 values per
    positive.

    References: DEXML (arXiv 2310.10636, section 4.3) computes the same from the whole matrix of scores, with 32 steps
    of bisection.
    """

    def __init__(self, labels: LabelBlocks, *, k: int | Literal["positives"] = 5, alpha: float = 2.0) -> None:
        check_options(k, alpha)
        # Scores are held in bits, alpha s / log 2, so that alpha takes no pass over them.
        self.unit = LOG_2 / alpha
        ranks = labels.ranks
        targets, self._blocks = labels.split(_without_undrawn(labels.targets))
        totals_B = ranks.sum_(targets.totals(torch.float64))
        num_labels = int(ranks.sum_(torch.tensor(targets.shape[1], device=totals_B.device)))
        k_B = torch.full_like(totals_B, k) if isinstance(k, int) else num_positives(totals_B)
        k_B = k_B.long().clamp_max_(max(1, num_labels))

        first = _first_pass(labels, self._blocks, self.unit, max(NUM_HIGHEST, 2 * int(k_B.max())))
        self._cut = cut = Cut.of(_highest(first.highest_BH, int(k_B.max()) + 1, ranks), k_B, LOG_2)
        top, self._top_blocks = labels.split(_top_pairs(first, cut, targets))
        threshold = self._threshold(labels, first)

        rows = targets.rows
        shares_M = targets.weights.double() / totals_B[rows] / (totals_B > 0).sum()
        self._value, self._pulls_M = pulls(shares_M, threshold.logits(first.positives_M, rows, cut, LOG_2), alpha)
        pulls_B = ranks.sum_(torch.zeros_like(totals_B).index_add_(0, rows, self._pulls_M))
        self._q_B, m_B = threshold.odds(cut)
        self._others_B, top_B = push_factors(cut, threshold, pulls_B)
        self._top_M = push_(top.weights, m_B[top.rows], top_B[top.rows]).to(labels.dtype)

    def gradient_(self, scores_Bl: Tensor | None, block: Block) -> Tensor:
        """The gradient of a block, in the memory of its scores."""
        assert scores_Bl is not None
        own, top = self._blocks[block.number], self._top_blocks[block.number]
        ratios_Bl = self._ratios_(scores_Bl, top)
        grad_Bl = push_(ratios_Bl, self._q_B[:, None], self._others_B[:, None])
        grad_Bl[top.targets.rows, top.targets.columns] = self._top_M[top.positives]
        grad_Bl[own.targets.rows, own.targets.columns] -= self._pulls_M[own.positives].to(grad_Bl.dtype)
        return grad_Bl

    def value(self) -> Tensor:
        """The value over the positives of this process."""
        return self._value.to(self._top_M.dtype)

    def _ratios_(self, scores_Bl: Tensor, top: Block) -> Tensor:
        """The ratios of the others in a block, B x l, in place of its scores; 0 for the top k and ignored pairs."""
        scores_Bl[top.targets.rows, top.targets.columns] = -torch.inf
        scores_Bl[top.targets.ignored_rows, top.targets.ignored_columns] = -torch.inf
        return exponentials_(scores_Bl, self._cut.next_B, LOG_2)

    def _threshold(self, labels: LabelBlocks, first: _First) -> Threshold:
        """Newton's method, first on the scores that the first pass has kept, then on passes over all labels."""
        cut, ranks = self._cut, labels.ranks
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
            for block in self._top_blocks:
                ratios_Bl = self._ratios_(labels.scores(block, self.unit), block)
                found_2B += torch.stack(odds_sums(ratios_Bl, q_B, out=ratios_Bl))
            return ranks.sum_(torch.cat([found_2B, torch.stack(odds_sums(top_ratios_BH, m_B))]))

        def is_close(tolerance: float) -> Callable[[Tensor], bool]:
            # What is not a number will not become one. The processes decide together: each takes as many passes.
            return lambda errors_B: not bool(ranks.max_(errors_B.max()) > tolerance)

        start = solve(cut, sums_of_kept, is_close(1e-4), num_steps=NUM_STEPS)
        tolerance = TOLERANCE[first.highest_BH.dtype]
        return solve(cut, sums_of_all, is_close(tolerance), num_steps=NUM_STEPS, start_B=start.offset_B)


class _First(NamedTuple):
    """What the first pass keeps. Scores are in bits."""

    highest_BH: Tensor  # the H highest scores of each text among the labels of this process, highest first
    columns_BH: Tensor  # their labels
    log_others_B: Tensor  # float64, the binary logarithm of the sum of 2^score over all other labels of this process
    positives_M: Tensor  # the scores of the positives


def _first_pass(labels: LabelBlocks, blocks: list[Block], unit: float, num_highest: int) -> _First:
    highest_BH = labels.texts_BD.new_full((len(labels.texts_BD), num_highest), -torch.inf)
    columns_BH = torch.zeros_like(highest_BH, dtype=torch.int64)
    log_others_B = torch.full_like(highest_BH[:, 0], -torch.inf, dtype=torch.float64)
    positives_M = highest_BH.new_empty(sum(block.targets.num_positives for block in blocks))
    for block in blocks:
        pairs = block.targets
        scores_Bl = labels.scores(block, unit)
        scores_Bl[pairs.ignored_rows, pairs.ignored_columns] = -torch.inf
        positives_M[block.positives] = scores_Bl[pairs.rows, pairs.columns]
        found_BH, places_BH = scores_Bl.topk(min(num_highest, pairs.shape[1]), dim=1)
        lowest_B = finite_or_zero(found_BH[:, -1])
        scores_Bl.scatter_(1, places_BH, -torch.inf)
        sums_B = exponentials_(scores_Bl, lowest_B, LOG_2).sum(1)
        log_others_B = torch.logaddexp2(log_others_B, sums_B.log2().double() + lowest_B.double())
        # The highest of the block against the highest of the blocks before it; the losers join the others.
        both_B2H = torch.cat([highest_BH, found_BH], dim=1)
        both_columns_B2H = torch.cat([columns_BH, places_BH + block.labels.start], dim=1)
        highest_BH, kept_BH = both_B2H.topk(num_highest, dim=1)
        columns_BH = both_columns_B2H.gather(1, kept_BH)
        losers_B2H = both_B2H.double().mul_(LOG_2).scatter_(1, kept_BH, -torch.inf)
        log_others_B = torch.logaddexp2(log_others_B, losers_B2H.logsumexp(1) / LOG_2)
    return _First(highest_BH, columns_BH, log_others_B, positives_M)


def _highest(highest_BH: Tensor, count: int, ranks: Processes) -> Tensor:
    """The highest scores of each text over all processes."""
    highest_BK = ranks.gather(highest_BH[:, :count].T).T.topk(count, dim=1).values
    # Where a score is not a number, it counts as the highest, and the loss must not be a number either.
    return torch.where(highest_BK[:, :1].isnan(), torch.nan, highest_BK)


def _top_pairs(first: _First, cut: Cut, targets: Targets) -> Targets:
    """The labels of this process among the top k, with their ratios as weights, and the ignored pairs."""
    is_top_BH = cut.above(first.highest_BH)
    rows, places = is_top_BH.nonzero(as_tuple=True)
    ratios_M = cut.top_ratios(first.highest_BH, is_top_BH, LOG_2)[rows, places]
    return replace(targets, rows=rows, columns=first.columns_BH[rows, places], weights=ratios_M)


def _without_undrawn(targets: Targets) -> Targets:
    """Positives that were not drawn become ignored pairs."""
    is_drawn_M = targets.weights > 0
    return replace(
        targets.take(is_drawn_M, slice(None)),
        ignored_rows=torch.cat([targets.ignored_rows, targets.rows[~is_drawn_M]]),
        ignored_columns=torch.cat([targets.ignored_columns, targets.columns[~is_drawn_M]]),
    )


register(
    RegisteredLoss(
        "soft-top-k",
        dense=lambda settings: partial(soft_topk_loss, k=settings.k or "positives", alpha=settings.alpha),
        blocked=lambda settings: partial(BlockedSoftTopk, k=settings.k or "positives", alpha=settings.alpha),
        settings=("k", "alpha"),
        sample=lambda targets, settings, generator: (
            draw_positives(targets, settings.k, generator) if settings.k else targets
        ),
    )
)
