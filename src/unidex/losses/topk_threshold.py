"""Where the k highest scores of a text end, softly: the threshold of the soft top-k operator, and how it is found.

The threshold t of a text solves sum_j sigmoid(alpha (x_j + t)) = k. With z_j = alpha (x_j + t), that is to say that the
k highest scores lack as much as the others have::

    T(t) = sum_{top k} sigmoid(-z_j)  =  R(t) = sum_{others} sigmoid(z_j)

Solved is D(t) = log R(t) - log T(t) = 0. No score of the others is above one of the top k, so the slope of D lies
between alpha and 2 alpha wherever it is taken: |D| / alpha bounds the error of t, and Newton's method cannot diverge.
D keeps its digits where every sigmoid is 0 or 1 to the last of them, and the sum itself says nothing about t.

What is held are odds. With a the k-th highest score, b the next one, and s the offset of t from -(a + b) / 2::

    q   = sigmoid(z_b) / sigmoid(-z_b) = exp( s - alpha (a - b) / 2)     odds of the next one
    m   = sigmoid(-z_a) / sigmoid(z_a) = exp(-s - alpha (a - b) / 2)     odds against the k-th
    e_j = exp(alpha (x_j - b)) for the others, exp(alpha (a - x_j)) for the top k: their ratios to these, at most 1
    R   = q sum_{others} e_j / (1 + q e_j),   T = m sum_{top k} e_j / (1 + m e_j)
    D   = 2 s + log(R / q) - log(T / m)

Scores are only ever subtracted from a or b, so that scores of 10,000 lose no digits to each other.

Shapes: B texts, P labels, K + 1 highest scores per text, N scores of either side.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812  # the name everybody knows it by
from torch import Tensor

# Powers of 2 take half the time of powers of e, as measured on x86.
LOG_2 = math.log(2)

# Six is the maximum that was ever needed. Away from the CPU the plain form takes all of them: whether fewer would do is
# a value to wait for.
NUM_STEPS = 10

# How far D may be from 0.
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12}


class Cut(NamedTuple):
    """Where the k highest scores of each text end."""

    kth_B: Tensor  # the k-th highest score; inf where all are chosen
    next_B: Tensor  # the one after it, equal where there are ties; inf where all are chosen
    num_tied_B: Tensor  # float64, how many of the top k are no higher than the next one
    half_gap_B: Tensor  # float64, alpha (kth - next) / 2
    is_all_B: Tensor  # whether nothing is to be solved: a text with no more than k scores has all of them chosen

    @classmethod
    def of(cls, highest_BK: Tensor, k_B: Tensor, alpha: float) -> Cut:
        """From the highest scores of each text, more than k of them, highest first; -inf where there are fewer."""
        kth_B, next_B = highest_BK.gather(1, torch.stack([k_B - 1, k_B], dim=1)).unbind(1)
        num_above_B = (highest_BK > next_B[:, None]).sum(1)
        is_all_B = next_B == -torch.inf
        half_gap_B = (kth_B.double() - next_B.double()).mul_(alpha / 2).masked_fill_(is_all_B, 0)
        # Below inf, every ratio is 0.
        kth_B, next_B = kth_B.masked_fill(is_all_B, torch.inf), next_B.masked_fill(is_all_B, torch.inf)
        return cls(kth_B, next_B, (k_B - num_above_B).to(torch.float64), half_gap_B, is_all_B)

    def above(self, scores_BN: Tensor) -> Tensor:
        """Which scores are among the top k, B x N bool; those that are tied with the next one count as others."""
        return scores_BN > self.next_B[:, None]

    def top_ratios(self, scores_BN: Tensor, is_top_BN: Tensor, alpha: float) -> Tensor:
        """The ratios e_j of the top k, float64, 0 for the others."""
        differences_BN = self.kth_B[:, None].double() - scores_BN.double()
        return (differences_BN * alpha).masked_fill_(~is_top_BN, -torch.inf).exp_()


class Threshold(NamedTuple):
    """The solution and what the gradient needs of it, all float64."""

    offset_B: Tensor  # s
    others_B: Tensor  # R / q
    top_B: Tensor  # T / m
    slope_B: Tensor  # the slope of D in s, between 1 and 2

    def odds(self, cut: Cut) -> tuple[Tensor, Tensor]:
        """The odds of the next score, q, and those against the k-th, m."""
        return (self.offset_B - cut.half_gap_B).exp_(), (-self.offset_B - cut.half_gap_B).exp_()

    def logits(self, scores_M: Tensor, texts_M: Tensor, cut: Cut, alpha: float) -> Tensor:
        """z_j of some scores, float64; inf where a text has no more than k scores."""
        offset_M, half_gap_M = self.offset_B[texts_M], cut.half_gap_B[texts_M]
        kth_M, next_M, scores_M = cut.kth_B[texts_M].double(), cut.next_B[texts_M].double(), scores_M.double()
        logits_M = torch.where(
            scores_M > next_M,
            (scores_M - kth_M) * alpha + (offset_M + half_gap_M),
            (scores_M - next_M) * alpha + (offset_M - half_gap_M),
        )
        return logits_M.masked_fill_(cut.is_all_B[texts_M], torch.inf)


def exponentials_(scores_BP: Tensor, next_B: Tensor, alpha: float) -> Tensor:
    """exp(alpha (scores - next)) in place, exactly 0 where that is no normal number."""
    # The exponential costs many times as much where its result is not a normal number.
    lowest = math.log2(torch.finfo(scores_BP.dtype).tiny) + 0.1
    scores_BP.sub_(next_B[:, None])
    if alpha != LOG_2:
        scores_BP.mul_(alpha / LOG_2)
    scores_BP.clamp_min_(lowest).exp2_()
    return F.threshold(scores_BP, 2 ** (lowest + 0.1), 0.0, inplace=True)


def odds_sums(ratios_BN: Tensor, odds_B: Tensor, *, out: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """sum_j e_j / (1 + q e_j) and sum_j e_j / (1 + q e_j)^2, float64.

    >>> odds_sums(torch.tensor([[1.0, 0.5]]), torch.tensor([1.0]))
    (tensor([0.8333], dtype=torch.float64), tensor([0.4722], dtype=torch.float64))
    """
    complements_BN = (ratios_BN * odds_B[:, None].to(ratios_BN.dtype)).add_(1).reciprocal_()
    terms_BN = torch.mul(ratios_BN, complements_BN, out=out)
    sums_B = terms_BN.sum(1).double()
    return sums_B, terms_BN.mul_(complements_BN).sum(1).double()


def solve(
    cut: Cut,
    sums: Callable[[Tensor, Tensor], Tensor],
    is_close: Callable[[Tensor], bool],
    *,
    num_steps: int,
    start_B: Tensor | None = None,
) -> Threshold:
    """Newton's method on D, all texts at once.

    Formula, with D' between 1 and 2, so that the root lies between s - D and s - D / 2::

        s <- s - D / D', no further than the bounds found so far allow

    A step that comes back to the same side of the root is held at s - D / 2 of the step before, so the error at least
    halves in two steps; mostly it is squared in one.

    ``sums`` gives, from q and m, the `odds_sums` of the others and of those above the next one, 4 x B; each step calls
    it once. ``is_close`` decides from |D| per text whether to stop. ``start_B`` is the initial s, 0 unless given.
    """
    offset_B = torch.zeros_like(cut.half_gap_B) if start_B is None else start_B
    low_B, high_B = torch.full_like(offset_B, -torch.inf), torch.full_like(offset_B, torch.inf)
    for step in range(num_steps):
        q_B, m_B = (offset_B - cut.half_gap_B).exp_(), (-offset_B - cut.half_gap_B).exp_()
        found_4B = sums(q_B, m_B)
        # Scores tied with the next one were summed as others. As many of them as belong to the top k change sides.
        q_terms_B, m_terms_B = 1 / (1 + q_B), 1 / (1 + m_B)
        moved_4B = torch.stack([-q_terms_B, -(q_terms_B**2), m_terms_B, m_terms_B**2])
        found_4B = torch.where(cut.is_all_B, 1, found_4B + cut.num_tied_B * moved_4B)
        others_B, others_slope_B, top_B, top_slope_B = found_4B
        difference_B = torch.where(cut.is_all_B, 0, 2 * offset_B + others_B.log() - top_B.log())
        slope_B = others_slope_B / others_B + top_slope_B / top_B
        # The sum of the others is a difference where scores are tied, and has that many times the rounding error.
        if step == num_steps - 1 or is_close(difference_B.abs() / (1 + cut.num_tied_B)):
            break
        far_B, near_B = offset_B - difference_B, offset_B - difference_B / 2
        low_B = torch.maximum(low_B, torch.minimum(far_B, near_B))
        high_B = torch.minimum(high_B, torch.maximum(far_B, near_B))
        offset_B = (offset_B - difference_B / slope_B).clamp(low_B, high_B)
    return Threshold(offset_B, others_B, top_B, slope_B)
