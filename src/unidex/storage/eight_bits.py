"""Rows of numbers of 8 bits: a quarter of the memory of float32.

Each block of 64 columns of a row has a scale, and each number is a whole number from -127 to 127 times its scale::

    scale = max |number of the block| / 127, rounded up to 12 binary digits       code = round(number / scale)

A scale of so few digits makes every product exact. So rows that were rounded once are stored without a further loss,
and the same rows come back, bit for bit. The last of an odd number of columns is not rounded: it is the label prior, or
a bias.

Shapes: R rows, U of them, D columns, G blocks of columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK = 64
_MAX_CODE = 127
_DIGITS = 12
_ROWS_AT_ONCE = 1 << 14


@dataclass(frozen=True, eq=False)
class EightBitRows:
    """Rows of float32 that lie on the grid of 8 bits.

    Attributes:
        codes_RD: whole numbers from -127 to 127.
        scales_RG: the scale of each block of columns.

    >>> rows = EightBitRows.of(np.array([[0.5, -1.0, -0.3]], dtype=np.float32))
    >>> rows.codes_RD.tolist(), rows.take([0]).round(3).tolist()
    ([[63, -127, -1]], [[0.4959999918937683, -1.0, -0.30000001192092896]])
    >>> again = EightBitRows.of(rows.take(np.array([0])))
    >>> bool((again.codes_RD == rows.codes_RD).all() and (again.scales_RG == rows.scales_RG).all())
    True
    """

    codes_RD: NDArray[np.int8]
    scales_RG: NDArray[np.float32]

    @classmethod
    def of(cls, rows_RD: NDArray[np.float32]) -> EightBitRows:
        """The rows, rounded."""
        num_rows, dim = rows_RD.shape
        codes = np.empty((num_rows, dim), dtype=np.int8)
        scales = np.empty((num_rows, num_blocks(dim)), dtype=np.float32)
        for start in range(0, num_rows, _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            codes[rows], scales[rows] = _rounded(rows_RD[rows])
        return cls(codes, scales)

    def __len__(self) -> int:
        return len(self.codes_RD)

    @property
    def dim(self) -> int:
        """Columns."""
        return int(self.codes_RD.shape[1])

    def take(self, ids: Any) -> NDArray[np.float32]:
        """Some of the rows, by their numbers or a slice, as float32."""
        codes_UD, scales_UG = self.codes_RD[ids], self.scales_RG[ids]
        found: NDArray[np.float32]
        if self.dim % BLOCK == 0:
            blocks = codes_UD.reshape(len(codes_UD), self.dim // BLOCK, BLOCK) * scales_UG[:, :, None]
            found = blocks.reshape(codes_UD.shape)
        else:
            found = codes_UD * scales_UG[:, _block_of_columns(self.dim)]
        return found

    def whole(self) -> NDArray[np.float32]:
        """All rows as float32."""
        found = np.empty(self.codes_RD.shape, dtype=np.float32)
        for start in range(0, len(self), _ROWS_AT_ONCE):
            found[start : start + _ROWS_AT_ONCE] = self.take(slice(start, start + _ROWS_AT_ONCE))
        return found


Table = NDArray[np.float32] | EightBitRows


def read_table(weights: Mapping[str, NDArray[Any]], name: str) -> Table:
    """A table among saved weights; KeyError where there is none of the name."""
    if name in weights:
        return weights[name]
    return EightBitRows(weights[f"{name}.int8"], weights[f"{name}.scales"])


def table_arrays(table: Table, name: str) -> dict[str, NDArray[Any]]:
    """A table among saved weights, by name: one array of float32, or codes and scales."""
    if isinstance(table, EightBitRows):
        return {f"{name}.int8": table.codes_RD, f"{name}.scales": table.scales_RG}
    return {name: table}


def whole_table(table: Table) -> NDArray[np.float32]:
    """A table as float32."""
    return table.whole() if isinstance(table, EightBitRows) else table


def num_blocks(dim: int) -> int:
    """Blocks of so many columns; the last of an odd number is one of its own."""
    return -(-(dim - dim % 2) // BLOCK) + dim % 2


def _block_of_columns(dim: int) -> NDArray[np.int64]:
    even = dim - dim % 2
    blocks = np.arange(dim) // BLOCK
    blocks[even:] = num_blocks(dim) - 1
    return blocks


def rounded(rows_RD: NDArray[np.float32]) -> NDArray[np.float32]:
    """The rows on the grid of 8 bits, as float32."""
    return EightBitRows.of(rows_RD).whole()


def on_grid(rows_RD: NDArray[np.float32]) -> EightBitRows | None:
    """The rows as 8 bits if nothing is lost, else None."""
    found = EightBitRows.of(rows_RD)
    return found if np.array_equal(found.whole(), rows_RD) else None


def _rounded(rows_RD: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    num_rows, dim = rows_RD.shape
    even = dim - dim % 2
    width = -(-even // BLOCK) * BLOCK
    padded = np.zeros((num_rows, width), dtype=np.float32)
    padded[:, :even] = rows_RD[:, :even]
    blocks = padded.reshape(num_rows, width // BLOCK, BLOCK)
    digits, powers = np.frexp(np.abs(blocks).max(axis=2, initial=0) / np.float32(_MAX_CODE))
    scales = np.ldexp(np.ceil(digits * (1 << _DIGITS)) / (1 << _DIGITS), powers).astype(np.float32)
    codes = np.rint(blocks / np.where(scales > 0, scales, 1)[:, :, None]).astype(np.int8)
    last = rows_RD[:, even:]
    all_codes = np.concatenate([codes.reshape(num_rows, width)[:, :even], np.sign(last).astype(np.int8)], axis=1)
    return all_codes, np.concatenate([scales, np.abs(last)], axis=1)
