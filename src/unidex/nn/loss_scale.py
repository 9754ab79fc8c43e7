"""Loss scaling of layers in float16: gradients below 6e-8 would be 0 there.

The gradient of a layer stack's output is multiplied by a scale before it enters, and the gradient of each weight, which
is float32, is divided by it on its way out. So nothing outside of the layers knows of it. A scale that is too large
makes a gradient infinite: then the step is left out and the scale halves. It doubles after 2,000 good steps.

Reference: mixed precision training (arXiv 1710.03740).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

FIRST_SCALE = 2.0**14
_GROW_AFTER = 2000
_LARGEST = 2.0**24


class LossScale(nn.Module):
    """The scale, as buffers, so that it is part of checkpoints.

    >>> layer = nn.Linear(1, 1, bias=False)
    >>> scale = LossScale(layer.parameters())
    >>> scale(layer(torch.ones(1, 1))).sum().backward()
    >>> layer.weight.grad
    tensor([[1.]])
    """

    scale: Tensor
    good_steps: Tensor

    def __init__(self, weights: Iterable[nn.Parameter]) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor(FIRST_SCALE))
        self.register_buffer("good_steps", torch.tensor(0))
        for weight in weights:
            # Of an encoder with changes of low rank, most weights do not learn.
            if weight.requires_grad:
                weight.register_hook(self._unscaled)  # type: ignore[no-untyped-call]

    def forward(self, vectors: Tensor) -> Tensor:
        """The vectors as they are; their gradient is scaled on its way back."""
        found: Tensor = _Scaled.apply(vectors, self.scale)  # type: ignore[no-untyped-call]
        return found

    def _unscaled(self, gradient: Tensor) -> Tensor:
        return gradient / self.scale

    def judge(self, weights: Iterable[nn.Parameter]) -> bool:
        """Whether all gradients are finite; the scale follows."""
        is_finite = all(bool(torch.isfinite(weight.grad).all()) for weight in weights if weight.grad is not None)
        self.good_steps.copy_((self.good_steps + 1) * is_finite)
        if not is_finite:
            self.scale.mul_(0.5)
        elif self.good_steps >= _GROW_AFTER:
            self.scale.mul_(2.0).clamp_(max=_LARGEST)
            self.good_steps.zero_()
        return is_finite


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, vectors: Tensor, scale: Tensor) -> Tensor:
        ctx.scale = scale
        return vectors.view_as(vectors)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * ctx.scale, None
