"""A loss over all labels, block by block: there is never a texts x labels matrix of scores.

A blocked loss is a function of `LabelBlocks`. It goes over the blocks as often as it must to know what it needs of all
labels, a sum per text for example, and returns a `LastPass`. `run_blocked` then goes over the blocks once more, turns
the scores of each block into their gradient, and that into the gradients of texts and labels.

The labels of a step may be spread over several processes, each with labels of its own for the same texts. Each process
calls the same methods of `Processes` in the same order; labels are in the order of their processes.

Shapes: B texts, L labels of this process, l labels of a block, P labels of all processes, D dimensions, M positive
pairs, m of them in a block.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from unidex.distributed import ALONE, Processes
from unidex.losses.targets import Targets

# The scores of a block are at most this many numbers, 16 MB in float32. As measured on a CPU, smaller blocks make
# slower products, and larger ones are no faster.
NUMBERS = 1 << 22


class BlockedGrad(NamedTuple):
    """The value of a loss over all labels and its gradients."""

    value: Tensor  # a scalar over the labels of all processes; the same on each
    texts_BD: Tensor  # gradient of the texts through the labels of this process. The whole is the sum over processes.
    labels_LD: Tensor | None  # gradient of the labels of this process; None where a sink took it
    scale: Tensor  # gradient of the scale through the labels of this process. The whole is the sum over processes.


# Takes the gradient of a block of labels as soon as it is known, so that no L x D gradient is kept. Each block comes
# once and is not read again afterwards: a sink may change its labels.
Sink = Callable[[slice, Tensor], None]


class Block(NamedTuple):
    """Adjacent labels and their pairs."""

    number: int  # of the block, from 0
    labels: slice  # their places among all labels of this process
    positives: slice  # the places of their positives among all positives sorted by label
    targets: Targets  # their pairs, B x l; columns count from the first label of the block


class Everywhere(NamedTuple):
    """The pairs of all processes."""

    targets: Targets  # the pairs, B x P
    labels: slice  # the places of the labels of this process among all P
    positives: slice  # the places of the positives of this process among all


class LabelBlocks:
    """The labels of a step in blocks, and their scores.

    Blocks have equal sizes, up to one label, and at most ``block_size`` labels. Without ``block_size``, neither the
    scores of a block (B x l) nor its labels (l x D) have more than 4 million numbers. For the arguments see
    `run_blocked`.

    Attributes:
        targets: the pairs of this process, sorted by label.
        blocks: the blocks with their pairs.

    >>> targets = Targets.of([0, 0, 1], [4, 0, 2], shape=(2, 5))
    >>> blocks = LabelBlocks(torch.ones(2, 8), torch.ones(5, 8), torch.tensor(1.0), targets, block_size=2)
    >>> [(block.labels, block.targets.columns) for block in blocks.blocks]
    [(slice(0, 1, None), tensor([0])), (slice(1, 3, None), tensor([1])), (slice(3, 5, None), tensor([1]))]
    """

    def __init__(
        self,
        texts_BD: Tensor,
        labels_LD: Tensor,
        scale: Tensor,
        targets: Targets,
        *,
        log_q_L: Tensor | None = None,
        block_size: int | None = None,
        ranks: Processes = ALONE,
    ) -> None:
        _check_sides(texts_BD, labels_LD, scale, targets)
        if log_q_L is not None and log_q_L.shape != labels_LD.shape[:1]:
            raise ValueError(f"log q must have one value per label ({len(labels_LD)}), but has {tuple(log_q_L.shape)}")
        if block_size is None:
            block_size = max(1, NUMBERS // max(1, *texts_BD.shape))
        if block_size < 1:
            raise ValueError(f"block_size must be at least 1, but is {block_size}")
        self.texts_BD, self.labels_LD, self.scale, self.log_q_L, self.ranks = texts_BD, labels_LD, scale, log_q_L, ranks
        num_blocks = -(-len(labels_LD) // block_size)
        starts = [len(labels_LD) * block // max(1, num_blocks) for block in range(num_blocks + 1)]
        self.starts = torch.tensor(starts, device=targets.rows.device)
        self.targets, self.blocks = self.split(targets)
        self._scaled: dict[float, Tensor] = {}
        max_labels = max((block.targets.shape[1] for block in self.blocks), default=0)
        # Rows start at whole cache lines: otherwise the product that writes them takes up to half as long again.
        self._scores = texts_BD.new_empty(len(texts_BD), -(-max_labels // 16) * 16)

    @property
    def dtype(self) -> torch.dtype:
        """Of texts and scores; labels may be stored in float16."""
        return self.texts_BD.dtype

    def split(self, pairs: Targets) -> tuple[Targets, list[Block]]:
        """Pairs of the same texts and labels: sorted by label, and block by block."""
        in_order = pairs.take(pairs.columns.argsort(stable=True), pairs.ignored_columns.argsort(stable=True))
        return in_order, cut(in_order, self.starts)

    def scores(self, block: Block, unit: float = 1.0) -> Tensor:
        """B x l, the scores of a block divided by ``unit``; they overwrite the scores of the block before."""
        if unit not in self._scaled:
            self._scaled[unit] = self.texts_BD * (self.scale.to(self.dtype) / unit)
        scores_Bl = self._scores[:, : block.targets.shape[1]]
        return torch.mm(self._scaled[unit], self.labels_LD[block.labels].to(self.dtype).T, out=scores_Bl)

    def everywhere(self) -> Everywhere:
        """The pairs of all processes, sorted by process and label."""
        pairs, ranks = self.targets, self.ranks
        sizes = ranks.gather(torch.tensor([[len(self.labels_LD), pairs.num_positives]], device=pairs.rows.device))
        num_labels, num_positives = sizes[ranks.rank].tolist()
        first, first_positive = sizes[: ranks.rank].sum(0).tolist()
        targets = pairs.gathered(ranks, (pairs.shape[0], int(sizes[:, 0].sum())), first_column=first)
        return Everywhere(
            targets, slice(first, first + num_labels), slice(first_positive, first_positive + num_positives)
        )


class LastPass(ABC):
    """A blocked loss that has seen all labels and gives its gradient block by block.

    Scores that `gradient_` gets are divided by ``unit``; with ``is_reversed`` the last block comes first.
    """

    unit: float = 1.0
    is_reversed: bool = False

    def needs_scores(self, block: Block) -> bool:
        """Whether the gradient of a block takes its scores once more."""
        return True

    @abstractmethod
    def gradient_(self, scores_Bl: Tensor | None, block: Block) -> Tensor:
        """The gradient with respect to the scores of a block, B x l, dense or sparse; called once per block.

        It may take the memory of the scores, which are None where `needs_scores` says no.
        """

    @abstractmethod
    def value(self) -> Tensor:
        """The share of this process in the value, after the last block; the value is the sum over processes."""


BlockedLoss = Callable[[LabelBlocks], LastPass]


@torch.no_grad()
def run_blocked(
    loss: BlockedLoss,
    texts_BD: Tensor,
    labels_LD: Tensor,
    scale: Tensor,
    targets: Targets,
    *,
    log_q_L: Tensor | None = None,
    block_size: int | None = None,
    ranks: Processes = ALONE,
    sink: Sink | None = None,
) -> BlockedGrad:
    """Value and gradients of a blocked loss.

    With G the gradient of the loss with respect to the scores, as in `inner_product_loss`::

        d texts = scale G labels,  d labels = scale G^T texts,  d scale = sum(texts * (G labels))

    Memory, in numbers, besides arguments, results and what the loss itself takes: B l for the scores of a block of l
    labels; 3 B D for texts and their gradient; about ten per pair of the targets; l D for the gradient of a block
    where a sink takes it.

    Args:
        loss: the blocked loss.
        texts_BD: B x D.
        labels_LD: L x D, the labels of this process.
        scale: without dimensions; the inverse of the temperature.
        targets: the positive and ignored pairs of the B texts and the L labels of this process.
        log_q_L: the correction of `correct_log_q`; None for no correction.
        block_size: the maximum number of labels per block; None chooses it by the number of texts and dimensions.
        ranks: the processes that hold other labels of the same texts.
        sink: takes the gradient of the labels block by block.
    """
    labels = LabelBlocks(texts_BD, labels_LD, scale, targets, log_q_L=log_q_L, block_size=block_size, ranks=ranks)
    if len(texts_BD) == 0:
        zeros_LD = texts_BD.new_zeros(labels_LD.shape) if sink is None else None
        return BlockedGrad(texts_BD.new_zeros(()), torch.zeros_like(texts_BD), zeros_LD, torch.zeros_like(scale))
    last_pass = loss(labels)
    scaled_BD = texts_BD * scale
    # Without the scale, which comes in once, at the end.
    grad_BD = torch.zeros_like(texts_BD)
    grad_LD = texts_BD.new_empty(labels_LD.shape) if sink is None else None
    for block in reversed(labels.blocks) if last_pass.is_reversed else labels.blocks:
        scores_Bl = labels.scores(block, last_pass.unit) if last_pass.needs_scores(block) else None
        grad_Bl = last_pass.gradient_(scores_Bl, block)
        grad_BD.addmm_(grad_Bl, labels_LD[block.labels].to(labels.dtype))
        if grad_LD is not None:
            torch.mm(grad_Bl.T, scaled_BD, out=grad_LD[block.labels])
        elif sink is not None:
            sink(block.labels, grad_Bl.T @ scaled_BD)
    value = ranks.sum_(last_pass.value())
    return BlockedGrad(value, grad_BD * scale, grad_LD, (grad_BD * texts_BD).sum().to(scale.dtype))


def cut(targets: Targets, starts: Tensor) -> list[Block]:
    """Pairs sorted by label, block by block; ``starts`` also has the end of the last block."""
    # The only values that leave the device: where blocks start, among the labels and among the pairs.
    bounds = [starts, *(torch.searchsorted(part, starts) for part in (targets.columns, targets.ignored_columns))]
    blocks = []
    for number, (from_, to) in enumerate(itertools.pairwise(torch.stack(bounds).T.tolist())):
        labels, positives, ignored = (slice(*pair) for pair in zip(from_, to, strict=True))
        blocks.append(Block(number, labels, positives, targets.take(positives, ignored, labels)))
    return blocks


def _check_sides(texts_BD: Tensor, labels_LD: Tensor, scale: Tensor, targets: Targets) -> None:
    """Refuse what a blocked loss cannot take. Looks at shapes and types only, so it never waits for a device."""
    num_texts, num_labels = targets.shape
    if texts_BD.dim() != 2 or labels_LD.dim() != 2 or texts_BD.shape[1] != labels_LD.shape[1]:
        raise ValueError(
            "texts and labels must be matrices with the same number of dimensions per row, "
            f"but have the shapes {tuple(texts_BD.shape)} and {tuple(labels_LD.shape)}"
        )
    if (len(texts_BD), len(labels_LD)) != targets.shape:
        raise ValueError(
            f"there must be one row for each text and label of the targets, {num_texts} texts x {num_labels} labels, "
            f"but there are {len(texts_BD)} texts and {len(labels_LD)} labels"
        )
    is_half = labels_LD.dtype == torch.float16 and texts_BD.dtype == torch.float32
    if texts_BD.dtype not in (torch.float32, torch.float64) or not (is_half or labels_LD.dtype == texts_BD.dtype):
        raise ValueError(
            "texts and labels must both be float32 or both float64, or labels float16 and texts float32, "
            f"but are {texts_BD.dtype} and {labels_LD.dtype}; call .float() first"
        )
    if scale.dim():
        raise ValueError(f"scale must be a tensor without dimensions, but has the shape {tuple(scale.shape)}")
