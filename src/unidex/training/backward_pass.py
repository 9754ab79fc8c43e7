"""Gradients that are known, sent back through the graphs of what they belong to."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

Parts = tuple[Tensor, ...]


class _Known(torch.autograd.Function):
    """A scalar that has these gradients. For ``Tensor.backward(gradient)`` torch imports 0.6 CPU seconds of SymPy."""

    @staticmethod
    def forward(ctx: Any, num_parts: int, *parts_and_gradients: Tensor) -> Tensor:
        ctx.gradients = parts_and_gradients[num_parts:]
        return parts_and_gradients[0].new_zeros(())

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor | None, ...]:
        return (None, *ctx.gradients, *[None] * len(ctx.gradients))


def backward(parts: Parts, gradients: Parts) -> None:
    """Let gradients flow through the graphs of tensors, where they have one.

    >>> weight = torch.tensor([2.0, 3.0], requires_grad=True)
    >>> backward((weight * 5, torch.ones(1)), (torch.tensor([1.0, 10.0]), torch.ones(1)))
    >>> weight.grad
    tensor([ 5., 50.])
    """
    pairs = [(part, gradient) for part, gradient in zip(parts, gradients, strict=True) if part.requires_grad]
    if pairs:
        sent = [part for part, _ in pairs], [gradient for _, gradient in pairs]
        _Known.apply(len(pairs), *sent[0], *sent[1]).backward()  # type: ignore[no-untyped-call]
