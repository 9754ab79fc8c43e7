"""Arrays that are collected in pieces: in memory while they are small, then in a file that has no name."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

LARGE = 1 << 28  # bytes of an array that stay in memory


class SpilledArray:
    """Numbers that are appended. The system can put those of a large array out of memory.

    Args:
        dtype: their type.
        folder: where the file is; that of temporary files unless given.

    >>> numbers = SpilledArray(np.int64)
    >>> numbers.append(np.array([1, 2]))
    >>> numbers.append(np.array([3]))
    >>> numbers.array().tolist()
    [1, 2, 3]
    """

    def __init__(self, dtype: DTypeLike, folder: Path | None = None) -> None:
        self._dtype, self._folder = np.dtype(dtype), folder
        self._pieces: list[NDArray[Any]] = []
        self._size = 0
        self._file: IO[bytes] | None = None

    def append(self, piece: NDArray[Any]) -> None:
        """Append numbers."""
        self._pieces.append(np.ascontiguousarray(piece, dtype=self._dtype))
        self._size += self._pieces[-1].nbytes
        if self._file is None and self._size > LARGE:
            self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115  # it lives as long as the map of it
        if self._file is not None:
            self._file.writelines(piece.data for piece in self._pieces if len(piece))
            self._pieces.clear()

    def array(self) -> NDArray[Any]:
        """All that was appended."""
        if self._file is None:
            return np.concatenate([np.empty(0, dtype=self._dtype), *self._pieces])
        self._file.flush()
        return np.memmap(self._file, dtype=self._dtype, mode="r")
