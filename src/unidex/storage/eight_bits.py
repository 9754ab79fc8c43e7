"""Rows of numbers of few bits: a quarter of the memory of float32, and with 5 bits a seventh of its disk.

Each block of 64 columns of a row has a scale, and each number is a whole number from -m to m times its scale, with m =
127 of 8 bits, 15 of 5 and 7 of 4::

    scale = max |number of the block| / m, rounded up to a few binary digits       code = round(number / scale)

A scale of so few digits (12, or 8 of fewer bits) makes every product exact. So rows that were rounded once are stored
without a further loss, and the same rows come back, bit for bit. The last of an odd number of columns is not rounded:
it is the label prior, or a bias. In memory every code has 8 bits. In files, frequent codes are shorter than rare ones:
4.4 bits per number with 5 bits, where most are near 0.

Shapes: R rows, U of them, D columns, G blocks of columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unidex.storage.huffman import compress, decompress
from unidex.storage.packed_bits import COLUMNS, unpack

BLOCK = 64
BITS = {"int8": 8, "int5": 5}  # by predict.precision
_DIGITS, _FEW_DIGITS = 12, 8  # of 8 bits and of fewer; a scale of 8 digits is the upper half of a float32
_SHORT, _LONG = 2, 4  # bytes of a scale
_LEAST = 2.0**-110  # blocks of smaller numbers are 0: float32 has no scale of all digits for them
_ROWS_AT_ONCE = 1 << 12


@dataclass(frozen=True, eq=False)
class EightBitRows:
    """Rows of float32 that lie on the grid of 8 bits, or of fewer.

    Attributes:
        codes_RD: whole numbers from -127 to 127, or a smaller range.
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
        """The arrays that a file has: codes and scales in one compressed stream, and the numbers of what is in it."""
        digits = self.scales_RG.view(np.uint32)
        width = _SHORT if not (digits & 0xFFFF).any() else _LONG
        kept = digits >> np.uint32(8 * (_LONG - width))
        # The lowest bytes of all scales, then the next ones: the highest are nearly the same.
        planes = [(kept >> np.uint32(8 * place)).astype(np.uint8).tobytes() for place in range(width)]
        stream = compress(b"".join([self.codes_RD.tobytes(), *planes]))
        shape = np.array([*self.codes_RD.shape, width], dtype=np.int64)
        return {"codes": np.frombuffer(stream, dtype=np.uint8), "shape": shape}

    @classmethod
    def read(cls, arrays: Mapping[str, NDArray[Any]]) -> EightBitRows:
        """The rows of what ``arrays`` gave; KeyError or ValueError where it is something else."""
        if "int8" in arrays:
            return cls(arrays["int8"], arrays["scales"])
        if "int6" in arrays:
            return cls._read_six_bits(arrays["int6"], arrays["scales16"])
        stream, shape = arrays["codes"], arrays["shape"]
        if stream.dtype != np.uint8 or stream.ndim != 1 or shape.dtype != np.int64 or shape.shape != (3,):
            raise ValueError(f"codes must be one row of bytes, but are {stream.dtype} of shape {stream.shape}")
        num_rows, dim, width = shape.tolist()
        # A byte has at least one bit: so a damaged number asks for no more memory than the file is long, times 8.
        if num_rows < 0 or dim < 1 or num_rows * dim > 8 * len(stream):
            raise ValueError(f"{len(stream)} bytes cannot have {num_rows} rows of {dim} columns")
        if width not in (_SHORT, _LONG):
            raise ValueError(f"scales must have {_SHORT} or {_LONG} bytes, but have {width}")
        num_codes, num_scales = num_rows * dim, num_rows * num_blocks(dim)
        content = decompress(stream, num_codes + width * num_scales)
        planes = content[num_codes:].reshape(width, num_scales)
        digits = np.zeros(num_scales, dtype=np.uint32)
        for place, plane in enumerate(planes, start=_LONG - width):
            digits |= plane.astype(np.uint32) << np.uint32(8 * place)
        scales = digits.view(np.float32).reshape(num_rows, num_blocks(dim))
        return cls(content[:num_codes].view(np.int8).reshape(num_rows, dim), scales)

    @classmethod
    def _read_six_bits(cls, packed: NDArray[Any], digits: NDArray[Any]) -> EightBitRows:
        """Rows of format 5 with the upper halves of their scales."""
        dim = packed.shape[-1] * 8 // 6
        if packed.dtype != np.uint8 or packed.ndim != 2 or packed.shape[1] * 8 != dim * 6 or dim % COLUMNS:
            raise ValueError(f"codes of 6 bits must be rows of bytes, but are {packed.dtype} of shape {packed.shape}")
        if digits.dtype != np.int16 or digits.shape != (len(packed), num_blocks(dim)):
            raise ValueError(f"{len(packed)} rows of {dim} columns must have scales, but have {digits.shape}")
        scales = (digits.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
        return cls(unpack(packed, dim), scales)


Table = NDArray[np.float32] | EightBitRows
_ARRAYS = ("codes", "shape", "int8", "scales", "int6", "scales16")  # since format 6, and before


def read_table(weights: Mapping[str, NDArray[Any]], name: str) -> Table:
    """A table among saved weights; KeyError where there is none of the name."""
    if name in weights:
        return weights[name]
    return EightBitRows.read({part: weights[f"{name}.{part}"] for part in _ARRAYS if f"{name}.{part}" in weights})


def table_names(name: str) -> set[str]:
    """The names that the arrays of a table may have among saved weights."""
    return {name, *(f"{name}.{part}" for part in _ARRAYS)}


def table_arrays(table: Table, name: str) -> dict[str, NDArray[Any]]:
    """A table among saved weights, by name: one array of float32, or codes and scales."""
    if isinstance(table, EightBitRows):
        return {f"{name}.{part}": values for part, values in table.arrays().items()}
    return {name: table}


def num_weights(name: str, size: int, read: Callable[[str], NDArray[Any]]) -> int:
    """How many learned numbers are in an array among saved weights, of which ``read`` gives one by name.

    Scales were not learned, and a compressed stream does not tell by its size.

    >>> arrays = table_arrays(EightBitRows.of(np.ones((2, 64), dtype=np.float32)), "features")
    >>> {name: num_weights(name, values.size, arrays.__getitem__) for name, values in arrays.items()}
    {'features.codes': 0, 'features.shape': 128}
    >>> [num_weights(name, 96, arrays.__getitem__) for name in ("head.weight", "old.int6", "old.scales16")]
    [96, 128, 0]
    """
    if name.endswith((".codes", ".scales", ".scales16")):
        return 0
    if name.endswith(".shape"):
        return math.prod(read(name).tolist()[:2])
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


def max_code(bits: int) -> int:
    """The highest number of so many bits; the lowest is its negative.

    >>> max_code(8), max_code(4)
    (127, 7)
    """
    return (1 << (bits - 1)) - 1


def rounded(rows_RD: NDArray[np.float32], bits: int = 8) -> NDArray[np.float32]:
    """The rows on the grid of so many bits, as float32."""
    return EightBitRows.of(rows_RD, bits).whole()


def on_grid(rows_RD: NDArray[np.float32]) -> EightBitRows | None:
    """The rows as codes of few bits, if nothing is lost, else None."""
    for bits in sorted(BITS.values()):
        found = EightBitRows.of(rows_RD, bits)
        if np.array_equal(found.whole(), rows_RD):
            return found
    return None


def _rounded(rows_RD: NDArray[np.float32], bits: int) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    num_rows, dim = rows_RD.shape
    even = dim - dim % 2
    width = -(-even // BLOCK) * BLOCK
    padded = np.zeros((num_rows, width), dtype=np.float32)
    padded[:, :even] = rows_RD[:, :even]
    blocks = padded.reshape(num_rows, width // BLOCK, BLOCK)
    highest = np.abs(blocks).max(axis=2, initial=0)
    highest[highest < _LEAST] = 0
    digits, powers = np.frexp(highest / np.float32(max_code(bits)))
    steps = 1 << (_DIGITS if bits == 8 else _FEW_DIGITS)
    scales = np.ldexp(np.ceil(digits * steps) / steps, powers).astype(np.float32)
    codes = np.rint(blocks / np.where(scales > 0, scales, 1)[:, :, None]).astype(np.int8)
    last = rows_RD[:, even:]
    all_codes = np.concatenate([codes.reshape(num_rows, width)[:, :even], np.sign(last).astype(np.int8)], axis=1)
    return all_codes, np.concatenate([scales, np.abs(last)], axis=1)
