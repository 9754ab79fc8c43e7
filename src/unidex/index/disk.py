"""Approximate search past memory: codes in lists find candidates, and vectors mapped from a file score them.

Vectors, codes and ids are mapped (`unidex.index.mapped_lists`): an index of any size is there at once, and the system
keeps as much of it in memory as there is room for. How it is built is in `unidex.index.disk_lists`.

Labels that are added or get another vector are compared with every text until they are many; then the index is built
again.

Shapes: B texts, L labels, D dimensions, C candidates, K places.
"""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from unidex.errors import ConfigError, ModelError
from unidex.index.base import Index
from unidex.index.checks import Vectors, check_vectors, check_whole_numbers
from unidex.index.disk_lists import VECTORS, Building, num_candidates, num_probes, padded
from unidex.index.exact import RowSource, search_exact
from unidex.index.faiss_library import as_array, library, reading, threads_for
from unidex.index.index_rows import IndexRows
from unidex.index.mapped_lists import BLOCKS, LISTS, SIZES, open_lists
from unidex.storage.mapped import expect_random_reads, fetch_rows, link_file, load_array, map_array
from unidex.storage.resources import available_memory
from unidex.topk import TopK

CODED_FROM = 1 << 12  # labels; fewer are searched exactly, which is as quick
CANDIDATES_PER_PLACE = 6
EXACT_BELOW = 0.05  # share of visible labels below which the lists hold mostly hidden ones
MAX_UNCODED = 1 << 13  # labels that are compared with every text; more of them, or an eighth of all, are coded
NUMBERS_AT_ONCE = 1 << 22
_MOVED = "moved.npy"


@dataclass(frozen=True)
class DiskSettings:
    """How the lists are searched and the vectors are stored."""

    probes: int = 0  # lists searched per text, the switch between speed and recall; 0: by the number of lists
    candidates: int = 0  # labels per text whose vectors are scored, at least 6 per place; 0: by the number of labels
    numbers: str = "float32"  # of the stored vectors; float16 takes half the disk, and scores have three digits

    def __post_init__(self) -> None:
        check_whole_numbers("disk", self, {"probes": 0, "candidates": 0})
        if self.numbers not in ("float32", "float16"):
            raise ConfigError(f"index 'disk': numbers must be float32 or float16, but is {self.numbers!r}")


