"""What the indexes on faiss share: the library imported on demand, its threads, arrays, and the stored vectors.

Shapes: L labels, D dimensions.
"""

from __future__ import annotations

import importlib
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unidex.errors import ModelError
from unidex.index.base import Index
from unidex.index.checks import Vectors
from unidex.index.exact import search_exact
from unidex.topk import TopK


@cache
def library() -> Any:
    """The library, imported on demand. Its stubs leave out what its Python layer adds, hence Any."""
    return importlib.import_module("faiss")


# Texts below which a second thread costs more than it saves: on busy cores waking it takes longer than the search.
FEW_TEXTS = 16


_AS_THEY_ARE = nullcontext()


def threads(number: int | None) -> AbstractContextManager[None]:
    """Let faiss use this many threads for a while; None leaves its own choice."""
    if number is None or (before := library().omp_get_max_threads()) == number:
        return _AS_THEY_ARE
    return _other_threads(number, before)


@contextmanager
def _other_threads(number: int, before: int) -> Iterator[None]:
    library().omp_set_num_threads(number)
    try:
        yield
    finally:
        library().omp_set_num_threads(before)


def threads_for(num_texts: int) -> AbstractContextManager[None]:
    """The threads of a search for so many texts: one for a few of them."""
    return threads(1 if num_texts < FEW_TEXTS else None)


def as_array(vectors: Vectors) -> NDArray[np.float32]:
    """The same numbers as a float32 array in memory."""
    found = vectors if isinstance(vectors, np.ndarray) else vectors.detach().float().cpu().numpy()
    return np.ascontiguousarray(found, dtype=np.float32)


def stored_vectors(flat: Any) -> NDArray[np.float32]:
    """The L x D vectors as a flat index stores them, not a copy; good until vectors are added."""
    vectors_LD: NDArray[np.float32] = library().rev_swig_ptr(flat.get_xb(), flat.ntotal * flat.d)
    return vectors_LD.reshape(flat.ntotal, flat.d)


class StoredVectors(Index):
    """An index that keeps its vectors in a flat index of faiss, beside the structure that it searches.

    Codes or links of a replaced vector stay in that structure; after many of them, it is built again.
    """

    @property
    @abstractmethod
    def _stored(self) -> Any:
        """The flat index."""

    @property
    def num_ids(self) -> int:
        """One per stored vector."""
        return int(self._stored.ntotal)

    @property
    def dim(self) -> int:
        """Numbers per vector."""
        return int(self._stored.d)

    def vectors(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """The vectors of labels, one per row."""
        return stored_vectors(self._stored)[ids]

    def all_vectors(self) -> NDArray[np.float32] | None:
        """The stored vectors; good until vectors are added."""
        return stored_vectors(self._stored)

    def _search_exactly(self, queries: NDArray[np.float32], k: int, hidden: NDArray[np.bool_] | None) -> TopK:
        forbidden = None if hidden is None else np.flatnonzero(hidden)
        return search_exact(queries, stored_vectors(self._stored), k, forbidden=forbidden)

    def _fill_short(self, best: TopK, short_B: NDArray[np.bool_], queries: Any, hidden: Any) -> TopK:
        """The same places, with an exact search in place of those of some texts."""
        if short_B.any():
            short = np.flatnonzero(short_B)
            exact = self._search_exactly(queries[short], best.k, hidden)
            best.ids[short], best.scores[short] = exact.ids, exact.scores
        return best


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Turn what faiss, or a manifest of other settings, raises into an error that names the folder."""
    try:
        yield
    except (RuntimeError, TypeError, KeyError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelError(f"{folder} is not a whole index ({reason}); build the index again") from None
