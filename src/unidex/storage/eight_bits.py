"""Rows of numbers of 8 bits, or of 6: a quarter of the memory of float32, and a fifth of its disk.

Each block of 64 columns of a row has a scale, and each number is a whole number from -m to m times its scale, with m =
127 of 8 bits and 31 of 6::

    scale = max |number of the block| / m, rounded up to a few binary digits       code = round(number / scale)

A scale of so few digits (12, or 8 of 6 bits) makes every product exact. So rows that were rounded once are stored
without a further loss, and the same rows come back, bit for bit. The last of an odd number of columns is not rounded:
it is the label prior, or a bias. In memory every code has 8 bits; in files, codes of 6 bits are packed, and their
scales have 16 bits.

Shapes: R rows, U of them, D columns, G blocks of columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unidex.storage.packed_bits import COLUMNS, max_code, pack, packed_width, unpack

BLOCK = 64
_DIGITS, _FEW_DIGITS = 12, 8  # of 8 bits and of fewer; a scale of 8 digits is the upper half of a float32
_ROWS_AT_ONCE = 1 << 12


@dataclass(frozen=True, eq=False)
class EightBitRows:
    """Rows of float32 that lie on the grid of 8 bits or of 6.

    Attributes:
        codes_RD: whole numbers from -127 to 127, or from -31 to 31.
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
    def of(cls, rows_RD: NDArray[np.float32], bits: int = 8) -> EightBitRows:
        """The rows, rounded."""
        num_rows, dim = rows_RD.shape
        codes = np.empty((num_rows, dim), dtype=np.int8)
        scales = np.empty((num_rows, num_blocks(dim)), dtype=np.float32)
        for start in range(0, num_rows, _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            codes[rows], scales[rows] = _rounded(rows_RD[rows], bits)
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

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays that a file has: codes of 6 bits packed, others as they are."""
        digits = self.scales_RG.view(np.uint32)
        is_small = self.dim % COLUMNS == 0 and np.abs(self.codes_RD).max(initial=0) <= max_code(6)
        if not is_small or (digits & 0xFFFF).any():
            return {"int8": self.codes_RD, "scales": self.scales_RG}
        return {"int6": pack(self.codes_RD, 6), "scales16": (digits >> np.uint32(16)).astype(np.uint16).view(np.int16)}

    @classmethod
    def read(cls, arrays: Mapping[str, NDArray[Any]]) -> EightBitRows:
        """The rows of what ``arrays`` gave; KeyError or ValueError where it is something else."""
        if "int6" not in arrays:
            return cls(arrays["int8"], arrays["scales"])
        packed, digits = arrays["int6"], arrays["scales16"]
        dim = packed.shape[-1] * 8 // 6
        if packed.dtype != np.uint8 or packed.ndim != 2 or packed.shape[1] != packed_width(dim, 6) or dim % COLUMNS:
            raise ValueError(f"codes of 6 bits must be rows of bytes, but are {packed.dtype} of shape {packed.shape}")
        if digits.dtype != np.int16 or digits.shape != (len(packed), num_blocks(dim)):
            raise ValueError(f"{len(packed)} rows of {dim} columns must have scales, but have {digits.shape}")
        scales = (digits.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
        return cls(unpack(packed, dim, 6), scales)


Table = NDArray[np.float32] | EightBitRows
_ARRAYS = ("int8", "scales", "int6", "scales16")


def read_table(weights: Mapping[str, NDArray[Any]], name: str) -> Table:
    """A table among saved weights; KeyError where there is none of the name."""
    if name in weights:
        return weights[name]
    return EightBitRows.read({part: weights[f"{name}.{part}"] for part in _ARRAYS if f"{name}.{part}" in weights})


def table_arrays(table: Table, name: str) -> dict[str, NDArray[Any]]:
    """A table among saved weights, by name: one array of float32, or codes and scales."""
    if isinstance(table, EightBitRows):
        return {f"{name}.{part}": values for part, values in table.arrays().items()}
    return {name: table}


def num_weights(name: str, size: int) -> int:
    """How many learned numbers are in an array among saved weights; scales were not learned.

    >>> [num_weights(name, 96) for name in ("head.weight", "features.int6", "features.scales16")]
    [96, 128, 0]
    """
    if name.endswith((".scales", ".scales16")):
        return 0
    return size * 8 // 6 if name.endswith(".int6") else size


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


def _rounded(rows_RD: NDArray[np.float32], bits: int) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    num_rows, dim = rows_RD.shape
    even = dim - dim % 2
    width = -(-even // BLOCK) * BLOCK
    padded = np.zeros((num_rows, width), dtype=np.float32)
    padded[:, :even] = rows_RD[:, :even]
    blocks = padded.reshape(num_rows, width // BLOCK, BLOCK)
    digits, powers = np.frexp(np.abs(blocks).max(axis=2, initial=0) / np.float32(max_code(bits)))
    steps = 1 << (_DIGITS if bits == 8 else _FEW_DIGITS)
    scales = np.ldexp(np.ceil(digits * steps) / steps, powers).astype(np.float32)
    codes = np.rint(blocks / np.where(scales > 0, scales, 1)[:, :, None]).astype(np.int8)
    last = rows_RD[:, even:]
    all_codes = np.concatenate([codes.reshape(num_rows, width)[:, :even], np.sign(last).astype(np.int8)], axis=1)
    return all_codes, np.concatenate([scales, np.abs(last)], axis=1)
