"""Approximate search in a graph of label vectors (faiss HNSW): a search looks at a few thousand labels, not at all.

The graph is built on inner products as they are. The textbook reduction to distances (one more dimension that makes all
norms equal) is not used: on vectors of equal norm it gives the same graph, and on clustered vectors of unequal norm it
measured far worse. Where norms differ and every score is negative the graph misses nearly everything: search such
vectors exactly (docs/reference/search-index.md has the numbers).

Shapes: B texts, L labels, D dimensions, K places.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unidex.errors import ConfigError, ModelError
from unidex.index.base import (
    Vectors,
    check_k,
    check_vectors,
    check_whole_numbers,
    hidden_labels,
    read_manifest,
    saved_folder,
)
from unidex.index.faiss_library import StoredVectors, as_array, library, stored_vectors, threads
from unidex.index.point_labels import Points
from unidex.topk import TopK

if TYPE_CHECKING:
    pass

ADDED_AT_ONCE = 1 << 16
DETERMINISTIC_SINCE = (1, 15, 1)  # the faiss whose graph does not depend on the number of threads
STALE_FROM = 2  # points per label; at this many the graph is built again without the stale ones
EXACT_BELOW = 0.05  # share of visible labels below which the graph leads mostly to hidden ones


@dataclass(frozen=True)
class HnswSettings:
    """How the graph is built and searched.

    Attributes:
        m: links per label; more links, more memory and higher recall.
        ef_construction: candidates examined when a label is linked.
        ef_search: candidates kept during a search; the switch between speed and recall.
        deterministic: the same vectors give the same graph. It costs nothing since faiss 1.15.1; an older faiss then
            builds on one thread, because its graph differs a little from run to run when several threads link labels.
    """

    m: int = 32
    ef_construction: int = 200
    ef_search: int = 128
    deterministic: bool = True

    def __post_init__(self) -> None:
        check_whole_numbers("hnsw", self, {"m": 2, "ef_construction": 1, "ef_search": 1})
        if not isinstance(self.deterministic, bool):
            raise ConfigError(f"index 'hnsw': deterministic must be true or false, but is {self.deterministic!r}")


class HnswIndex(StoredVectors):
    """Label vectors in a navigable graph.

    >>> index = HnswIndex.build(np.eye(3, dtype=np.float32), m=4)
    >>> index.search(np.array([[0.1, 0.9, 0.2]], dtype=np.float32), k=2).ids.tolist()
    [[1, 2]]
    """

    def __init__(self, graph: Any, points: Points, settings: HnswSettings, removed: NDArray[np.int64]) -> None:
        self._graph = graph
        self._points = points  # a label whose vector was replaced is a later point of the graph
        self._settings = settings
        self._removed = removed

    @classmethod
    def build(cls, vectors_LD: Vectors, **settings: Any) -> Self:
        """An index over these vectors, which are copied; ``settings`` as in ``HnswSettings``."""
        chosen = HnswSettings(**settings)
        check_vectors(vectors_LD, "label vectors")
        graph = _empty_graph(int(vectors_LD.shape[1]), chosen)
        index = cls(graph, Points.of(0), chosen, np.empty(0, dtype=np.int64))
        index._append(vectors_LD)
        return index

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The index that ``save`` wrote."""
        faiss = library()
        folder = Path(folder)
        manifest = read_manifest(folder, "hnsw")
        file = folder / "graph.faiss"
        try:
            graph = faiss.read_index(str(file))
            settings = HnswSettings(**manifest["settings"])
        except (RuntimeError, TypeError) as error:
            reason = str(error).strip().splitlines()[0]
            raise ModelError(f"{folder} is not a whole index ({reason}); build the index again") from None
        points = Points.read(folder, manifest["num_ids"])
        size = len(points.labels_P), manifest["dim"]
        if not isinstance(graph, faiss.IndexHNSWFlat) or (graph.ntotal, graph.d) != size:
            raise ModelError(
                f"{file} must hold a graph of {size[0]} vectors of {size[1]} numbers as its manifest says, "
                f"but holds {graph.ntotal} of {graph.d}; build the index again"
            )
        removed = cls.load_removed(folder, manifest["num_ids"])
        return cls(graph, points, settings, removed)

    def save(self, folder: Path) -> None:
        """Write ``manifest.json``, ``graph.faiss`` (vectors and links), ``removed.npy`` and perhaps ``points.npy``."""
        faiss = library()
        manifest = {"kind": "hnsw", "num_ids": self.num_ids, "dim": self.dim, "settings": asdict(self._settings)}
        with saved_folder(folder, manifest) as new:
            faiss.write_index(self._graph, str(new / "graph.faiss"))
            np.save(new / "removed.npy", self._removed)
            self._points.write(new)

    @property
    def _stored(self) -> Any:
        return library().downcast_index(self._graph.storage)

    @property
    def num_ids(self) -> int:
        """Number of ids given so far, removed labels included; the next added label gets this id."""
        return len(self._points.points_L)

    def vectors(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """The vectors of labels, one per row."""
        return stored_vectors(self._stored)[self._points.points_L[ids]]

    def search(
        self,
        queries_BD: Vectors,
        k: int,
        *,
        allowed: ArrayLike | None = None,
        forbidden: ArrayLike | None = None,
    ) -> TopK:
        """The k best labels of each text, approximately: see ``ef_search``.

        Where the graph finds fewer labels than there are, the text is searched exactly, so that places stay empty only
        where there are too few labels.
        """
        faiss = library()
        check_k(k)
        check_vectors(queries_BD, "text vectors", self.dim)
        queries = as_array(queries_BD)
        hidden = hidden_labels(self.num_ids, self._removed, allowed, forbidden)
        num_visible = self.num_ids if hidden is None else int(np.count_nonzero(~hidden))
        if num_visible <= max(k, EXACT_BELOW * self.num_ids) or len(queries) == 0:
            return self._search_exactly(queries, k, hidden)
        parameters = faiss.SearchParametersHNSW()
        parameters.efSearch = max(self._settings.ef_search, k)
        hidden_points = self._points.hidden(hidden)
        if hidden_points is not None:
            # Both are named, because faiss keeps no reference to them from Python.
            bits = np.packbits(~hidden_points, bitorder="little")
            selector = faiss.IDSelectorBitmap(bits)
            parameters.sel = selector
        scores, found = self._graph.search(queries, k, params=parameters)
        best = TopK.rank(self._points.labels(found), scores)
        short = np.flatnonzero(best.ids[:, -1] < 0)
        if short.size:
            exact = self._search_exactly(queries[short], k, hidden)
            best.ids[short], best.scores[short] = exact.ids, exact.scores
        return best

    def _search_exactly(self, queries: NDArray[np.float32], k: int, hidden: NDArray[np.bool_] | None) -> TopK:
        if not self._points.any_moved:
            return super()._search_exactly(queries, k, hidden)
        from unidex.index.exact import search_exact

        # Ascending, so that ties go to the lower id.
        visible = np.arange(self.num_ids) if hidden is None else np.flatnonzero(~hidden)
        best = search_exact(queries, self.vectors(visible), k)
        return TopK(np.where(best.ids < 0, best.ids, visible[best.ids]) if len(visible) else best.ids, best.scores)

    def _append(self, vectors: Vectors) -> None:
        self._link(vectors)
        self._points.add(len(vectors))

    def _move(self, ids: NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
        if len(self._points.labels_P) + len(ids) < STALE_FROM * self.num_ids:
            self._link(vectors)
            self._points.move(ids)
            return
        all_vectors = self.vectors(np.arange(self.num_ids))
        all_vectors[ids] = vectors
        self._graph, self._points = _empty_graph(self.dim, self._settings), Points.of(0)
        self._append(all_vectors)

    def _link(self, vectors: Vectors) -> None:
        with threads(build_threads(library().__version__, self._settings.deterministic)):
            for start in range(0, len(vectors), ADDED_AT_ONCE):
                self._graph.add(as_array(vectors[start : start + ADDED_AT_ONCE]))


def _empty_graph(dim: int, settings: HnswSettings) -> Any:
    faiss = library()
    graph = faiss.IndexHNSWFlat(dim, settings.m, faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction = settings.ef_construction
    return graph


def build_threads(faiss_version: str, deterministic: bool) -> int | None:
    """How many threads may build the graph; None leaves the choice to faiss.

    >>> build_threads("1.15.1", deterministic=True), build_threads("1.9.0", deterministic=True)
    (None, 1)
    """
    version = tuple(int(part) for part in re.findall(r"\d+", faiss_version)[:3])
    return 1 if deterministic and version < DETERMINISTIC_SINCE else None
