"""What the indexes on faiss share: the library imported when wanted, its number of threads, arrays in and out of it.

Shapes: L labels, D dimensions.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor


def library() -> Any:
    """The library, imported when wanted. Its stubs leave out what its Python layer adds, hence Any."""
    return importlib.import_module("faiss")


@contextmanager
def threads(number: int | None) -> Iterator[None]:
    """Let faiss use this many threads for a while; None leaves its own choice."""
    faiss = library()

    before = faiss.omp_get_max_threads()
    if number is not None:
        faiss.omp_set_num_threads(number)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def as_array(vectors: NDArray[np.floating[Any]] | Tensor) -> NDArray[np.float32]:
    """The same numbers as a float32 array in memory."""
    found = vectors if isinstance(vectors, np.ndarray) else vectors.detach().float().cpu().numpy()
    return np.ascontiguousarray(found, dtype=np.float32)


def stored_vectors(flat: Any) -> NDArray[np.float32]:
    """The L x D vectors as a flat index stores them, not a copy; good until vectors are added."""
    vectors_LD: NDArray[np.float32] = library().rev_swig_ptr(flat.get_xb(), flat.ntotal * flat.d)
    return vectors_LD.reshape(flat.ntotal, flat.d)
