"""How a loss goes over all labels block by block: the blocks, their scores, and the gradients they add up to.

What the losses do with the scores of a block is in `blocked_softmax` and `blocked_bce`.

Shapes: B texts, L labels of this process, l labels of a block, D dimensions, M positive pairs, m of them in a block.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import torch
from torch import Tensor

from unidex.losses.blocks import BlockedGrad, Sink
from unidex.losses.targets import Targets

# The scores of a block are at most this many numbers, 16 MB in float32. As measured on a CPU, smaller blocks make
# slower products, and larger ones are no faster.
NUMBERS = 1 << 22


class Block(NamedTuple):
    """Some labels that stand next to each other, and the pairs that belong to them.

    Attributes:
        labels: their places among all labels.
        positives: the places of their positives among all positives sorted by label.
        targets: their pairs, B x l; columns count from the first label of the block.
    """

    labels: slice
    positives: slice
    targets: Targets


def in_blocks(targets: Targets, block_size: int | None, num_dims: int) -> tuple[Targets, list[Block]]:
    """The pairs sorted by label, and the same pairs block by block.

    Blocks are of equal size, as nearly as can be, and have at most ``block_size`` labels. Without it, neither the
    scores of a block (B x l) nor its labels (l x D) have more than 4 million numbers.

    >>> targets, blocks = in_blocks(Targets.of([0, 0, 1], [4, 0, 2], shape=(2, 5)), 2, num_dims=8)
    >>> [(block.labels, block.targets.columns) for block in blocks]
    [(slice(0, 1, None), tensor([0])), (slice(1, 3, None), tensor([1])), (slice(3, 5, None), tensor([1]))]
    """
    num_texts, num_labels = targets.shape
    if block_size is None:
        block_size = max(1, NUMBERS // max(1, num_texts, num_dims))
    if block_size < 1:
        raise ValueError(f"block_size must be at least 1, but is {block_size}")
    num_blocks = -(-num_labels // block_size)
    starts = [num_labels * block // max(1, num_blocks) for block in range(num_blocks + 1)]

    order_M, order_I = targets.columns.argsort(stable=True), targets.ignored_columns.argsort(stable=True)
    sorted_ = Targets(
        targets.rows[order_M],
        targets.columns[order_M],
        targets.weights[order_M],
        targets.ignored_rows[order_I],
        targets.ignored_columns[order_I],
        targets.shape,
    )
    return sorted_, cut(sorted_, torch.tensor(starts, device=order_M.device))


def cut(targets: Targets, starts: Tensor) -> list[Block]:
    """The pairs block by block.

    Args:
        targets: sorted by label.
        starts: where each block begins among the labels, and where the last one ends.
    """
    # The only values that are looked at: where blocks begin, among the labels and among the pairs.
    bounds = torch.stack(
        [
            starts,
            torch.searchsorted(targets.columns, starts),
            torch.searchsorted(targets.ignored_columns, starts),
        ]
    )
    blocks = []
    for (start, first, first_ignored), (stop, last, last_ignored) in itertools.pairwise(bounds.T.tolist()):
        positives, ignored = slice(first, last), slice(first_ignored, last_ignored)
        pairs = Targets(
            targets.rows[positives],
            targets.columns[positives] - start,
            targets.weights[positives],
            targets.ignored_rows[ignored],
            targets.ignored_columns[ignored] - start,
            (targets.shape[0], stop - start),
        )
        blocks.append(Block(slice(start, stop), positives, pairs))
    return blocks


class Products:
    """The three matrix products of a block: its scores, and what their gradient says to texts and labels.

    With G the gradient of the loss with respect to the scores, as in `inner_product_loss`::

        d texts = scale G labels,  d labels = scale G^T texts,  d scale = sum(texts * (G labels))
    """

    def __init__(
        self,
        texts_BD: Tensor,
        labels_LD: Tensor,
        scale: Tensor,
        blocks: list[Block],
        *,
        unit: float = 1.0,
        sink: Sink | None = None,
    ) -> None:
        """Products that write the scores of every block into the same memory, divided by ``unit``."""
        self._texts_BD, self._labels_LD, self._scale, self._sink = texts_BD, labels_LD, scale, sink
        self.dtype = texts_BD.dtype
        self._scaled_BD = texts_BD * scale
        self._scoring_BD = texts_BD * (scale.to(texts_BD.dtype) / unit)
        # Without the scale, which is taken in once, at the end.
        self._grad_BD = torch.zeros_like(texts_BD)
        self._grad_LD = torch.empty_like(labels_LD, memory_format=torch.contiguous_format) if sink is None else None
        most = max((block.targets.shape[1] for block in blocks), default=0)
        # Rows begin at whole cache lines: the product that writes them takes up to half as long again otherwise.
        self._scores = texts_BD.new_empty(len(texts_BD), -(-most // 16) * 16)

    def scores(self, block: Block) -> Tensor:
        """B x l, the scores of a block; those of the block before are gone."""
        scores_Bl = self._scores[:, : block.targets.shape[1]]
        return torch.mm(self._scoring_BD, self._labels_LD[block.labels].T, out=scores_Bl)

    def add(self, block: Block, grad_Bl: Tensor) -> None:
        """Take in the gradient with respect to the scores of a block; once a block."""
        self._grad_BD.addmm_(grad_Bl, self._labels_LD[block.labels])
        if self._grad_LD is not None:
            torch.mm(grad_Bl.T, self._scaled_BD, out=self._grad_LD[block.labels])
        elif self._sink is not None:
            self._sink(block.labels, grad_Bl.T @ self._scaled_BD)

    def result(self, value: Tensor) -> BlockedGrad:
        """Everything, after the last block."""
        scale = (self._grad_BD * self._texts_BD).sum().to(self._scale.dtype)
        return BlockedGrad(value, self._grad_BD * self._scale, self._grad_LD, scale)


def check_sides(texts_BD: Tensor, labels_LD: Tensor, scale: Tensor, targets: Targets) -> None:
    """Refuse what a blocked loss cannot take. Looks at shapes and types only, so it never waits for a device."""
    num_texts, num_labels = targets.shape
    if texts_BD.dim() != 2 or labels_LD.dim() != 2 or texts_BD.shape[1] != labels_LD.shape[1]:
        raise ValueError(
            "texts and labels must be matrices with the same number of dimensions a row, "
            f"but have the shapes {tuple(texts_BD.shape)} and {tuple(labels_LD.shape)}"
        )
    if (len(texts_BD), len(labels_LD)) != targets.shape:
        raise ValueError(
            f"there must be a row for each text and label of the targets, {num_texts} texts x {num_labels} labels, "
            f"but there are {len(texts_BD)} texts and {len(labels_LD)} labels"
        )
    if texts_BD.dtype not in (torch.float32, torch.float64) or labels_LD.dtype != texts_BD.dtype:
        raise ValueError(
            "texts and labels must both be float32 or both float64, "
            f"but are {texts_BD.dtype} and {labels_LD.dtype}; call .float() first"
        )
    if scale.dim():
        raise ValueError(f"scale must be a tensor without dimensions, but has the shape {tuple(scale.shape)}")
