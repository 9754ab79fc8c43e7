"""The vectors of labels in the folder of an index: float32, or 8 bits or fewer where they were rounded to that.

Shapes: L labels, D dimensions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unidex.errors import ModelError
from unidex.storage.eight_bits import EightBitRows, num_blocks, on_grid
from unidex.storage.mapped import load_array
from unidex.storage.small_numbers import has_numbers, load_numbers, save_numbers

_TOO_LARGE = 1e15
_ROWS_AT_ONCE = 1 << 14
_VECTORS, _CODES, _SCALES = "vectors.npy", "vectors_int8", "vectors_scales"


def write_rows(folder: Path, shape: tuple[int, int], blocks: Sequence[NDArray[np.float32]]) -> None:
    """Write label vectors, given in blocks; those that lie on a grid of few bits are written so, without a loss."""
    if shape[0] == 0:
        np.save(folder / _VECTORS, np.empty(shape, dtype=np.float32))
        return
    coded = []
    for block in blocks:
        codes = on_grid(block)
        if codes is None:
            _write_blocks(folder / _VECTORS, shape, np.float32, blocks)
            return
        coded.append(codes)
    save_numbers(folder / _CODES, np.concatenate([block.codes_RD for block in coded]))
    save_numbers(folder / _SCALES, np.concatenate([block.scales_RG for block in coded]))


def read_rows(folder: Path, shape: tuple[int, int]) -> NDArray[np.float32]:
    """Read label vectors as float32: mapped, copy-on-write, where they are stored so."""
    if not has_numbers(folder / _CODES):
        vectors = load_array(folder / _VECTORS, shape, mapped=shape[0] > 0)
        for start in range(0, shape[0], _ROWS_AT_ONCE):
            _check_numbers(vectors[start : start + _ROWS_AT_ONCE], folder / _VECTORS)
        return vectors
    codes = load_numbers(folder / _CODES, shape, np.int8)
    scales = load_numbers(folder / _SCALES, (shape[0], num_blocks(shape[1])), np.float32)
    _check_numbers(scales, folder / _SCALES)
    return EightBitRows(codes, scales).whole()


def _check_numbers(array: NDArray[np.floating[Any]], file: Path) -> None:
    """Refuse what no vector has, and what makes a score that is no number."""
    # Written so that what is no number is refused too.
    if not (np.abs(array) < _TOO_LARGE).all():
        raise ModelError(f"{file} must hold numbers of vectors, but some are too large or none; copy the model again")


def _write_blocks(file: Path, shape: tuple[int, int], dtype: type, blocks: Iterable[NDArray[np.generic]]) -> None:
    array = np.lib.format.open_memmap(file, mode="w+", dtype=dtype, shape=shape)
    written = 0
    for block in blocks:
        array[written : written + len(block)] = block
        written += len(block)
    array.flush()
