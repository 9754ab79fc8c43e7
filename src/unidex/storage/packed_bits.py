"""Whole numbers from -31 to 31 in 6 bits each, as model folders of format 5 have them.

The lowest four bits of two numbers share a byte: those of a column of the first half and of its fellow in the second.
Each further bit is one of eight in a byte. A number x is stored as x + 32.

Shapes: R rows, D columns (a multiple of 16), W bytes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_ROWS_AT_ONCE = 1 << 12
COLUMNS = 16  # their number must be a multiple of this


def unpack(packed_RW: NDArray[np.uint8], dim: int) -> NDArray[np.int8]:
    """The numbers, R x D.

    >>> unpack(np.array([[0x10] + 9 * [0] + 2 * [0xFF]], dtype=np.uint8), 16).tolist()
    [[0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]]
    """
    found = np.empty((len(packed_RW), dim), dtype=np.int8)
    half = dim // 2
    for start in range(0, len(packed_RW), _ROWS_AT_ONCE):
        packed = packed_RW[start : start + _ROWS_AT_ONCE]
        codes = found[start : start + _ROWS_AT_ONCE].view(np.uint8)
        np.bitwise_and(packed[:, :half], 15, out=codes[:, :half])
        np.right_shift(packed[:, :half], 4, out=codes[:, half:])
        for bit in (4, 5):
            first = half + (bit - 4) * dim // 8
            codes |= np.unpackbits(packed[:, first : first + dim // 8], axis=1) << np.uint8(bit)
        codes -= np.uint8(32)
    return found
