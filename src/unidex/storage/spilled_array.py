"""Arrays that are collected in pieces: in memory while they are small, then in a file that has no name."""

from __future__ import annotations

import tempfile
from typing import IO, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

LARGE = 1 << 28  # bytes of an array that stay in memory


class SpilledArray:
    """Numbers that are appended. The system can put those of a large array out of memory.

    >>> numbers = SpilledArray(np.int64)
    >>> numbers.append(np.array([1, 2]))
    >>> numbers.append(np.array([3]))
    >>> numbers.array().tolist()
    [1, 2, 3]
    """

    def __init__(self, dtype: DTypeLike) -> None:
        self._dtype = np.dtype(dtype)
        self._pieces: list[NDArray[Any]] = []
        self._size = 0
        self._file: IO[bytes] | None = None

    def append(self, piece: NDArray[Any]) -> None:
        """Append numbers."""
        self._pieces.append(np.ascontiguousarray(piece, dtype=self._dtype))
        self._size += self._pieces[-1].nbytes
        if self._file is None and self._size > LARGE:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115  # it lives as long as the map of it
        if self._file is not None:
            self._file.writelines(piece.data for piece in self._pieces if len(piece))
            self._pieces.clear()

    def array(self) -> NDArray[Any]:
        """All that was appended."""
        if self._file is None:
            return np.concatenate([np.empty(0, dtype=self._dtype), *self._pieces])
        self._file.flush()
        return np.memmap(self._file, dtype=self._dtype, mode="r")
