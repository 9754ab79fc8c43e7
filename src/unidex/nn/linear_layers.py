"""The linear layers of a foreign transformer, by the library that multiplies faster on this processor.

See `unidex.losses.products` for where that is not the library of torch. The layers themselves stay as they are: calls
of `torch.nn.functional.linear` are answered while a text goes through them.

Shapes: N tokens, I inputs, O outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from unidex.losses.products import RowsWithRows, rows_with_rows

# Of smaller products the calls cost as much as the products.
_MIN_TERMS = 1 << 20


def faster_linear_layers(device: torch.device) -> AbstractContextManager[Any]:
    """Where linear layers are computed by the faster library; nothing where that is the library of torch."""
    rows = rows_with_rows() if device.type == "cpu" else None
    return nullcontext() if rows is None else LinearLayers(rows)


class LinearLayers(TorchFunctionMode):
    """Answers linear layers of numbers of 32 bits by a product of rows with rows, with gradients.

    >>> layer = torch.nn.Linear(2, 1)
    >>> with LinearLayers(lambda x, w, bias=None: torch.nn.functional.linear(x, w, bias)):
    ...     layer(torch.ones(3, 2)).shape
    torch.Size([3, 1])
    """

    def __init__(self, rows: RowsWithRows) -> None:
        super().__init__()
        self._rows = rows

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """What torch calls in the place of each of its functions."""
        if function is torch.nn.functional.linear and not kwargs and _is_worth_it(*args):
            apply: Callable[..., Tensor] = _Linear.apply if torch.is_grad_enabled() else _forward
            return apply(self._rows, *args)
        return function(*args, **(kwargs or {}))


def _is_worth_it(x: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> bool:
    is_plain = x.dtype == weight_OI.dtype == torch.float32 and type(x) is Tensor
    return is_plain and x.numel() * len(weight_OI) >= _MIN_TERMS


def _forward(rows: RowsWithRows, x: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    found = rows(x.reshape(-1, x.shape[-1]).detach(), weight_OI.detach(), None if bias_O is None else bias_O.detach())
    return found.view(*x.shape[:-1], len(weight_OI))


class _Linear(torch.autograd.Function):
    """y = x W^T + b; d x = g W, d W = g^T x, d b = sum of g."""

    @staticmethod
    def forward(ctx: Any, rows: RowsWithRows, x: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
        ctx.save_for_backward(x, weight_OI)
        ctx.rows, ctx.has_bias = rows, bias_O is not None
        return _forward(rows, x, weight_OI, bias_O)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, weight_OI = ctx.saved_tensors
        _, needs_x, needs_weight, *needs_bias = ctx.needs_input_grad
        grad_NO, x_NI = gradient.reshape(-1, len(weight_OI)), x.reshape(-1, x.shape[-1])
        of_x = ctx.rows(grad_NO, weight_OI.T).view_as(x) if needs_x else None
        of_weight = ctx.rows(grad_NO.T, x_NI.T) if needs_weight else None
        of_bias = grad_NO.sum(0) if any(needs_bias) and ctx.has_bias else None
        return None, of_x, of_weight, *([of_bias] if needs_bias else [])
