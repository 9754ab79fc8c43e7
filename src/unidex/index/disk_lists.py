"""Lists of product-quantised codes over vectors in a file, built in blocks and continued after an interruption.

A folder gets these files, one step after the other:

1. ``vectors.npy``: the vectors, block by block.
2. ``trained.faiss``: the centres of the lists and the codebooks, learned from a sample. The centres of many lists come
   from two levels of k-means.
3. ``assigned.npy`` and ``codes.npy``: the list and the code of every vector, block by block. A vector
   is compared with a part of the centres (`unidex.index.centre_groups`). A search compares a text with all of them: it
   needs the nearest hundreds, and a shortcut to them costs recall.
4. The files of `unidex.index.mapped_lists`: the codes sorted by list.

``progress.json`` says how many rows of a file are on the disk. A build that was killed continues there, and the result
has the same bytes.

Shapes: L vectors, D dimensions, C lists, M pieces of a code.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from unidex import progress
from unidex.index.centre_groups import CentreGroups
from unidex.index.checks import Vectors, check_vectors
from unidex.index.exact import RowSource
from unidex.index.faiss_library import as_array, library, stored_vectors, threads
from unidex.index.mapped_lists import LISTS, write_lists
from unidex.storage.atomic import sync, write_text
from unidex.storage.disk_errors import writing
from unidex.storage.mapped import map_privately, reserve

ROWS_AT_ONCE = 1 << 16
NUMBERS_PER_PIECE = 2  # numbers that share a code of 4 bits, which processors compare many at a time
LISTS_PER_ROOT = 4  # lists per square root of the number of vectors
PROBES_PER_ROOT = 16  # lists that are searched per square root of their number
MIN_CANDIDATES = 256
LEARNED_PER_LIST = 40
MIN_LEARNED = 1 << 14
CODES_LEARNED_FROM = 1 << 15
ROUNDS = 8  # of k-means
TWO_LEVELS_FROM = 1 << 9  # lists; the centres of fewer come from one k-means
VECTORS, TRAINED, ASSIGNED, CODES = "vectors.npy", "trained.faiss", "assigned.npy", "codes.npy"
_PROGRESS = "progress.json"


def num_lists(num_vectors: int) -> int:
    """Lists of so many vectors: the power of two nearest to 4 roots, with at least 40 vectors to learn each from.

    >>> num_lists(10_000), num_lists(1_000_000), num_lists(100_000_000)
    (128, 4096, 32768)
    """
    wanted = round(math.log2(max(1.0, LISTS_PER_ROOT * math.sqrt(num_vectors))))
    return 1 << min(wanted, int(math.log2(max(1, num_vectors // LEARNED_PER_LIST))))


def num_probes(num_lists: int) -> int:
    """Lists that a search looks into: of four times as many, twice as many.

    >>> num_probes(128), num_probes(4096), num_probes(32768)
    (128, 1024, 2896)
    """
    return min(num_lists, int(PROBES_PER_ROOT * math.sqrt(num_lists)))


def num_candidates(num_vectors: int) -> int:
    """Candidates whose vectors are scored: the more vectors, the more of them lie within the error of a code.

    >>> num_candidates(10_000), num_candidates(1_000_000), num_candidates(100_000_000)
    (256, 333, 3333)
    """
    return max(MIN_CANDIDATES, int(math.sqrt(num_vectors) / 3))


def num_pieces(dim: int) -> int:
    """Pieces of a code, each of 4 bits.

    >>> num_pieces(64), num_pieces(257), num_pieces(3)
    (32, 129, 2)
    """
    return -(-dim // NUMBERS_PER_PIECE)


class Building:
    """A folder in which vectors and lists are being built."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / _PROGRESS
        self._done: dict[str, int] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}

    def store(self, vectors: Vectors | RowSource, dtype: type[np.floating[Any]]) -> NDArray[Any]:
        """Write the vectors, block by block; the result maps them."""

        def write(rows: slice, into: list[NDArray[Any]]) -> None:
            block = as_array(vectors[rows])
            check_vectors(block, "label vectors", first=rows.start)
            into[0][rows] = block

        num_rows, dim = int(vectors.shape[0]), int(vectors.shape[1])
        (stored,) = self._in_blocks("storing vectors", write, {VECTORS: ((num_rows, dim), dtype)})
        return stored

    def build(self, vectors_LD: NDArray[Any]) -> None:
        """Learn lists and codes, assign every vector, and write the lists."""
        if not self._done.get(LISTS):
            # One thread: sums in another order may choose another code, and the same vectors must give the same index.
            with threads(1):
                self._write_lists(vectors_LD)
        for name in (ASSIGNED, CODES, TRAINED):
            (self.folder / name).unlink(missing_ok=True)

    def _write_lists(self, vectors_LD: NDArray[Any]) -> None:
        faiss = library()
        if not self._done.get(TRAINED):
            # Under a hidden name first: a file that was cut short is never taken for a whole one.
            with writing(self.folder / TRAINED):
                faiss.write_index(_learned(vectors_LD), str(self.folder / f".{TRAINED}"))
                self._finish(TRAINED, 1)
        empty = faiss.read_index(str(self.folder / TRAINED))
        nearest, quantiser = _assignment(stored_vectors(faiss.downcast_index(empty.quantizer))), empty.pq

        def assign(rows: slice, into: list[NDArray[Any]]) -> None:
            block = padded(as_array(vectors_LD[rows]))
            into[0][rows] = nearest(block)
            into[1][rows] = quantiser.compute_codes(block)

        num_rows = len(vectors_LD)
        wanted: dict[str, tuple[tuple[int, ...], type[np.generic]]]
        wanted = {ASSIGNED: ((num_rows,), np.int32), CODES: ((num_rows, empty.code_size), np.uint8)}
        assigned_L, codes_LM = self._in_blocks("assigning vectors to lists", assign, wanted)
        write_lists(self.folder, empty, assigned_L, codes_LM)
        with writing(self.folder / LISTS):
            faiss.write_index(faiss.IndexIVFPQFastScan(empty), str(self.folder / f".{LISTS}"))
            self._finish(LISTS, 1)

    def _in_blocks(
        self,
        what: str,
        make: Callable[[slice, list[NDArray[Any]]], None],
        wanted: dict[str, tuple[tuple[int, ...], type[np.generic]]],
    ) -> list[NDArray[Any]]:
        """Arrays of these shapes in files, filled block by block from where an earlier build has stopped."""
        names = list(wanted)
        num_rows = wanted[names[0]][0][0]
        if num_rows == 0:
            for name, (shape, dtype) in wanted.items():
                np.save(self.folder / name, np.empty(shape, dtype=dtype))
        done = min(self._done.get(name, 0) for name in names)
        if num_rows and not done:
            for name, (shape, dtype) in wanted.items():
                with writing(self.folder / name):
                    np.lib.format.open_memmap(self.folder / name, mode="w+", dtype=dtype, shape=shape)
                    reserve(self.folder / name)
        arrays = self._mapped(wanted, "r+")
        with progress.task(what, num_rows, unit="rows") as advance:
            advance(done)
            for start in range(done, num_rows, ROWS_AT_ONCE):
                rows = slice(start, min(start + ROWS_AT_ONCE, num_rows))
                make(rows, arrays)
                for array in arrays:
                    array.flush()
                self._note(dict.fromkeys(names, rows.stop))
                advance(rows.stop - start)
        return self._mapped(wanted, "c")

    def _mapped(self, wanted: dict[str, tuple[tuple[int, ...], Any]], mode: Literal["r+", "c"]) -> list[Any]:
        # No file of 0 bytes can be mapped.
        def mapped(file: Path) -> NDArray[Any]:
            return map_privately(file) if mode == "c" else np.lib.format.open_memmap(file, mode=mode)

        return [
            mapped(self.folder / name) if shape[0] else np.empty(shape, dtype)
            for name, (shape, dtype) in wanted.items()
        ]

    def _finish(self, name: str, number: int) -> None:
        sync(self.folder / f".{name}")
        (self.folder / f".{name}").replace(self.folder / name)
        self._note({name: number})

    def _note(self, done: dict[str, int]) -> None:
        self._done |= done
        write_text(self.folder / _PROGRESS, json.dumps(self._done))