class DiskIndex(Index):
    """Label vectors in a file with a short code each in lists.

    >>> index = DiskIndex.build(np.eye(3, dtype=np.float32))
    >>> index.search(np.array([[0.1, 0.9, 0.2]], dtype=np.float32), k=2).ids.tolist()
    [[1, 2]]
    """

    kind = "disk"

    def __init__(self, folder: Path, settings: DiskSettings, num_coded: int, *, owned: Any = None) -> None:
        super().__init__()
        self._folder, self._settings = folder, settings
        self._owned = owned  # a temporary folder that lives as long as the index
        self._stored = map_array(folder / VECTORS, (None, None))
        self._is_beyond_memory = self._stored.nbytes > available_memory()
        if self._is_beyond_memory:
            expect_random_reads(self._stored)
        self._num_coded = num_coded
        self._added = np.empty((0, self._stored.shape[1]), dtype=self._stored.dtype)
        self._moved: NDArray[np.int64] = np.empty(0, dtype=np.int64)  # coded labels with other vectors since
        self._is_changed = False  # whether the file has no longer all vectors as they are
        # faiss keeps no reference to what is mapped.
        opened: tuple[Any, Any] = open_lists(folder) if num_coded else (None, None)
        self._lists, self._mapped = opened

    @classmethod
    def build(
        cls,
        vectors_LD: Vectors | RowSource,
        *,
        folder: Path | None = None,
        scratch: Path | None = None,
        **settings: Any,
    ) -> Self:
        """An index over these vectors, which are read block by block.

        ``folder`` is where it is built: a build that was interrupted there is continued. Unless given, it is a
        temporary one, in the folder ``scratch`` if that is given. ``settings`` as in ``DiskSettings``.
        """
        chosen = DiskSettings(**settings)
        if len(vectors_LD.shape) != 2 or vectors_LD.shape[1] == 0:
            check_vectors(vectors_LD, "label vectors")  # type: ignore[arg-type]  # a row source has two dimensions
        owned = None
        if folder is None:
            owned = tempfile.TemporaryDirectory(prefix="unidex-index-", dir=scratch)
            folder = Path(owned.name)
        building = Building(folder)
        stored = building.store(vectors_LD, np.float16 if chosen.numbers == "float16" else np.float32)
        num_coded = len(stored) if len(stored) >= CODED_FROM else 0
        if num_coded:
            building.build(stored)
        return cls(folder, chosen, num_coded, owned=owned)

    @classmethod
    def _read(cls, folder: Path, manifest: dict[str, Any]) -> Self:
        with reading(folder):
            settings, num_coded = DiskSettings(**manifest["settings"]), int(manifest["num_coded"])
        shape = (manifest["num_ids"], manifest["dim"])
        map_array(folder / VECTORS, shape)
        index = cls(folder, settings, num_coded)
        if (folder / _MOVED).exists():
            index._moved = load_array(folder / _MOVED, (None,), np.int64)
        lists = index._lists
        if lists is not None and (lists.ntotal, shape[1] <= lists.d) != (num_coded, True):
            raise ModelError(
                f"{folder / LISTS} must hold codes of {num_coded} vectors of {shape[1]} numbers as its manifest says, "
                f"but holds {lists.ntotal} of {lists.d}; build the index again"
            )
        return index

    def _about(self) -> dict[str, Any]:
        return {"settings": asdict(self._settings), "num_coded": self._num_coded}

    def _write(self, folder: Path) -> None:
        if self._is_changed:
            shape = (self.num_ids, self.dim)
            file = np.lib.format.open_memmap(folder / VECTORS, mode="w+", dtype=self._stored.dtype, shape=shape)
            rows_at_once = max(1, NUMBERS_AT_ONCE // self.dim)
            for start in range(0, len(self._stored), rows_at_once):
                block = self._stored[start : start + rows_at_once]
                file[start : start + len(block)] = block
            file[len(self._stored) :] = self._added
            file.flush()
            np.save(folder / _MOVED, self._moved)
        else:
            link_file(self._folder / VECTORS, folder / VECTORS)
        for name in (LISTS, SIZES, BLOCKS):
            if self._lists is not None and (self._folder / name).exists():
                link_file(self._folder / name, folder / name)

    @property
    def num_ids(self) -> int:
        """One per vector."""
        return len(self._stored) + len(self._added)

    @property
    def dim(self) -> int:
        """Numbers per vector."""
        return int(self._stored.shape[1])

    def vectors(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """The vectors of labels, one per row; rows of the file are read in its order."""
        distinct, places = np.unique(ids, return_inverse=True)
        stored = distinct[distinct < len(self._stored)]
        if self._is_beyond_memory:
            fetch_rows(self._stored, stored)
        rows = np.concatenate([self._stored[stored], self._added[distinct[len(stored) :] - len(self._stored)]])
        found: NDArray[np.float32] = rows.astype(np.float32, copy=False)[places]
        return found

    def all_vectors(self) -> NDArray[np.float32] | None:
        """The mapped ones where they fit into memory and there are no others."""
        is_plain = self._stored.dtype == np.float32 and not self._is_beyond_memory and not len(self._added)
        return self._stored if is_plain else None

    def _search(self, queries_BD: Vectors, k: int, hidden: NDArray[np.bool_] | None, num_visible: int) -> TopK:
        queries = as_array(queries_BD)
        wanted = max(self._settings.candidates or num_candidates(self.num_ids), CANDIDATES_PER_PLACE * k)
        if self._lists is None or num_visible <= max(wanted, EXACT_BELOW * self.num_ids) or len(queries) == 0:
            forbidden = None if hidden is None else np.flatnonzero(hidden)
            return search_exact(queries, IndexRows(self), k, forbidden=forbidden)
        faiss = library()
        selector = None
        if hidden is not None or len(self._moved):
            visible_C = np.ones(self._num_coded, dtype=bool) if hidden is None else ~hidden[: self._num_coded]
            visible_C[self._moved] = False
            # Bits and selector have names, because faiss keeps no reference to them from Python.
            bits = np.packbits(visible_C, bitorder="little")
            selector = faiss.IDSelectorBitmap(len(bits), faiss.swig_ptr(bits))
        number = self._lists.nlist
        probes = min(self._settings.probes, number) or num_probes(number)
        parameters = faiss.SearchParametersIVF(nprobe=probes, sel=selector)
        uncoded = np.concatenate([self._moved, np.arange(self._num_coded, self.num_ids)])
        if hidden is not None:
            uncoded = uncoded[~hidden[uncoded]]
        texts_at_once = max(1, NUMBERS_AT_ONCE // (wanted * self.dim))
        blocks = []
        for start in range(0, len(queries), texts_at_once):
            texts = queries[start : start + texts_at_once]
            with threads_for(len(texts)):
                ids_BC = self._lists.search(padded(texts, self._lists.d), wanted, params=parameters)[1]
            # A large file is not read whole when a model is loaded.
            if ids_BC.max(initial=-1) >= self._num_coded:
                raise ModelError(
                    f"{self._folder / BLOCKS}: lists must name labels of the index, but do not; copy it again"
                )
            scores_BC = np.where(ids_BC < 0, -np.inf, self.inner_products(texts, np.maximum(ids_BC, 0)))
            found = TopK.rank(ids_BC, scores_BC.astype(np.float32))
            if len(uncoded):
                others = search_exact(texts, self.vectors(uncoded), min(k, len(uncoded)))
                ids = np.concatenate([found.ids, np.where(others.ids < 0, -1, uncoded[others.ids])], axis=1)
                found = TopK.rank(ids, np.concatenate([found.scores, others.scores], axis=1))
            blocks.append(self._filled(found.first(k), texts, hidden, num_visible))
        return TopK.concatenate(blocks)

    def _filled(
        self, best: TopK, queries: NDArray[np.float32], hidden: NDArray[np.bool_] | None, num_visible: int
    ) -> TopK:
        """Places stay empty only where labels are too few: a text whose lists give too few is searched exactly."""
        short = np.flatnonzero(best.ids[:, min(best.k, num_visible) - 1] < 0)
        if short.size:
            forbidden = None if hidden is None else np.flatnonzero(hidden)
            exact = search_exact(queries[short], IndexRows(self), best.k, forbidden=forbidden)
            best.ids[short], best.scores[short] = exact.ids, exact.scores
        return best

    def _append(self, vectors: Vectors) -> None:
        self._added = np.concatenate([self._added, as_array(vectors).astype(self._stored.dtype)])
        self._is_changed = True
        self._code_again_when_due()

    def _move(self, ids: NDArray[np.int64], vectors: Vectors) -> None:
        new = as_array(vectors).astype(self._stored.dtype)
        is_stored = ids < len(self._stored)
        # Mapped copy-on-write: the file stays as it is, and the pages that are written stay in memory.
        self._stored[ids[is_stored]] = new[is_stored]
        self._added[ids[~is_stored] - len(self._stored)] = new[~is_stored]
        self._moved = np.union1d(self._moved, ids[ids < self._num_coded])
        self._is_changed = True
        self._code_again_when_due()

    def _code_again_when_due(self) -> None:
        num_uncoded = self.num_ids - self._num_coded + len(self._moved)
        if self.num_ids < CODED_FROM or num_uncoded <= max(MAX_UNCODED, self._num_coded // 8) * bool(self._num_coded):
            return
        again = DiskIndex.build(IndexRows(self), **asdict(self._settings))
        again._removed = self._removed
        self.__dict__.update(again.__dict__)
