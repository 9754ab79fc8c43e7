"""The softmax losses over all labels, block by block.

Shapes: B texts, L labels of this process, l labels of a block, D dimensions, M positive pairs, m of them in a block.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from unidex.config import Loss as Settings
from unidex.losses import softmax
from unidex.losses.blocks import Block, LabelBlocks, LastPass, cut
from unidex.losses.registry import RegisteredLoss, register
from unidex.losses.targets import Targets, one_positive

# Scores are held in bits, divided by log 2, because powers of 2 take half the time of powers of e, as measured on x86.
# The division is one of the texts, before the product, so that it takes no pass over the scores.
LOG_2 = math.log(2)


class BlockedSoftmax(LastPass):
    """A softmax loss in one or both directions over all labels, block by block.

    Formula, with S = scale texts labels^T over the labels of all processes, and loss the one of ``form``::

        value = lam loss(S - log q, Y) + (1 - lam) loss(S^T, Y^T)             lam = text_to_label

    The first pass keeps the highest score and the sum of exponentials of each text. The last pass computes the scores
    again and turns them into the gradient; it starts with the block where the first one ended. That is four matrix
    products, less one of the last block. The label-to-text direction needs no first pass: a label sees all texts in
    its block.

    Memory, in numbers, besides that of `run_blocked`: in the label-to-text direction, B a for the a labels of a block
    that have a positive, and 2 L.

    References: DEXML (arXiv 2310.10636) computes the same from the whole matrix of scores.

    Relations: equals `symmetric` with `decoupled_softmax` or `supcon` on the whole matrix, and with
    ``text_to_label=1`` the loss itself. On targets drawn by `one_positive` it is `softmax_one_positive`.
    """

    unit = LOG_2
    is_reversed = True

    def __init__(
        self, labels: LabelBlocks, *, form: softmax.Form = softmax.DECOUPLED, text_to_label: float = 1.0
    ) -> None:
        if not 0 <= text_to_label <= 1:
            raise ValueError(f"text_to_label must be between 0 and 1, but is {text_to_label}")
        self._labels = labels
        self._by_text = _ByText(labels, form, text_to_label) if text_to_label > 0 else None
        self._by_label = _ByLabel(labels, form, 1 - text_to_label) if text_to_label < 1 else None

    def needs_scores(self, block: Block) -> bool:
        """Not for the last block: the first pass has left its powers."""
        return self._by_label is not None or block.number < len(self._labels.blocks) - 1

    def gradient_(self, scores_Bl: Tensor | None, block: Block) -> Tensor:
        """The gradient of a block, in the memory of its scores."""
        if scores_Bl is None:
            assert self._by_text is not None
            return self._by_text.last_gradient(block)
        part = None if self._by_label is None else self._by_label.gradient(scores_Bl, block.number)
        if self._by_text is None:
            scores_Bl.zero_()
        else:
            self._by_text.gradient_(scores_Bl, block)
        return scores_Bl if part is None else scores_Bl.index_add_(1, *part)

    def value(self) -> Tensor:
        """The value over the positives of this process."""
        directions = (self._by_text, self._by_label)
        return sum((one.value for one in directions if one), start=self._labels.texts_BD.new_zeros(()))


def _all_small(labels: LabelBlocks, bits_L: Tensor | None) -> bool:
    """Whether powers of the scores, as they are, and sums and quotients of such powers are normal numbers.

    No score exceeds scale |text| |label|. Where that is small, as it is for cosines and a temperature above 0.023 in
    float32, the first pass need not look for the highest score, nor either pass subtract it.
    """
    texts_BD, ranks = labels.texts_BD, labels.ranks
    # Looking at the norms waits for a device, which costs more than it saves there.
    if texts_BD.device.type != "cpu":
        return False
    highest = labels.scale.to(labels.dtype).abs() / LOG_2 * _max(torch.linalg.vector_norm(texts_BD, dim=1))
    highest = highest * ranks.max_(_max(torch.linalg.vector_norm(labels.labels_LD, dim=1, dtype=labels.dtype)))
    if bits_L is not None:
        highest = highest + ranks.max_(_max(bits_L.abs()))
    return bool(highest <= -math.log2(torch.finfo(texts_BD.dtype).tiny) / 2)


def _max(values: Tensor) -> Tensor:
    return values.amax() if len(values) else values.new_zeros(())


class _ByText:
    """The text-to-label direction. To make it is the first pass."""

    def __init__(self, labels: LabelBlocks, form: softmax.Form, weight: float) -> None:
        targets, ranks, dtype = labels.targets, labels.ranks, labels.dtype
        self._form, self._bits_L = form, None if labels.log_q_L is None else labels.log_q_L.to(dtype) / LOG_2
        self._small = small = _all_small(labels, self._bits_L)
        totals_B = ranks.sum_(targets.totals(dtype))
        positives_M = torch.empty_like(targets.weights, dtype=dtype)
        highest_B, sums_B = torch.full_like(totals_B, 0.0 if small else -torch.inf), torch.zeros_like(totals_B)
        for block in labels.blocks:
            self._last_Bl = scores_Bl = labels.scores(block, LOG_2)
            self._correct_(scores_Bl, block)
            positives_M[block.positives] = scores_Bl[block.targets.rows, block.targets.columns]
            if not small:
                softmax.mask_(scores_Bl, block.targets, form, -torch.inf)
                before_B, highest_B = highest_B, torch.maximum(highest_B, scores_Bl.amax(1))
                sums_B.mul_(torch.exp2(before_B - softmax.finite_or_zero(highest_B)))
            self._powers_(scores_Bl, softmax.finite_or_zero(highest_B), block)
            sums_B.add_(scores_Bl.sum(1))

        # From the highest of this process to the highest of all; the powers of the last block are still of the former.
        self._highest_B = softmax.finite_or_zero(highest_B if small else ranks.max_(highest_B.clone()))
        fades_B = torch.exp2(highest_B - self._highest_B)
        sums_B = ranks.sum_(sums_B.mul_(fades_B))
        shares_M = weight * targets.shares_of(totals_B, (totals_B > 0).sum())
        values_M, self._pulls_M = form.terms(shares_M, _gaps(positives_M, targets.rows, self._highest_B, sums_B))
        self._pushes_B = ranks.sum_(softmax.pushes(self._pulls_M, targets.rows, sums_B))
        self._last_pushes_B = self._pushes_B * fades_B
        self.value = values_M.sum()

    def gradient_(self, scores_Bl: Tensor, block: Block) -> None:
        """The scores of a block become its gradient, in place."""
        self._correct_(scores_Bl, block)
        self._powers_(scores_Bl, self._highest_B, block)
        self._push_and_pull_(scores_Bl, self._pushes_B, block)

    def last_gradient(self, block: Block) -> Tensor:
        """The gradient of the last block, whose powers are still there."""
        self._push_and_pull_(self._last_Bl, self._last_pushes_B, block)
        return self._last_Bl

    def _correct_(self, scores_Bl: Tensor, block: Block) -> None:
        if self._bits_L is not None:
            scores_Bl.sub_(self._bits_L[block.labels])

    def _powers_(self, scores_Bl: Tensor, highest_B: Tensor, block: Block) -> None:
        if self._small:
            scores_Bl.exp2_()
            softmax.mask_(scores_Bl, block.targets, self._form, 0.0)
        else:
            softmax.exponentials_(scores_Bl, highest_B[:, None], in_bits=True)
            softmax.mask_(scores_Bl, block.targets, self._form, 0.0)

    def _push_and_pull_(self, powers_Bl: Tensor, pushes_B: Tensor, block: Block) -> None:
        powers_Bl.mul_(pushes_B[:, None])
        powers_Bl[block.targets.rows, block.targets.columns] -= self._pulls_M[block.positives]


class _ByLabel:
    """The label-to-text direction. Only labels with a positive text are anchors, so it looks at their columns alone."""

    def __init__(self, labels: LabelBlocks, form: softmax.Form, weight: float) -> None:
        targets, ranks = labels.targets, labels.ranks
        is_anchor_L = torch.zeros(targets.shape[1], dtype=torch.bool, device=targets.rows.device)
        is_anchor_L[targets.columns] = True
        counts_L = is_anchor_L.cumsum(0)
        of_anchors_I = is_anchor_L[targets.ignored_columns]
        self._form, self._anchors_A = form, is_anchor_L.nonzero()[:, 0]
        of_anchors = Targets(
            targets.rows,
            counts_L[targets.columns] - 1,
            targets.weights,
            targets.ignored_rows[of_anchors_I],
            counts_L[targets.ignored_columns[of_anchors_I]] - 1,
            (targets.shape[0], len(self._anchors_A)),
        )
        totals_A = of_anchors.transposed().totals(labels.dtype)
        # A label none of whose positives was drawn does not count.
        num_anchors = ranks.sum_((totals_A > 0).sum().to(labels.dtype))
        self._shares_M = weight * of_anchors.transposed().shares_of(totals_A, num_anchors)
        self._starts = [block.labels.start for block in labels.blocks]
        self._blocks = cut(of_anchors, torch.searchsorted(self._anchors_A, labels.starts))
        self.value = totals_A.new_zeros(())

    def gradient(self, scores_Bl: Tensor, number: int) -> tuple[Tensor, Tensor]:
        """The places of the anchors of a block, a, and their gradient, B x a; the scores stay as they are."""
        block = self._blocks[number]
        rows, columns = block.targets.rows, block.targets.columns
        anchors_a = self._anchors_A[block.labels] - self._starts[number]
        # Not index_select, which copies the whole block first where rows have gaps between them.
        grad_Ba = scores_Bl[:, anchors_a]
        positives_m = grad_Ba[rows, columns]
        softmax.mask_(grad_Ba, block.targets, self._form, -torch.inf)
        highest_a = softmax.finite_or_zero(grad_Ba.amax(0))
        softmax.exponentials_(grad_Ba, highest_a, in_bits=True)
        softmax.mask_(grad_Ba, block.targets, self._form, 0.0)
        sums_a = grad_Ba.sum(0)
        gaps_m = _gaps(positives_m, columns, highest_a, sums_a)
        values_m, pulls_m = self._form.terms(self._shares_M[block.positives], gaps_m)
        grad_Ba.mul_(softmax.pushes(pulls_m, columns, sums_a))
        grad_Ba[rows, columns] -= pulls_m
        self.value = self.value + values_m.sum()
        return anchors_a, grad_Ba


def _gaps(positives_M: Tensor, anchors_M: Tensor, highest: Tensor, sums: Tensor) -> Tensor:
    """The gaps log Z - s of positives, M, no longer in bits.

    From two differences to the anchor's highest: scores of 10,000 lose no digits to each other.
    """
    return LOG_2 * (sums.log2()[anchors_M] - (positives_M - highest[anchors_M]))


def _registered(name: str, is_supcon: Callable[[Settings], bool], **more: Any) -> RegisteredLoss:
    return RegisteredLoss(
        name,
        dense=lambda settings: softmax.supcon if is_supcon(settings) else softmax.decoupled_softmax,
        blocked=lambda settings: partial(
            BlockedSoftmax,
            form=softmax.SUPCON if is_supcon(settings) else softmax.DECOUPLED,
            text_to_label=settings.text_to_label,
        ),
        takes_text_to_label=True,
        takes_log_q=True,
        **more,
    )


register(_registered("decoupled-softmax", lambda settings: False, settings=("text_to_label", "log_q")))
register(_registered("supcon", lambda settings: True, settings=("text_to_label", "log_q")))
# On the drawn targets these are the two forms of `softmax_one_positive`.
register(
    _registered(
        "one-positive",
        lambda settings: settings.other_positives == "negatives",
        settings=("text_to_label", "log_q", "other_positives"),
        sample=lambda targets, settings, generator: one_positive(targets, generator),
    )
)
