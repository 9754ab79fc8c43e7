"""Rows of length 1, with a gradient in two passes over the rows; torch's own takes a dozen.

Shapes: N rows, D numbers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from unidex.nn.unit_arrays import SHORTEST, measured_unit_rows, unit_gradient


def unit_rows(rows_ND: Tensor) -> Tensor:
    """Each row divided by its length.

    >>> unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    unit_ND: Tensor = _UnitRows.apply(rows_ND)  # type: ignore[no-untyped-call]
    return unit_ND


class _UnitRows(torch.autograd.Function):
    """y = x / |x|; the gradient of x is (g - y <y, g>) / |x|."""

    @staticmethod
    def forward(ctx: Any, rows_ND: Tensor) -> Tensor:
        unit_ND: Tensor
        if _is_plain(rows_ND):
            unit_ND, lengths_N1 = map(torch.from_numpy, measured_unit_rows(rows_ND.detach().numpy()))
        else:
            lengths_N1 = torch.linalg.vector_norm(rows_ND, dim=1, keepdim=True).clamp_min_(SHORTEST)
            unit_ND = rows_ND / lengths_N1
        ctx.save_for_backward(unit_ND, lengths_N1)
        return unit_ND

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_ND: Tensor) -> Tensor:
        unit_ND, lengths_N1 = ctx.saved_tensors
        if _is_plain(unit_ND):
            arrays = (part.detach().numpy() for part in (grad_ND, unit_ND, lengths_N1))
            return torch.from_numpy(unit_gradient(*arrays))
        along_N1 = (grad_ND * unit_ND).sum(1, keepdim=True)
        return torch.addcmul(grad_ND, unit_ND, along_N1, value=-1).div_(lengths_N1)


def _is_plain(rows_ND: Tensor) -> bool:
    return rows_ND.dtype == torch.float32 and rows_ND.device.type == "cpu"
