"""The training texts nearest to a text: by all comparisons where they are few, by lists where they are many.

Many texts are put into lists by k-means, and a search looks only into the lists whose centres are nearest (faiss IVF).
Each text is stored twice: with 2 bits per number, whose scores are read from tables in registers and pick the
candidates (product quantiser with fast scan), and with 8 bits per number, whose scores rank them. Together they take
0.31 of the memory of float32.

The 2 bits cause more misses than the choice of lists does, most of all in narrow vectors (below 32 numbers).

Shapes: B queries, T training texts, D dimensions, K places.
"""

from __future__ import annotations

import math
import zlib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from unidex.errors import ModelError
from unidex.index.checks import check_k, check_vectors
from unidex.index.faiss_library import as_array, library, threads_for
from unidex.index.mapped_lists import LISTS
from unidex.scoring.text_lists import TextLists, write_text_lists
from unidex.storage.mapped import load_array
from unidex.topk import TopK

if TYPE_CHECKING:
    from torch import Tensor

EXACT_UP_TO = 1 << 13  # texts; up to this number, all are compared and none is missed
LISTS_PER_ROOT = 1.4  # lists for each square root of the number of texts
PROBED_LISTS = 12
RANKED_PER_PLACE = 3  # candidates per place that are ranked by their 8 bits
MIN_PLACES = 32  # fewer places have too few candidates for 2 bits per number to find the best
TRAINED_ON = 32  # texts per list in the sample of k-means
TRAINING_ROUNDS = 6
RANGE_MARGIN = 0.1  # of the range of each number, left for texts that are added later
ADDED_AT_ONCE = 1 << 16
_VECTORS, _COMPRESSED = "vectors.npy", "lists.faiss.zz"
# Bytes of lists that are written in compressed form: 8 bits per number are more than most numbers need. Larger ones are
# mapped.
COMPRESSED_UP_TO = 1 << 25


