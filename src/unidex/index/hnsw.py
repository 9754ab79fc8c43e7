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
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from unidex.errors import ConfigError, ModelError
from unidex.index.checks import Vectors, check_vectors, check_whole_numbers
from unidex.index.exact import search_exact
from unidex.index.faiss_library import StoredVectors, as_array, library, reading, stored_vectors, threads, threads_for
from unidex.index.point_labels import Points
from unidex.topk import TopK

ADDED_AT_ONCE = 1 << 16
DETERMINISTIC_SINCE = (1, 15, 1)  # the faiss whose graph does not depend on the number of threads
STALE_FROM = 2  # points per label; at this many the graph is built again without the stale ones
EXACT_BELOW = 0.05  # share of visible labels below which the graph leads mostly to hidden ones


@dataclass(frozen=True)
class HnswSettings:
    """How the graph is built and searched."""

    m: int = 32  # links per label; more links, more memory and higher recall
    ef_construction: int = 200  # candidates examined when a label is linked
    ef_search: int = 128  # candidates kept during a search; the switch between speed and recall
    # The same vectors give the same graph. It costs nothing since faiss 1.15.1; an older faiss then builds on one
    # thread, because its graph differs a little from run to run when several threads link labels.
    deterministic: bool = True

    def __post_init__(self) -> None:
        check_whole_numbers("hnsw", self, {"m": 2, "ef_construction": 1, "ef_search": 1})
        if not isinstance(self.deterministic, bool):
            raise ConfigError(f"index 'hnsw': deterministic must be true or false, but is {self.deterministic!r}")


class HnswIndex(StoredVectors):
    """Label vectors in a navigable graph, searched approximately: see ``ef_search``.

    Where the graph finds fewer labels than there are, the text is searched exactly, so that places stay empty only
    where there are too few labels.

    >>> index = HnswIndex.build(np.eye(3, dtype=np.float32), m=4)
    >>> index.search(np.array([[0.1, 0.9, 0.2]], dtype=np.float32), k=2).ids.tolist()
    [[1, 2]]
    """

    kind = "hnsw"

    def __init__(self, graph: Any, points: Points, settings: HnswSettings) -> None:
        super().__init__()
        self._graph, self._settings = graph, settings
        self._points = points  # a label whose vector was replaced is a later point of the graph

    @classmethod
    def build(cls, vectors_LD: Vectors, **settings: Any) -> Self:
        """An index over these vectors, which are copied; ``settings`` as in ``HnswSettings``."""
        chosen = HnswSettings(**settings)
        check_vectors(vectors_LD, "label vectors")
        index = cls(_empty_graph(int(vectors_LD.shape[1]), chosen), Points.of(0), chosen)
        index._append(vectors_LD)
        return index

    @classmethod
    def _read(cls, folder: Path, manifest: dict[str, Any]) -> Self:
        faiss, file = library(), folder / "graph.faiss"
        with reading(folder):
            graph, settings = faiss.read_index(str(file)), HnswSettings(**manifest["settings"])
        points = Points.read(folder, manifest["num_ids"])
        size = len(points.labels_P), manifest["dim"]
        if not isinstance(graph, faiss.IndexHNSWFlat) or (graph.ntotal, graph.d) != size:
            raise ModelError(
                f"{file} must hold a graph of {size[0]} vectors of {size[1]} numbers as its manifest says, "
                f"but holds {graph.ntotal} of {graph.d}; build the index again"
            )
        return cls(graph, points, settings)

    def _about(self) -> dict[str, Any]:
        return {"settings": asdict(self._settings)}

    def _write(self, folder: Path) -> None:
        library().write_index(self._graph, str(folder / "graph.faiss"))
        self._points.write(folder)

    @property
    def _stored(self) -> Any:
        return library().downcast_index(self._graph.storage)

    @property
    def num_ids(self) -> int:
        """One per label; the graph may have more points."""
        return len(self._points.points_L)

    def vectors(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """The vectors of labels, one per row."""
        return stored_vectors(self._stored)[self._points.points_L[ids]]

    def all_vectors(self) -> NDArray[np.float32] | None:
        """The stored vectors; None where points are no labels any more."""
        return None if self._points.any_moved else super().all_vectors()

    def _search(self, queries_BD: Vectors, k: int, hidden: NDArray[np.bool_] | None, num_visible: int) -> TopK:
        faiss, queries = library(), as_array(queries_BD)
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
        with threads_for(len(queries)):
            scores, found = self._graph.search(queries, k, params=parameters)
        best = TopK.rank(self._points.labels(found), scores)
        return self._fill_short(best, best.ids[:, -1] < 0, queries, hidden)

    def _search_exactly(self, queries: NDArray[np.float32], k: int, hidden: NDArray[np.bool_] | None) -> TopK:
        if not self._points.any_moved:
            return super()._search_exactly(queries, k, hidden)
        # Ascending, so that ties go to the lower id.
        visible = np.arange(self.num_ids) if hidden is None else np.flatnonzero(~hidden)
        best = search_exact(queries, self.vectors(visible), k)
        return TopK(np.where(best.ids < 0, best.ids, visible[best.ids]) if len(visible) else best.ids, best.scores)

    def _append(self, vectors: Vectors) -> None:
        self._link(vectors)
        self._points.add(len(vectors))

    def _move(self, ids: NDArray[np.int64], vectors: Vectors) -> None:
        if len(self._points.labels_P) + len(ids) < STALE_FROM * self.num_ids:
            self._link(vectors)
            self._points.move(ids)
            return
        all_vectors = self.vectors(np.arange(self.num_ids))
        all_vectors[ids] = as_array(vectors)
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
