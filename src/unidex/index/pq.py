"""Approximate search by product quantisation: short codes find candidates, their vectors score them.

A vector is cut into pieces of a few numbers, and each piece is replaced by the nearest of 16 learned ones: 4 bits. The
inner product of a text with every code is a sum of looked-up numbers, 32 labels at a time in the processor's registers
(Jegou et al., "Product quantization for nearest neighbor search", 2011; Andre et al., "Quicker ADC", 2019,
arXiv:1812.09162; faiss calls it fast scan). The labels of the best codes are candidates. Their scores are inner
products of the vectors themselves, so a score is exact and only a missed candidate can be wrong.

Many labels are also sorted into lists by direction, and a text looks only into the nearest lists.

Shapes: B texts, L labels, D dimensions, C candidates, K places.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from unidex.errors import ModelError
from unidex.index.checks import Vectors, check_vectors, check_whole_numbers
from unidex.index.faiss_library import StoredVectors, as_array, library, reading, stored_vectors, threads, threads_for
from unidex.index.point_labels import Points
from unidex.index.stored_rows import read_rows, write_rows
from unidex.topk import TopK

CODED_FROM = 1 << 12  # labels; fewer are searched exactly, which is as quick
LISTED_FROM = 1 << 16  # labels; fewer are one list
CANDIDATES, CANDIDATES_WITH_LISTS = 64, 128
CANDIDATES_PER_PLACE = 6
EXACT_BELOW = 0.05  # share of visible labels below which the best codes are mostly hidden ones
LEARNED_PER_LIST, MIN_LEARNED = 40, 1 << 14  # labels that the lists and pieces are learned from
MIN_PIECES, NUMBERS_PER_PIECE = 64, 4
# faiss scans the codes for 2 + 2 + 2 texts together. With AVX-512 a search of 23,922 labels takes 34 us per text, 41
# with 2 + 2 + 2 + 2 and 35 with its own choice; with AVX2 41, 42 and 46.
TEXTS_PER_SCAN = 0x222
ROWS_AT_ONCE = 1 << 16
CANDIDATES_AT_ONCE = 1 << 22
SHORTLISTED_AT_ONCE = 1 << 12  # texts


@dataclass(frozen=True)
class PqSettings:
    """How the codes are made and searched."""

    # Numbers that share 4 bits; fewer of them, slower and higher recall. 0 is 4, or fewer where vectors below 256
    # numbers would have less than 64 pieces.
    numbers_a_piece: int = 0
    # Lists the labels are sorted into; 0 is 1 below 65,536 labels and about 1.5 sqrt(labels) from there on.
    lists: int = 0
    probes: int = 64  # lists searched per text; the switch between speed and recall where there are lists
    candidates: int = 0  # labels per text whose vectors are scored, at least 6 per place; 0 is 64, or 128 with lists

    def __post_init__(self) -> None:
        check_whole_numbers("pq", self, {"numbers_a_piece": 0, "lists": 0, "probes": 1, "candidates": 0})


class PqIndex(StoredVectors):
    """Label vectors with a short code each, searched approximately: see ``candidates`` and ``probes``.

    Where hidden labels leave a text fewer than half of its candidates, it is searched exactly, so that places stay
    empty only where there are too few labels.

    >>> index = PqIndex.build(np.eye(3, dtype=np.float32))
    >>> index.search(np.array([[0.1, 0.9, 0.2]], dtype=np.float32), k=2).ids.tolist()
    [[1, 2]]
    """

    kind = "pq"

    def __init__(self, flat: Any, codes: Any, points: Points, settings: PqSettings, learned_from: int) -> None:
        super().__init__()
        self._flat, self._settings = flat, settings
        self._codes = codes  # None while there are too few labels
        self._points = points  # whose code each is; a label whose vector was replaced has a later one
        self._learned_from = learned_from  # number of labels when the codes were learned
        self._known_table: NDArray[np.float32] | None = None

    @classmethod
    def build(cls, vectors_LD: Vectors, **settings: Any) -> Self:
        """An index over these vectors, which are copied; ``settings`` as in ``PqSettings``."""
        chosen = PqSettings(**settings)
        check_vectors(vectors_LD, "label vectors")
        flat = library().IndexFlatIP(int(vectors_LD.shape[1]))
        index = cls(flat, None, Points.of(0), chosen, 0)
        index._append(vectors_LD)
        return index

    @classmethod
    def _read(cls, folder: Path, manifest: dict[str, Any]) -> Self:
        num_ids, dim = manifest["num_ids"], manifest["dim"]
        flat = library().IndexFlatIP(dim)
        flat.add(as_array(read_rows(folder, (num_ids, dim))))
        with reading(folder):
            settings, learned_from = PqSettings(**manifest["settings"]), int(manifest["learned_from"])
            codes = library().read_index(str(folder / "codes.faiss")) if learned_from else None
        points = Points.read(folder, num_ids)
        size = len(points.labels_P), coded_width(dim, settings.numbers_a_piece)
        if codes is not None and (codes.ntotal, codes.d) != size:
            raise ModelError(
                f"{folder / 'codes.faiss'} must hold codes of {size[0]} vectors of {size[1]} numbers as its manifest "
                f"says, but holds {codes.ntotal} of {codes.d}; build the index again"
            )
        if codes is not None and not hasattr(codes, "nprobe"):
            codes.qbs = TEXTS_PER_SCAN  # the file has that of the version that wrote it
        return cls(flat, codes, points, settings, learned_from)

    def _about(self) -> dict[str, Any]:
        return {"settings": asdict(self._settings), "learned_from": self._learned_from}

    def _write(self, folder: Path) -> None:
        write_rows(folder, (self.num_ids, self.dim), [stored_vectors(self._flat)])
        if self._codes is not None:
            library().write_index(self._codes, str(folder / "codes.faiss"))
        self._points.write(folder)

    @property
    def _stored(self) -> Any:
        return self._flat

    def _search(self, queries_BD: Vectors, k: int, hidden: NDArray[np.bool_] | None, num_visible: int) -> TopK:
        queries = as_array(queries_BD)
        wanted = max(self._num_candidates(), CANDIDATES_PER_PLACE * k)
        if self._codes is None or num_visible <= max(wanted, EXACT_BELOW * self.num_ids) or len(queries) == 0:
            return self._search_exactly(queries, k, hidden)
        # Hidden labels and vectors that were replaced have codes too: so many more are fetched that the wanted number
        # is left on average.
        num_codes = len(self._points.labels_P)
        fetched = min(num_codes, math.ceil(wanted * num_codes / num_visible))
        texts_at_once = max(1, CANDIDATES_AT_ONCE // fetched)
        starts = range(0, len(queries), texts_at_once)
        blocks = [self._search_codes(queries[s : s + texts_at_once], k, fetched, wanted, hidden) for s in starts]
        return blocks[0] if len(blocks) == 1 else TopK.concatenate(blocks)

    def all_vectors(self) -> NDArray[np.float32]:
        """The stored vectors; good until vectors are added."""
        # Made once: for one text it would take as long as to read its candidates.
        if self._known_table is None or len(self._known_table) != self._flat.ntotal:
            self._known_table = stored_vectors(self._flat)
        return self._known_table

    def shortlist(self, queries_BD: NDArray[np.float32], k: int) -> NDArray[np.int64] | None:
        """The labels of the best codes; None where labels are removed or moved, or searched without codes."""
        wanted = max(self._num_candidates(), CANDIDATES_PER_PLACE * k)
        is_plain = not self._removed.size and not self._points.any_moved and len(queries_BD) <= SHORTLISTED_AT_ONCE
        if not is_plain or self._codes is None or self._codes.ntotal <= wanted:
            return None
        with threads_for(len(queries_BD)):
            found: NDArray[np.int64] = self._codes.search(self._padded(queries_BD), wanted)[1]
        return found

    def _append(self, vectors: Vectors) -> None:
        for start in range(0, len(vectors), ROWS_AT_ONCE):
            self._flat.add(as_array(vectors[start : start + ROWS_AT_ONCE]))
        self._points.add(len(vectors))
        self._code(np.arange(self.num_ids - len(vectors), self.num_ids))

    def _move(self, ids: NDArray[np.int64], vectors: Vectors) -> None:
        stored_vectors(self._flat)[ids] = as_array(vectors)
        if self._codes is not None:
            self._points.move(ids)
            self._code(ids)

    def _code(self, ids: NDArray[np.int64]) -> None:
        """Append the codes of labels whose points were appended; or learn the codes of all again, when due."""
        # One thread: sums in another order may choose another code, and the same labels must give the same index.
        with threads(1):
            if self._codes is None or len(self._points.labels_P) >= 2 * self._learned_from:
                if self.num_ids < CODED_FROM:
                    return
                self._codes, self._learned_from = self._learned(), self.num_ids
                ids, self._points = np.arange(self.num_ids), Points.of(self.num_ids)
            for start in range(0, len(ids), ROWS_AT_ONCE):
                self._codes.add(self._padded(stored_vectors(self._flat)[ids[start : start + ROWS_AT_ONCE]]))

    def _learned(self) -> Any:
        """Codes and lists learned from the labels, or from some of them where there are many; still without labels."""
        faiss = library()
        num_lists = self._settings.lists or chosen_lists(self.num_ids)
        num_lists = min(num_lists, self.num_ids // LEARNED_PER_LIST)
        width = coded_width(self.dim, self._settings.numbers_a_piece)
        num_pieces = width // piece_length(self.dim, self._settings.numbers_a_piece)
        if num_lists <= 1:
            codes = faiss.IndexPQFastScan(width, num_pieces, 4, faiss.METRIC_INNER_PRODUCT)
            codes.qbs = TEXTS_PER_SCAN
        else:
            quantizer = faiss.IndexFlatIP(width)
            codes = faiss.IndexIVFPQFastScan(quantizer, width, num_lists, num_pieces, 4, faiss.METRIC_INNER_PRODUCT)
            # Codes of what remains beside a list's centre measured lower recall of inner products.
            codes.by_residual = False
            codes.nprobe = min(self._settings.probes, num_lists)
        vectors = stored_vectors(self._flat)
        num_learned = max(LEARNED_PER_LIST * num_lists, MIN_LEARNED)
        if num_learned < len(vectors):
            rows = np.random.default_rng(0).choice(len(vectors), num_learned, replace=False)
            vectors = vectors[np.sort(rows)]
        codes.train(self._padded(vectors))
        return codes

    def _num_candidates(self) -> int:
        return self._settings.candidates or (CANDIDATES_WITH_LISTS if hasattr(self._codes, "nprobe") else CANDIDATES)

    def _search_codes(
        self, queries: NDArray[np.float32], k: int, fetched: int, wanted: int, hidden: NDArray[np.bool_] | None
    ) -> TopK:
        with threads_for(len(queries)):
            found = self._codes.search(self._padded(queries), fetched)[1]
        ids_BC = self._points.labels(found)
        if hidden is not None:
            ids_BC[hidden[ids_BC]] = -1
        best = self._scored(queries, ids_BC, k)
        return self._fill_short(best, np.count_nonzero(ids_BC >= 0, axis=1) < wanted / 2, queries, hidden)

    def _scored(self, queries: NDArray[np.float32], ids_BC: NDArray[np.int64], k: int) -> TopK:
        """The first k candidates in order of their inner products with the texts; an id of -1 is none."""
        return TopK.rank(ids_BC, self.inner_products(queries, ids_BC), k)

    def _padded(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """The vectors with as many zeros behind them as make whole pieces."""
        missing = coded_width(self.dim, self._settings.numbers_a_piece) - self.dim
        if not missing:
            return vectors
        padded = np.zeros((len(vectors), self.dim + missing), dtype=np.float32)
        padded[:, : self.dim] = vectors
        return padded


def chosen_lists(num_labels: int) -> int:
    """How many lists so many labels are sorted into: the power of two nearest to 1.5 sqrt(labels).

    >>> chosen_lists(27_000), chosen_lists(100_000), chosen_lists(500_000)
    (1, 512, 1024)
    """
    return 1 if num_labels < LISTED_FROM else 2 ** round(math.log2(1.5 * math.sqrt(num_labels)))


def piece_length(dim: int, numbers_a_piece: int) -> int:
    """How many numbers share a code, chosen by the width of the vectors where ``numbers_a_piece`` is 0.

    >>> piece_length(256, 0), piece_length(128, 0), piece_length(10, 0), piece_length(256, 8)
    (4, 2, 1, 8)
    """
    return numbers_a_piece or max(1, min(NUMBERS_PER_PIECE, dim // MIN_PIECES))


def coded_width(dim: int, numbers_a_piece: int) -> int:
    """Numbers of whole pieces that a vector is filled up to.

    >>> coded_width(256, 0), coded_width(257, 0), coded_width(256, 5)
    (256, 260, 260)
    """
    length = piece_length(dim, numbers_a_piece)
    return -(-dim // length) * length