class NearestTexts:
    """Vectors of training texts that can be searched by inner product. A text's id is the number of its row.

    Up to ``EXACT_UP_TO`` texts are searched exactly, and stored as float16. More of them are searched in lists.

    >>> texts = NearestTexts.of(np.eye(3, dtype=np.float32))
    >>> texts.search(np.array([[0.2, 0.9, 0.5]], dtype=np.float32), k=2).ids.tolist()
    [[1, 2]]
    """

    def __init__(self, dim: int) -> None:
        self._dim = dim
        self._vectors_TD = np.empty((0, dim), dtype=np.float32)
        self._lists: Any = None
        self._files: TextLists | None = None  # where the lists are mapped from

    @classmethod
    def of(cls, vectors_TD: NDArray[np.floating[Any]] | Tensor) -> Self:
        """These vectors, which are copied."""
        check_vectors(vectors_TD, "vectors of training texts")
        texts = cls(int(vectors_TD.shape[1]))
        texts._append(vectors_TD)
        return texts

    @classmethod
    def read(cls, folder: Path, num_texts: int, dim: int) -> Self:
        """Read what ``write`` wrote; refuse another number of texts or of numbers per vector."""
        texts = cls(dim)
        file = next((folder / name for name in (_COMPRESSED, LISTS) if (folder / name).is_file()), None)
        if file is None:
            vectors = load_array(folder / _VECTORS, (num_texts, dim))
            if vectors.dtype != np.float16:
                raise ModelError(f"{folder / _VECTORS} must hold float16, but holds {vectors.dtype}; build it again")
            texts._vectors_TD = vectors.astype(np.float32)
            if not np.isfinite(texts._vectors_TD).all():
                raise ModelError(f"{folder / _VECTORS} must hold finite numbers, but does not; build it again")
            return texts
        faiss = library()
        try:
            if TextLists.are_in(folder):
                texts._files = TextLists(folder)
                lists = texts._files.index
            else:
                lists = faiss.deserialize_index(_decompressed(file)) if file.name == _COMPRESSED else _read_lists(file)
        except (RuntimeError, ValueError, OSError, zlib.error) as error:
            reason = str(error).strip().splitlines()[0]
            raise ModelError(f"{file} cannot be read ({reason}); build it again") from None
        if not isinstance(lists, faiss.IndexRefine) or (lists.ntotal, lists.d) != (num_texts, dim):
            raise ModelError(
                f"{file} must hold lists of {num_texts} vectors of {dim} numbers as its manifest says, "
                f"but holds {lists.ntotal} of {lists.d}; build it again"
            )
        texts._lists = lists
        return texts

    def write(self, folder: Path) -> None:
        """Write the lists, compressed or, if they are large, to be mapped; without lists ``vectors.npy``."""
        if self._lists is None:
            np.save(folder / _VECTORS, self._vectors_TD.astype(np.float16))
            return
        if self._files is not None:
            self._files.link(folder)
        elif self._num_bytes > COMPRESSED_UP_TO:
            write_text_lists(folder, self._lists)
        else:
            content = library().serialize_index(self._lists)
            # There is nothing that repeats: short codes for frequent bytes are all that saves.
            packer = zlib.compressobj(1, zlib.DEFLATED, strategy=zlib.Z_HUFFMAN_ONLY)
            (folder / _COMPRESSED).write_bytes(packer.compress(content.data) + packer.flush())

    @property
    def _num_bytes(self) -> int:
        """About how large the lists are: two codes and an id per text."""
        lists, ranking = (library().downcast_index(part) for part in (self._lists.base_index, self._lists.refine_index))
        return len(self) * (int(lists.code_size) + 8 + int(ranking.code_size))

    def __len__(self) -> int:
        return len(self._vectors_TD) if self._lists is None else int(self._lists.ntotal)

    @property
    def dim(self) -> int:
        """Numbers per vector."""
        return self._dim

    def search(self, queries_BD: NDArray[np.floating[Any]] | Tensor, k: int) -> TopK:
        """The k texts of highest inner product; of many texts, nearly all of those k.

        Places stay empty only where there are fewer texts: a query whose lists give too few is compared with all.
        """
        if self._lists is None:
            from unidex.index.exact import search_exact

            return search_exact(queries_BD, self._vectors_TD, k)
        check_k(k)
        check_vectors(queries_BD, "text vectors", self.dim)
        queries = as_array(queries_BD)
        best = self._search_lists(queries, k)
        num_found = min(k, len(self))
        if best.ids[:, num_found - 1].min(initial=0) < 0 or not best.scores[:, 0].all():
            self._complete(best, queries, k, num_found)
        return best

    def _complete(self, best: TopK, queries: NDArray[np.float32], k: int, num_found: int) -> None:
        """Fill the places of queries whose lists gave too few."""
        # A query of zeros is as near to every text, but the tables of fast scan cannot be scaled: it finds none.
        zero = ~queries.any(axis=1)
        best.ids[zero, :num_found], best.scores[zero, :num_found] = np.arange(num_found), 0
        short = np.flatnonzero(best.ids[:, num_found - 1] < 0)
        if short.size:
            scores, ids = self._lists.refine_index.search(queries[short], k)
            whole = TopK.rank(ids, scores)
            best.ids[short], best.scores[short] = whole.ids, whole.scores

    def vectors(self, ids: NDArray[np.integer[Any]]) -> NDArray[np.float32]:
        """The vectors of texts, one per row; of many texts, rounded to 8 bits per number."""
        found: NDArray[np.float32]
        if self._lists is None:
            found = self._vectors_TD[ids]
        else:
            found = self._lists.refine_index.reconstruct_batch(ids.astype(np.int64))
        return found

    def similarities(self, query_D: NDArray[np.float32], ids: NDArray[np.integer[Any]]) -> NDArray[np.float32]:
        """The inner products of one query with the texts of these ids."""
        scores: NDArray[np.float32] = self.vectors(ids) @ np.asarray(query_D, dtype=np.float32)
        return scores

    def add(self, vectors: NDArray[np.floating[Any]] | Tensor) -> NDArray[np.int64]:
        """Append texts; the result is their ids.

        The centres of lists stay as they are. Build anew after many additions that are unlike what was there.
        """
        check_vectors(vectors, "vectors of training texts", self.dim)
        first = len(self)
        self._append(vectors)
        return np.arange(first, len(self), dtype=np.int64)

    def _append(self, vectors: NDArray[np.floating[Any]] | Tensor) -> None:
        if self._lists is None:
            if len(self) + len(vectors) <= EXACT_UP_TO:
                # Rounded as they are saved, so that a saved part answers the same.
                with np.errstate(over="ignore"):
                    added = as_array(vectors).astype(np.float16).astype(np.float32)
                check_vectors(added, "vectors of training texts as float16")
                self._vectors_TD = np.concatenate([self._vectors_TD, added])
                return
            early, self._vectors_TD = self._vectors_TD, np.empty((0, self.dim), dtype=np.float32)
            self._lists = _trained_lists(early, vectors)
            self._lists.add(early)
        elif self._files is not None:
            self._lists, self._files = self._files.in_memory(), None
        for start in range(0, len(vectors), ADDED_AT_ONCE):
            self._lists.add(as_array(vectors[start : start + ADDED_AT_ONCE]))

    def _search_lists(self, queries: NDArray[np.float32], k: int) -> TopK:
        with threads_for(len(queries)):
            scores, ids = self._lists.search(
                queries, max(k, MIN_PLACES), params=_parameters(PROBED_LISTS, RANKED_PER_PLACE)[0]
            )
        return TopK.rank(ids, scores, k)


