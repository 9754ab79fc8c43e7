"""Arrays of numbers in a data set: numbers of rows, and lists that were saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unidex.errors import DataError
from unidex.storage.mapped import read_array


def row_numbers(rows: Any) -> NDArray[np.int64]:
    """Rows as whole numbers. A mask must not pass for the rows 0 and 1.

    >>> row_numbers([2, 0]), row_numbers(np.array([False, True]))
    (array([2, 0]), array([1]))
    """
    found = np.asarray(rows)
    if found.dtype == bool:
        return np.flatnonzero(found)
    if found.size and found.dtype.kind not in "iu":
        raise TypeError(f"rows must be whole numbers or a mask, but are {found.dtype}")
    return found.astype(np.int64)


def load_array(file: Path, dtype: type[np.generic], *, in_memory: bool = False, always: bool = False) -> NDArray[Any]:
    """A list of numbers that numpy.save wrote, mapped from disk unless ``in_memory``; with ``always`` mapped anyway."""
    try:
        return read_array(file, (None,), dtype, "r" if always or not in_memory else None, always=always)
    except ValueError as error:
        raise DataError(f"{error}; convert the data set again", file=file) from None
