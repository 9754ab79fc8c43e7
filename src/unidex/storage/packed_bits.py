"""Small whole numbers of both signs, packed: 4 to 7 bits each.

The lowest four bits of two numbers share a byte: those of a column of the first half and of its fellow in the second.
Each further bit is one of eight in a byte. A number x of b bits is stored as x + 2^(b - 1).

Shapes: R rows, D columns (a multiple of 16), W bytes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_ROWS_AT_ONCE = 1 << 12
COLUMNS = 16  # their number must be a multiple of this


def max_code(bits: int) -> int:
    """The highest number of so many bits; the lowest is its negative.

    >>> max_code(8), max_code(6)
    (127, 31)
    """
    return (1 << (bits - 1)) - 1


def packed_width(dim: int, bits: int) -> int:
    """Bytes per row.

    >>> packed_width(128, 6)
    96
    """
    return dim * bits // 8


def pack(codes_RD: NDArray[np.int8], bits: int) -> NDArray[np.uint8]:
    """Pack numbers of so many bits, R x W.

    >>> codes = np.arange(-8, 8, dtype=np.int8)[None]
    >>> pack(codes, 6).shape, bool((unpack(pack(codes, 6), 16, 6) == codes).all())
    ((1, 12), True)
    """
    num_rows, dim = codes_RD.shape
    found = np.empty((num_rows, packed_width(dim, bits)), dtype=np.uint8)
    half = dim // 2
    for start in range(0, num_rows, _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        shifted = (codes_RD[rows] + np.int8(1 << (bits - 1))).view(np.uint8)
        found[rows, :half] = (shifted[:, :half] & 15) | (shifted[:, half:] & 15) << 4
        for bit in range(4, bits):
            first = half + (bit - 4) * dim // 8
            found[rows, first : first + dim // 8] = np.packbits(shifted >> bit & 1, axis=1)
    return found


def unpack(packed_RW: NDArray[np.uint8], dim: int, bits: int) -> NDArray[np.int8]:
    """The numbers, R x D."""
    found = np.empty((len(packed_RW), dim), dtype=np.int8)
    half = dim // 2
    for start in range(0, len(packed_RW), _ROWS_AT_ONCE):
        packed = packed_RW[start : start + _ROWS_AT_ONCE]
        codes = found[start : start + _ROWS_AT_ONCE].view(np.uint8)
        np.bitwise_and(packed[:, :half], 15, out=codes[:, :half])
        np.right_shift(packed[:, :half], 4, out=codes[:, half:])
        for bit in range(4, bits):
            first = half + (bit - 4) * dim // 8
            codes |= np.unpackbits(packed[:, first : first + dim // 8], axis=1) << np.uint8(bit)
        codes -= np.uint8(1 << (bits - 1))
    return found