def padded(vectors: NDArray[np.float32], width: int = 0) -> NDArray[np.float32]:
    """Vectors with as many zeros behind them as make whole pieces, or a given width."""
    missing = (width or num_pieces(vectors.shape[1]) * NUMBERS_PER_PIECE) - vectors.shape[1]
    return np.pad(vectors, ((0, 0), (0, missing))) if missing else vectors


def _learned(vectors_LD: NDArray[Any]) -> Any:
    """Empty lists: their centres and the codebooks come from a sample, always the same one."""
    faiss = library()
    number = num_lists(len(vectors_LD))
    size = min(len(vectors_LD), max(LEARNED_PER_LIST * number, MIN_LEARNED))
    rows = np.sort(np.random.default_rng(0).choice(len(vectors_LD), size, replace=False))
    sample = padded(as_array(vectors_LD[rows]))
    dim = sample.shape[1]
    coarse = faiss.IndexFlatIP(dim)
    coarse.add(_centres(sample, number))
    lists = faiss.IndexIVFPQ(coarse, dim, number, num_pieces(dim), 4, faiss.METRIC_INNER_PRODUCT)
    # Codes of what remains beside a list's centre measured lower recall of inner products.
    lists.by_residual = False
    lists.pq.cp.niter = ROUNDS
    lists.pq.cp.min_points_per_centroid = 1
    lists.pq.train(np.ascontiguousarray(sample[:: max(1, len(sample) // CODES_LEARNED_FROM)]))
    lists.is_trained = True
    return lists


def _assignment(centres_CD: NDArray[np.float32]) -> Callable[[NDArray[np.float32]], NDArray[np.int64]]:
    """What finds the centre of each vector: among all of few centres, else among those of the nearest groups."""
    number, dim = centres_CD.shape
    if number >= TWO_LEVELS_FROM:
        return CentreGroups(centres_CD, _k_means(centres_CD, _num_parts(number))[0]).nearest
    flat = library().IndexFlatIP(dim)
    flat.add(centres_CD)
    return lambda vectors_BD: flat.search(vectors_BD, 1)[1][:, 0]


def _num_parts(number: int) -> int:
    """Parts of so many centres: about as many as each has centres."""
    return 1 << int(math.log2(number)) // 2


def _centres(sample_SD: NDArray[np.float32], number: int) -> NDArray[np.float32]:
    """Unit vectors by spherical k-means, in two levels where there are many: k-means of all, then within each part."""
    if number < TWO_LEVELS_FROM:
        return _k_means(sample_SD, number)[0]
    coarse, parts = _k_means(sample_SD, _num_parts(number))
    sizes = np.bincount(parts, minlength=len(coarse))
    # Each part gets centres by its share of the sample, at least one, in sum as many as wanted.
    shares = np.maximum(1, np.floor(number * sizes / sizes.sum())).astype(np.int64)
    for part in np.argsort(-sizes, kind="stable")[: max(0, number - int(shares.sum()))]:
        shares[part] += 1
    order, ends = np.argsort(parts, kind="stable"), np.cumsum(sizes)
    found = [
        _k_means(sample_SD[order[end - size : end]], int(min(share, size)))[0]
        for share, size, end in zip(shares, sizes, ends, strict=True)
        if size
    ]
    joined = np.concatenate(found)
    # Rounding may leave a few too many or too few; centres that come twice make empty lists, which do no harm.
    return joined[:number] if len(joined) >= number else np.concatenate([joined, joined[: number - len(joined)]])


def _k_means(sample: NDArray[np.float32], number: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    faiss = library()
    if number >= len(sample):
        return sample.copy(), np.arange(len(sample))
    means = faiss.Kmeans(
        sample.shape[1],
        number,
        niter=ROUNDS,
        spherical=True,
        seed=1234,
        min_points_per_centroid=1,
        max_points_per_centroid=1 << 20,
    )
    means.train(np.ascontiguousarray(sample))
    return means.centroids, means.index.search(np.ascontiguousarray(sample), 1)[1][:, 0]
