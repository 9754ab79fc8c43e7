"""Kernels in C for the inner loops of prediction and training; without them, NumPy computes the same, bit for bit.

The build of the package compiles them where there is a C compiler and the headers of Python (``hatch_build.py``).
Only the linear part of a score depends on them: without them it is not fitted. ``UNIDEX_NATIVE=0`` in the environment
leaves them out.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from numpy.typing import NDArray
from scipy import sparse

_VERSION = 10  # as in module.c; kernels that were compiled from other sources are not used


def _load() -> Any:
    if os.environ.get("UNIDEX_NATIVE") == "0":
        return None
    try:
        found = importlib.import_module("unidex.native._kernels")
    except ImportError:
        return None
    return found if getattr(found, "version", None) == _VERSION else None


# The compiled module, or None.
kernels: Any = _load()


def is_plain(*matrices: sparse.csr_array) -> bool:
    """Whether the kernels are there and read these matrices: float32, with columns and starts of 32 bits."""
    if kernels is None:
        return False
    for matrix in matrices:
        kinds = matrix.data.dtype.char, matrix.indices.dtype.char, matrix.indptr.dtype.char
        if kinds != ("f", "i", "i"):
            return False
    return True


def arrays_of(matrix: sparse.csr_array) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """The arrays of a matrix in the order that the kernels read them."""
    return matrix.data, matrix.indices, matrix.indptr