def _read_lists(file: Path) -> Any:
    return library().read_index(str(file))


def _decompressed(file: Path) -> NDArray[np.uint8]:
    reader = zlib.decompressobj()
    content = reader.decompress(file.read_bytes(), COMPRESSED_UP_TO)
    if not reader.eof:
        raise ValueError("it does not end where it must")
    return np.frombuffer(content, dtype=np.uint8)


@lru_cache
def _parameters(num_probed: int, ranked_per_place: float) -> tuple[Any, Any]:
    """How lists are searched, and what that refers to: faiss keeps no reference to it from Python."""
    faiss = library()
    probes = faiss.SearchParametersIVF(nprobe=num_probed)
    return faiss.IndexRefineSearchParameters(k_factor=ranked_per_place, base_index_params=probes), probes


def num_lists(num_texts: int) -> int:
    """Number of lists: the choice of lists then costs about as much as the search in them.

    >>> num_lists(37_708), num_lists(500_000)
    (271, 989)
    """
    return max(1, int(LISTS_PER_ROOT * math.sqrt(num_texts)))


def _trained_lists(early: NDArray[np.float32], vectors: NDArray[np.floating[Any]] | Tensor) -> Any:
    """Empty lists whose centres are found by k-means on a sample of both, always the same one."""
    faiss = library()

    num_texts, dim = len(early) + len(vectors), int(vectors.shape[1])
    number = num_lists(num_texts)
    size = min(num_texts, number * TRAINED_ON)
    chosen = np.sort(np.random.default_rng(0).permutation(num_texts)[:size])
    late = chosen[chosen >= len(early)] - len(early)
    sample = np.concatenate([early[chosen[chosen < len(early)]], as_array(vectors[late])])
    # Two numbers share four bits; with an odd dimension each has four.
    num_codes = dim // 2 if dim % 2 == 0 else dim
    lists = faiss.index_factory(dim, f"IVF{number},PQ{num_codes}x4fs", faiss.METRIC_INNER_PRODUCT)
    # The sample is drawn here: faiss must neither thin it nor warn that it is small.
    lists.cp.min_points_per_centroid, lists.cp.max_points_per_centroid = 1, TRAINED_ON + 1
    lists.cp.niter = lists.pq.cp.niter = TRAINING_ROUNDS
    ranking = faiss.IndexScalarQuantizer(dim, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT)
    ranking.sq.rangestat_arg = RANGE_MARGIN
    # A sample would miss the extremes, and numbers beyond the range are cut.
    ranking.train(np.concatenate([_extremes(part) for part in (early, vectors) if len(part)]))
    lists.train(sample)
    return faiss.IndexRefine(lists, ranking)


def _extremes(vectors: NDArray[np.floating[Any]] | Tensor) -> NDArray[np.float32]:
    """The lowest and the highest of each number, as two vectors."""
    blocks = (as_array(vectors[start : start + ADDED_AT_ONCE]) for start in range(0, len(vectors), ADDED_AT_ONCE))
    found = np.concatenate([np.stack([block.min(axis=0), block.max(axis=0)]) for block in blocks])
    return np.stack([found.min(axis=0), found.max(axis=0)])
