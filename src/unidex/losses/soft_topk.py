"""The soft top-k operator, and the loss that wants the positives of a text among its k highest labels.

Shapes: B texts, P labels in the pool, M positive pairs, K + 1 highest scores per text.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812  # the name everybody knows it by
from torch import Tensor
from torch.autograd.function import once_differentiable

from unidex.losses.gradient import LossGrad, check_scores
from unidex.losses.targets import Targets
from unidex.losses.topk_threshold import NUM_STEPS, TOLERANCE, Cut, Threshold, exponentials_, odds_sums, solve

# A temporary of the loss has at most this many numbers.
BLOCK = 1 << 20


def topk_thresholds(scores_BP: Tensor, k: int | Tensor, *, alpha: float = 2.0, num_steps: int = NUM_STEPS) -> Tensor:
    """t_i with sum_j sigmoid(alpha (s_ij + t_i)) = k_i, B; inf for a text with no more than k scores.

    Found by Newton's method on a function whose slope is bounded from both sides (see `thresholds`), where DEXML
    bisects; the scores stay as they are.

    A score of -inf takes no part. ``k`` is how many labels are chosen, one number or one per text (B, int); ``alpha``
    is how sharp the choice is.

    References: DEXML (arXiv 2310.10636, section 4.3).

    >>> topk_thresholds(torch.tensor([[3.0, 1.0, -1.0]]), 1)
    tensor([-2.0058])
    """
    copy_BP = _copy(scores_BP, k, alpha)
    if scores_BP.numel() == 0:
        return scores_BP.new_full((len(scores_BP),), torch.inf)
    cut, threshold, *_ = _find_(copy_BP, k, alpha, num_steps)
    thresholds_B = threshold.offset_B / alpha - (cut.kth_B.double() + cut.next_B.double()) / 2
    return thresholds_B.masked_fill_(cut.is_all_B, torch.inf).to(scores_BP.dtype)


def soft_topk(scores_BP: Tensor, k: int | Tensor, *, alpha: float = 2.0) -> Tensor:
    """How much each label is among the k highest of its text: near 1 for the highest, near 0 for others; the sum is k.

    Formula, with t_i from `topk_thresholds`::

        p_ij = sigmoid(alpha (s_ij + t_i)),   sum_j p_ij = k_i
        v_ij = alpha p_ij (1 - p_ij),   d / d s_ij = g_ij v_ij - v_ij sum_l g_il v_il / sum_l v_il       g comes in

    With no more scores than k, p is 1; a score of -inf takes no part, its p is 0. The order of p is that of the scores.
    As alpha grows, p becomes 1 for the top k and 0 for the others. For the arguments see `topk_thresholds`.

    References: DEXML (arXiv 2310.10636, section 4.3).

    >>> soft_topk(torch.tensor([[3.0, 1.0, -1.0]]), 1)
    tensor([[0.8796, 0.1180, 0.0024]])
    """
    return log_soft_topk(scores_BP, k, alpha=alpha).exp()


def log_soft_topk(scores_BP: Tensor, k: int | Tensor, *, alpha: float = 2.0) -> Tensor:
    """The logarithm of `soft_topk`, which keeps its digits where p itself would be 0.

    Formula, with p and v as there::

        u_ij = g_ij alpha (1 - p_ij),   d / d s_ij = u_ij - v_ij sum_l u_il / sum_l v_il                 g comes in

    >>> log_soft_topk(torch.tensor([[3000.0, 1000.0, -1000.0]]), 1)
    tensor([[    0., -2000., -6000.]])
    """
    result: Tensor = _LogSoftTopK.apply(scores_BP, k, alpha)  # type: ignore[no-untyped-call]
    return result


def soft_topk_loss(
    scores_BP: Tensor, targets: Targets, *, k: int | Literal["positives"] = 5, alpha: float = 2.0
) -> LossGrad:
    """Each positive is to be among the k highest labels of its text; which of the k it is does not matter.

    Formula, with p from `soft_topk` and w_ip = y_ip / sum_p y_ip::

        value = 1/n sum_i sum_p w_ip (-log p_ip)
        d value / d s_ij = (v_ij / sum_l v_il sum_p alpha w_ip (1 - p_ip) - alpha w_ij (1 - p_ij)) / n
        v_ij  = p_ij (1 - p_ij),   w_ij = 0 for negatives

    Args:
        scores_BP: consumed, as by every loss.
        targets: the positive and ignored pairs. A target of 0 (a positive that was not drawn, see `draw_positives`)
            takes no part, as an ignored pair.
        k: how many labels are chosen; "positives" for ceil(sum_p y_ip), at least 1, a number for each text.
        alpha: how sharp the choice is.

    References: DEXML (arXiv 2310.10636, section 4.3).

    Relations: the value goes to 0 when the positives of a text, no more than k, are above all others. The gradient of
    a text adds up to 0. A text with no more than k labels has nothing to learn: value and gradient 0.

    >>> value, gradient = soft_topk_loss(torch.tensor([[3.0, 1.0, -1.0]]), Targets.of([0], [1], shape=(1, 3)), k=1)
    >>> value, gradient
    (tensor(2.1372), tensor([[ 0.8796, -0.8999,  0.0202]]))
    """
    check_scores(scores_BP, targets)
    check_options(k, alpha)
    if scores_BP.numel() == 0:
        return LossGrad(scores_BP.sum(), scores_BP)
    rows, columns, dtype = targets.rows, targets.columns, scores_BP.dtype
    k_B = k if isinstance(k, int) else num_positives(targets.totals(torch.float64))
    positives_M = scores_BP[rows, columns].masked_fill_(targets.weights == 0, -torch.inf)
    scores_BP[rows, columns] = positives_M
    scores_BP[targets.ignored_rows, targets.ignored_columns] = -torch.inf
    found = _find_(scores_BP, k_B, alpha, NUM_STEPS)

    logits_M = found.threshold.logits(positives_M, rows, found.cut, alpha)
    value, pulls_M = pulls(targets.shares(torch.float64), logits_M, alpha)
    pushes_B = torch.zeros_like(found.cut.half_gap_B).index_add_(0, rows, pulls_M)
    q_B, m_B = found.threshold.odds(found.cut)
    others_B, top_B = push_factors(found.cut, found.threshold, pushes_B)
    for block in _blocks(scores_BP):
        push_(scores_BP[block], q_B[block, None], others_B[block, None])
    top_BK, others_BK = push_(found.top_ratios_BK, m_B[:, None], top_B[:, None]), scores_BP.gather(1, found.columns_BK)
    scores_BP.scatter_(1, found.columns_BK, torch.where(found.is_top_BK, top_BK.to(dtype), others_BK))
    scores_BP[rows, columns] -= pulls_M.to(dtype)
    return LossGrad(value.to(dtype), scores_BP)


def check_options(k: int | Tensor | Literal["positives"], alpha: float) -> None:
    """Refuse a number of labels or a sharpness that makes no sense."""
    if isinstance(k, Tensor):
        if k.is_floating_point():
            raise ValueError(f"k must be whole numbers, but is {k.dtype}")
        if k.device.type == "cpu" and len(k) and int(k.min()) < 1:
            raise ValueError(f"k must be at least 1, but is {int(k.min())} for one text")
    elif isinstance(k, str):
        if k != "positives":
            raise ValueError(f'k must be a number or "positives", but is {k!r}')
    elif k < 1:
        raise ValueError(f"k must be at least 1, but is {k}")
    if not alpha > 0:
        raise ValueError(f"alpha must be > 0, but is {alpha}")


def num_positives(totals_B: Tensor) -> Tensor:
    """The sums of targets rounded up, at least 1: what k = "positives" means.

    >>> num_positives(torch.tensor([0.0, 0.3, 1.2, 10 * torch.tensor(0.1).item()], dtype=torch.float64))
    tensor([1, 1, 2, 1])
    """
    # Ten targets of 0.1 are 1, although ten times the float32 next to 0.1 is a little more.
    return (totals_B * (1 - 1e-6)).ceil().clamp_min(1).to(torch.int64)


def pulls(shares_M: Tensor, logits_M: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    """The value of some positives and how hard each pulls, alpha w (1 - p) / n."""
    # A target of 0 has the logit -inf, of which 0 times is not a number.
    values_M = torch.where(shares_M > 0, -shares_M * F.logsigmoid(logits_M), 0)
    return values_M.sum(), alpha * shares_M * torch.sigmoid(-logits_M)


def push_factors(cut: Cut, threshold: Threshold, pushes_B: Tensor) -> tuple[Tensor, Tensor]:
    """What `push_` needs of each text for the others and for the top k, from what its positives pull.

    The gradient of a score is v_ij / sum_l v_il times what the positives pull. As R = T, the sum of v is R times the
    slope of D; R cancels, however small it is.
    """
    pushes_B = torch.where(cut.is_all_B, 0, pushes_B / threshold.slope_B)
    return pushes_B / threshold.others_B, pushes_B / threshold.top_B


def push_(ratios: Tensor, odds: Tensor, factors: Tensor) -> Tensor:
    """Ratios become gradients, e / (1 + q e)^2 times a factor, in place; odds and factors broadcast."""
    complements = (ratios * odds.to(ratios.dtype)).add_(1).reciprocal_()
    return ratios.mul_(complements).mul_(complements).mul_(factors.to(ratios.dtype))


class _Found(NamedTuple):
    """The thresholds of a matrix of scores, and its K + 1 highest scores per text; the scores themselves are ratios."""

    cut: Cut
    threshold: Threshold
    columns_BK: Tensor
    is_top_BK: Tensor
    top_ratios_BK: Tensor


def _find_(scores_BP: Tensor, k: int | Tensor, alpha: float, num_steps: int) -> _Found:
    """Thresholds; the scores become the ratios of the others, with 0 for the top k."""
    num_texts, num_labels = scores_BP.shape
    # The only value that is looked at, where k is one per text: how many of the highest scores are to be kept.
    max_k = min(num_labels, k if isinstance(k, int) else int(k.max()))
    k_B = torch.full((num_texts,), max_k, device=scores_BP.device) if isinstance(k, int) else k.clamp_max(max_k)
    highest_BK, columns_BK = scores_BP.topk(min(max_k + 1, num_labels), dim=1)
    cut = Cut.of(F.pad(highest_BK, (0, 1), value=-torch.inf), k_B, alpha)
    is_top_BK = cut.above(highest_BK)
    ratios_BK = cut.top_ratios(highest_BK, is_top_BK, alpha)
    scores_BP.scatter_(1, columns_BK, torch.where(is_top_BK, -torch.inf, highest_BK))
    parts = [
        _solve_(scores_BP[block], Cut(*(part[block] for part in cut)), ratios_BK[block], alpha, num_steps)
        for block in _blocks(scores_BP)
    ]
    threshold = Threshold(*(torch.cat(part) for part in zip(*parts, strict=True)))
    return _Found(cut, threshold, columns_BK, is_top_BK, ratios_BK)


def _solve_(scores_bP: Tensor, cut: Cut, top_ratios_bK: Tensor, alpha: float, num_steps: int) -> Threshold:
    ratios_bP = exponentials_(scores_bP, cut.next_B, alpha)

    def sums(q_b: Tensor, m_b: Tensor) -> Tensor:
        return torch.stack([*odds_sums(ratios_bP, q_b), *odds_sums(top_ratios_bK, m_b)])

    def is_close(errors_b: Tensor) -> bool:
        # What is not a number will not become one.
        return errors_b.device.type == "cpu" and not bool((errors_b > TOLERANCE[scores_bP.dtype]).any())

    return solve(cut, sums, is_close, num_steps=num_steps)


def _blocks(scores_BP: Tensor) -> list[slice]:
    size = max(1, BLOCK // scores_BP.shape[1])
    return [slice(start, start + size) for start in range(0, scores_BP.shape[0], size)]


def _copy(scores_BP: Tensor, k: int | Tensor, alpha: float) -> Tensor:
    """A copy of scores that can be consumed, after a look at everything that was given."""
    check_options(k, alpha)
    if scores_BP.dim() != 2 or scores_BP.dtype not in (torch.float32, torch.float64):
        raise ValueError(
            "scores must be a matrix of float32 or float64, "
            f"but have the shape {tuple(scores_BP.shape)} and are {scores_BP.dtype}"
        )
    if isinstance(k, Tensor) and k.shape != scores_BP.shape[:1]:
        raise ValueError(f"k must have one number per text ({len(scores_BP)}), but has {tuple(k.shape)}")
    return scores_BP.detach().clone(memory_format=torch.contiguous_format)


class _LogSoftTopK(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores_BP: Tensor, k: int | Tensor, alpha: float) -> Tensor:
        copy_BP = _copy(scores_BP, k, alpha)
        logits_BP = torch.empty_like(copy_BP)
        if scores_BP.numel():
            found = _find_(copy_BP, k, alpha, NUM_STEPS)
            texts_B1 = torch.arange(len(scores_BP), device=scores_BP.device)[:, None]
            logits_BP = found.threshold.logits(scores_BP.detach(), texts_B1, found.cut, alpha).to(scores_BP.dtype)
            logits_BP.masked_fill_(scores_BP == -torch.inf, -torch.inf)
        ctx.save_for_backward(logits_BP)
        ctx.alpha = alpha
        return F.logsigmoid(logits_BP)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BP: Tensor) -> tuple[Tensor, None, None]:
        (logits_BP,) = ctx.saved_tensors
        # v / sum(v) from logarithms: every v may be 0 in float. Where all labels are chosen, all are -inf, and nothing
        # moves.
        shares_BP = torch.softmax(F.logsigmoid(logits_BP) + F.logsigmoid(-logits_BP), dim=1).nan_to_num_(0)
        own_BP = (grad_BP * torch.sigmoid(-logits_BP)).mul_(ctx.alpha).masked_fill_(logits_BP == -torch.inf, 0)
        return own_BP - shares_BP * own_BP.sum(1, keepdim=True), None, None
