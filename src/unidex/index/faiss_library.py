"""What the indexes on faiss share: the library imported on demand, its threads, arrays, and the stored vectors.

Shapes: L labels, D dimensions.
"""

from __future__ import annotations

import importlib
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unidex.index.base import RemovableLabels, Vectors, check_replaced, check_vectors
from unidex.topk import TopK

if TYPE_CHECKING:
    pass


def library() -> Any:
    """The library, imported on demand. Its stubs leave out what its Python layer adds, hence Any."""
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


def as_array(vectors: Vectors) -> NDArray[np.float32]:
    """The same numbers as a float32 array in memory."""
    found = vectors if isinstance(vectors, np.ndarray) else vectors.detach().float().cpu().numpy()
    return np.ascontiguousarray(found, dtype=np.float32)


def stored_vectors(flat: Any) -> NDArray[np.float32]:
    """The L x D vectors as a flat index stores them, not a copy; good until vectors are added."""
    vectors_LD: NDArray[np.float32] = library().rev_swig_ptr(flat.get_xb(), flat.ntotal * flat.d)
    return vectors_LD.reshape(flat.ntotal, flat.d)


class StoredVectors(RemovableLabels):
    """An index that keeps its vectors in a flat index of faiss, beside the structure that it searches."""

    @property
    @abstractmethod
    def _stored(self) -> Any:
        """The flat index."""

    @abstractmethod
    def _append(self, vectors: Vectors) -> None:
        """Store vectors of new labels, and make them searchable."""

    @abstractmethod
    def _move(self, ids: NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
        """Store other vectors for labels, at least one, and make them searchable by the new ones only."""

    @property
    def num_ids(self) -> int:
        """Number of ids given so far, removed labels included; the next added label gets this id."""
        return int(self._stored.ntotal)

    @property
    def dim(self) -> int:
        """Numbers per vector."""
        return int(self._stored.d)

    def vectors(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """The vectors of labels, one per row."""
        return stored_vectors(self._stored)[ids]

    def add(self, vectors: Vectors) -> NDArray[np.int64]:
        """Append labels; the result is their ids."""
        check_vectors(vectors, "label vectors", self.dim)
        first = self.num_ids
        self._append(vectors)
        return np.arange(first, self.num_ids, dtype=np.int64)

    def replace(self, ids: ArrayLike, vectors: Vectors) -> None:
        """Give labels other vectors, one per row. Old codes or links stay; after many, all are built again."""
        chosen = check_replaced(ids, vectors, self.num_ids, self.dim)
        if len(chosen):
            self._move(chosen, as_array(vectors))

    def _search_exactly(self, queries: NDArray[np.float32], k: int, hidden: NDArray[np.bool_] | None) -> TopK:
        from unidex.index.exact import search_exact

        forbidden = None if hidden is None else np.flatnonzero(hidden)
        return search_exact(queries, stored_vectors(self._stored), k, forbidden=forbidden)
