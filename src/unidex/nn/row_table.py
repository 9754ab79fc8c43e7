"""Row tables: large tables of parameters of which a step touches a few thousand rows.

A step gathers the rows it needs into a small dense leaf, differentiates that, and a row optimiser writes the rows back.
The cost of a step does not depend on the number of rows. A table lives in memory, on a device, or in a file that is
mapped (more rows than memory).

A table of float16 takes half the room. Steps compute in float32, and rows that are written back are rounded up or down
at random (`rounded_at_random`), so that changes smaller than the distance of two float16 numbers are not lost.

Shapes: R rows in the table, U rows of a step, D dimensions.
"""

from __future__ import annotations

import mmap
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unidex.nn import adagrad
from unidex.storage.disk_errors import writing
from unidex.storage.tensors import copy_from


class RowTable:
    """R x D parameters of which a step uses some rows.

    >>> table = RowTable(torch.zeros(4, 2))
    >>> rows = table.gather(torch.tensor([1, 3]))
    >>> (rows * torch.tensor([[1.0, 2.0], [3.0, 4.0]])).sum().backward()
    >>> rows.grad.tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight.detach()
        self.file: Path | None = None
        self._pages: mmap.mmap | None = None  # of the file
        self._num_freed = 0  # rows of a table whose memory was given back
        self._room: Tensor | None = None  # the weights are its first rows and grow into the rest

    @classmethod
    def mapped(cls, file: Path, num_rows: int, dim: int, dtype: torch.dtype = torch.float32) -> RowTable:
        """A table in a file; the system reads and writes its pages as they are used."""
        weight, pages = _mapped(file, num_rows, dim, dtype)
        table = cls(weight)
        table.file, table._pages = file, pages
        return table

    def move_to(self, file: Path) -> None:
        """Move a table from memory to a file."""
        weight, self._pages = _mapped(file, self.num_rows, self.dim, self.weight.dtype)
        self.weight = weight.copy_(self.weight)
        self.file = file

    def free(self) -> None:
        """Give back the memory of a table that is not in a file; ``load`` takes it again."""
        if self.file is None:
            self._num_freed = self.num_rows
            self.weight, self._room = self.weight.new_empty(0, self.dim), None

    def load(self, tensors: Mapping[str, Tensor], name: str) -> None:
        """Take the numbers of a saved table of this size."""
        if self._num_freed:
            self.weight, self._num_freed = self.weight.new_empty(self._num_freed, self.dim), 0
        copy_from(tensors, name, self.weight)

    def zeros(self, what: str, dim: int | None = None) -> Tensor:
        """State of an optimiser: one number per weight, stored where the table is, or ``dim`` per row, in memory.

        A number per row of a file would be a page per row of a step, for what is a small part of the table.
        """
        if self.file is None or dim is not None:
            return self.weight.new_zeros(self.num_rows, self.dim if dim is None else dim, dtype=self._dtype)
        file = self.file.with_name(f"{self.file.name}.{what}")
        # A new file: the optimiser of the phase before has the old one mapped, and its state is still to be taken over.
        file.unlink(missing_ok=True)
        return _mapped(file, self.num_rows, self.dim, self._dtype)[0].zero_()

    @property
    def _is_half(self) -> bool:
        return self.weight.dtype == torch.float16

    @property
    def _dtype(self) -> torch.dtype:
        """Of rows in a step, and of the state of an optimiser."""
        return torch.float32 if self._is_half else self.weight.dtype

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self.weight)

    @property
    def dim(self) -> int:
        """Numbers per row."""
        return self.weight.shape[1]

    def gather(self, ids_U: Tensor) -> Tensor:
        """A copy of these rows as a leaf that wants a gradient. ``ids_U`` must not repeat an id."""
        return self.rows(ids_U).requires_grad_()

    def rows(self, ids: Tensor | slice) -> Tensor:
        """These rows as steps and searches compute with them; neighbouring rows are a copy if they are float16."""
        if isinstance(ids, slice):
            self._fetch(ids)
            return self.weight[ids].to(self._dtype)
        return self.weight.index_select(0, ids).to(self._dtype)

    def _fetch(self, rows: slice) -> None:
        """Start to read neighbouring rows of a file; the system itself expects rows here and there."""
        if self._pages is None or not hasattr(mmap, "MADV_WILLNEED"):
            return
        first, stop, _ = rows.indices(self.num_rows)
        row_bytes = self.dim * self.weight.itemsize
        start = first * row_bytes // mmap.PAGESIZE * mmap.PAGESIZE
        if stop > first:
            self._pages.madvise(mmap.MADV_WILLNEED, start, stop * row_bytes - start)

    def subtract(self, ids_U: Tensor, moves_UD: Tensor) -> None:
        """Subtract from these rows. Rows of float16 are rounded at random, by torch's own generator."""
        if self._is_half:
            self.weight.index_copy_(0, ids_U, rounded_at_random(self.rows(ids_U).sub_(moves_UD)))
        else:
            self.weight.index_add_(0, ids_U, moves_UD, alpha=-1)

    def gradient_leaf(self, num: int) -> Tensor:
        """A leaf for the gradient of so many rows that a step reads in the table itself; it holds no values."""
        return self.weight.new_zeros((), dtype=self._dtype).expand(num, self.dim).requires_grad_()

    def grow(self, rows: Tensor) -> None:
        """Append rows. Where there is no room the table is copied, with room for an eighth more.

        So a row costs a few copied ones on average, however many there are, and memory stays near what is needed.
        """
        before, after = self.num_rows, self.num_rows + len(rows)
        room = self._room
        # Weights that were replaced are not in the room.
        if room is None or room.data_ptr() != self.weight.data_ptr() or len(room) < after:
            room = self.weight.new_empty(max(after, before + before // 8 + 64), self.dim)
            room[:before] = self.weight
        room[before:after] = rows.to(room)
        self._room, self.weight = room, room[:after]


@dataclass(frozen=True, eq=False)
class Touched:
    """Rows of a table that a step has used, and the leaf where their gradient will be."""

    table: RowTable
    ids: Tensor
    rows: Tensor


class RowOptimiser(ABC):
    """Moves the rows of a step, and no others.

    ``names`` are the tensors of its state, which are attributes too. ``decay`` is decoupled weight decay, w = w - lr
    decay w, of the rows of a step; the last number of a row does not decay where it is a bias.
    """

    names: tuple[str, ...]

    def __init__(self, table: RowTable, *, decay: float = 0.0, has_bias: bool = False) -> None:
        self.table, self.decay = table, decay
        self._decayed = slice(0, table.dim - has_bias)

    @torch.no_grad()
    def step(self, ids_U: Tensor, rows_UD: Tensor, lr: float) -> None:
        """Move rows of the table along the gradient of their leaf, whose values are not read."""
        if rows_UD.grad is None:
            return
        moves_UD = self._move_(rows_UD.grad, ids_U, lr)
        if self.decay:
            self._add_decay_(moves_UD, ids_U, lr * self.decay)
        self.table.subtract(ids_U, moves_UD)

    def _add_decay_(self, moves_UD: Tensor, ids_U: Tensor, share: float) -> None:
        """Add a share of the rows, without their bias, to what is subtracted from them or to their gradient."""
        moves_UD[:, self._decayed].add_(self.table.weight.index_select(0, ids_U)[:, self._decayed], alpha=share)

    @abstractmethod
    def _move_(self, grad_UD: Tensor, ids_U: Tensor, lr: float) -> Tensor:
        """What is subtracted from the rows, perhaps in the memory of the gradient; the state changes with them."""

    def state(self) -> dict[str, Tensor]:
        """The state, to be saved."""
        return {name: getattr(self, name) for name in self.names}

    def load(self, state: dict[str, Tensor]) -> None:
        """Take a saved state."""
        for name in self.names:
            getattr(self, name).copy_(state[name])


class RowAdam(RowOptimiser):
    """Adam on the rows of a step only ("lazy" Adam).

    For a row touched for the t-th time with gradient g, b1 = 0.9, b2 = 0.999 and eps = 1e-8:
      m = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g^2,  w = w - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
    It equals dense Adam when every step touches every row. Two numbers of state per weight, one per row.
    """

    names = ("mean", "square", "times")

    def __init__(self, table: RowTable, **options: Any) -> None:
        super().__init__(table, **options)
        self.mean, self.square = table.zeros("mean"), table.zeros("square")
        self.times = table.zeros("times", 1)

    def _move_(self, grad_UD: Tensor, ids_U: Tensor, lr: float) -> Tensor:
        first, second, eps = 0.9, 0.999, 1e-8
        mean = self.mean.index_select(0, ids_U).lerp_(grad_UD, 1 - first)
        square = self.square.index_select(0, ids_U).mul_(second).addcmul_(grad_UD, grad_UD, value=1 - second)
        times = self.times.index_select(0, ids_U).add_(1)
        self.mean.index_copy_(0, ids_U, mean)
        self.square.index_copy_(0, ids_U, square)
        self.times.index_copy_(0, ids_U, times)
        scale = (1 - second**times).sqrt_()
        return mean.mul_(lr * scale / (1 - first**times)).div_(square.sqrt_().add_(eps * scale))


class RowAdagrad(RowOptimiser):
    """Row-wise Adagrad: one number of state per row, the running sum of its mean squared gradient.

    a = a + mean_d g_d^2,  w = w - lr g / (sqrt(a) + 1e-10)
    """

    names = ("sum",)

    def __init__(self, table: RowTable, **options: Any) -> None:
        super().__init__(table, **options)
        self.sum = table.zeros("sum", 1)

    @torch.no_grad()
    def step(self, ids_U: Tensor, rows_UD: Tensor, lr: float) -> None:
        """Move rows of the table along the gradient of their leaf."""
        grad_UD = rows_UD.grad
        if grad_UD is None or self.decay or not adagrad.is_compiled(ids_U, grad_UD, self.sum, self.table.weight):
            super().step(ids_U, rows_UD, lr)
        else:
            adagrad.move_rows(ids_U, grad_UD, self.sum, self.table.weight, lr)

    def _move_(self, grad_UD: Tensor, ids_U: Tensor, lr: float) -> Tensor:
        total_U1 = self.sum.index_select(0, ids_U).add_(adagrad.mean_squares(grad_UD))
        self.sum.index_copy_(0, ids_U, total_U1)
        return grad_UD.mul_(adagrad.factors(total_U1, lr))


class RowSGD(RowOptimiser):
    """Stochastic gradient descent with momentum on the rows of a step: v = 0.9 v + g + decay w,  w = w - lr v.

    One number of state per weight, half of Adam's. Renee (MLSys 2023) trains its classifiers with it; there, as in
    torch, weight decay is a part of the gradient.
    """

    names = ("velocity",)

    def __init__(self, table: RowTable, **options: Any) -> None:
        super().__init__(table, **options)
        self.velocity = table.zeros("velocity")

    def _move_(self, grad_UD: Tensor, ids_U: Tensor, lr: float) -> Tensor:
        velocity = self.velocity.index_select(0, ids_U).mul_(0.9).add_(grad_UD)
        if self.decay:
            super()._add_decay_(velocity, ids_U, self.decay)
        self.velocity.index_copy_(0, ids_U, velocity)
        return velocity.mul_(lr)

    def _add_decay_(self, moves_UD: Tensor, ids_U: Tensor, share: float) -> None:
        """Nothing more: it is in the velocity."""


def merged(touched: list[Touched]) -> list[Touched]:
    """One entry per table: rows that several parts of a step have used get the sum of their gradients.

    >>> table = RowTable(torch.zeros(3, 1))
    >>> parts = [Touched(table, ids := torch.tensor([0, 2]), table.gather(ids)) for _ in range(2)]
    >>> for part in parts:
    ...     part.rows.sum().backward()
    >>> merged(parts)[0].rows.grad.tolist()
    [[2.0], [2.0]]
    """
    by_table: dict[int, list[Touched]] = {}
    for part in touched:
        by_table.setdefault(id(part.table), []).append(part)
    return [parts[0] if len(parts) == 1 else _merged(parts) for parts in by_table.values()]


def _merged(parts: list[Touched]) -> Touched:
    table = parts[0].table
    ids = torch.unique(torch.cat([part.ids for part in parts]))
    rows = table.gradient_leaf(len(ids))
    rows.grad = rows.new_zeros(rows.shape)
    for part in parts:
        if part.rows.grad is not None:
            # Ids ascend, so that places are found by halving.
            rows.grad.index_add_(0, torch.searchsorted(ids, part.ids), part.rows.grad)
    return Touched(table, ids, rows)


def rounded_at_random(values: Tensor) -> Tensor:
    """Values in float16, each rounded up or down with such odds that its mean is the value itself.

    The distance of neighbours is 2^-10 of the power of two below a value, and never below 2^-24.

    >>> step = 2.0**-11
    >>> sorted(rounded_at_random(torch.full((100,), 0.5 + step / 4)).unique().tolist()) == [0.5, 0.5 + step]
    True
    """
    exponents = torch.frexp(values).exponent
    distances = torch.ldexp(torch.ones_like(values), (exponents - 11).clamp_(min=-24))
    # Of 13 bits, as many as a quotient has behind the point: longer ones would carry whole numbers to the next.
    draws = torch.rand_like(values).mul_(1 << 13).floor_().div_(1 << 13)
    steps = values.div(distances).add_(draws).floor_()
    return steps.mul_(distances).clamp_(-_MAX_HALF, _MAX_HALF).half()


_MAX_HALF = torch.finfo(torch.float16).max


def _mapped(file: Path, num_rows: int, dim: int, dtype: torch.dtype) -> tuple[Tensor, mmap.mmap]:
    num_bytes = max(1, num_rows * dim * dtype.itemsize)
    with writing(file), file.open("ab") as out:
        # The system kills a process that writes to a page for which a full disk has no room: reserve all of it.
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(out.fileno(), 0, num_bytes)
        elif file.stat().st_size < num_bytes:
            out.truncate(num_bytes)
    with file.open("r+b") as opened:
        pages = mmap.mmap(opened.fileno(), num_bytes)
    if hasattr(mmap, "MADV_RANDOM"):
        # Else the system holds pages in groups of up to 2 MiB. After a group was written to the disk, the next write to
        # a page of it costs 65 microseconds, because it goes through the whole group; to a single page, 4.
        pages.madvise(mmap.MADV_RANDOM)
    if num_rows * dim == 0:
        return torch.empty(num_rows, dim, dtype=dtype), pages
    return torch.frombuffer(pages, dtype=dtype, count=num_rows * dim).view(num_rows, dim), pages
