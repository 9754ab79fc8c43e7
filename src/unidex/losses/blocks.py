"""What losses over all labels share: they see the labels block by block, and never a texts x labels matrix.

The labels of a step may be spread over several processes, each with labels of its own for the same texts. What a loss
has to know of the others' labels (a sum, a highest score a text) goes through `Ranks`.

Shapes: B texts, L labels of this process, D dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from torch import Tensor


class BlockedGrad(NamedTuple):
    """The value of a loss over all labels and its gradients.

    Attributes:
        value: a scalar over the labels of all processes; the same on each.
        texts_BD: gradient of the texts through the labels of this process. The whole is the sum over processes.
        labels_LD: gradient of the labels of this process; None where it went to a sink.
        scale: gradient of the scale through the labels of this process. The whole is the sum over processes.
    """

    value: Tensor
    texts_BD: Tensor
    labels_LD: Tensor | None
    scale: Tensor


# Takes the gradient of a block of labels as soon as it is known, so that no L x D gradient has to be kept. The block
# of labels is not looked at again afterwards: a sink may change it.
Sink = Callable[[slice, Tensor], None]


class Ranks(Protocol):
    """The processes that hold other labels of the same texts. Each calls the same methods in the same order."""

    @property
    def rank(self) -> int:
        """The number of this process, from 0; labels are in the order of their processes."""

    def sum_(self, values: Tensor) -> Tensor:
        """The sum over processes, in place."""

    def max_(self, values: Tensor) -> Tensor:
        """The highest over processes, in place."""

    def min_(self, values: Tensor) -> Tensor:
        """The lowest over processes, in place."""

    def gather(self, rows: Tensor) -> Tensor:
        """The rows of all processes, in their order; each may have another number of them."""


# A loss on texts and labels, block by block; see `blocked_softmax` for the arguments.
BlockedLoss = Callable[..., BlockedGrad]


class Alone:
    """One process that holds all labels: nothing to ask.

    >>> import torch
    >>> ALONE.sum_(torch.ones(2))
    tensor([1., 1.])
    """

    rank = 0

    def sum_(self, values: Tensor) -> Tensor:
        """What was given."""
        return values

    def max_(self, values: Tensor) -> Tensor:
        """What was given."""
        return values

    def min_(self, values: Tensor) -> Tensor:
        """What was given."""
        return values

    def gather(self, rows: Tensor) -> Tensor:
        """What was given."""
        return rows


ALONE = Alone()
