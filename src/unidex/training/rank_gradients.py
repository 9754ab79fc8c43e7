"""Exchanges between processes that autograd can go back through."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from unidex.distributed import Processes


def gathered(rows: Tensor, processes: Processes) -> Tensor:
    """The rows of all processes, split as `Processes.part` does; a gradient of any of them reaches its owner."""
    if processes.size == 1:
        return rows
    found: Tensor = _Gathered.apply(rows, processes)  # type: ignore[no-untyped-call]
    return found


def summed(values: Tensor, processes: Processes) -> Tensor:
    """The sum over processes; a gradient on any of them reaches all."""
    if processes.size == 1:
        return values
    found: Tensor = _Summed.apply(values, processes)  # type: ignore[no-untyped-call]
    return found


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, processes: Processes) -> Tensor:
        ctx.processes = processes
        return processes.gather(rows)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.processes.reduce_scatter(gradient), None


class _Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, processes: Processes) -> Tensor:
        ctx.processes = processes
        return processes.sum_(values.clone())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.processes.sum_(gradient.clone()), None
