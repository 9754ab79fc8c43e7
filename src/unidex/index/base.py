"""What every index promises, and the two ways to get one: ``build`` and ``load``.

An index finds, for each text vector, the labels whose vectors have the highest inner product with it. How it looks for
them is in one module per kind.

Shapes: B texts, L labels, D dimensions, K places.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unidex import native
from unidex.errors import ConfigError, listed, quoted
from unidex.index.checks import Vectors, check_ids, check_k, check_replaced, check_vectors, hidden_labels
from unidex.index.manifest import read_manifest, saved_folder
from unidex.storage.mapped import load_array
from unidex.topk import TopK

KINDS = {
    "disk": "unidex.index.disk:DiskIndex",
    "exact": "unidex.index.exact:ExactIndex",
    "hnsw": "unidex.index.hnsw:HnswIndex",
    "pq": "unidex.index.pq:PqIndex",
}
# In a database: `unidex export` fills it, no setting chooses it.
REMOTE = {
    "milvus": "unidex.index.milvus:MilvusIndex",
    "pgvector": "unidex.index.pgvector:PgvectorIndex",
}
# Needs more than label vectors: a trained network builds it, no setting chooses it.
_BUILT_BY_NETWORK = {"tree": "unidex.index.tree:TreeIndex"}
_MULTIPLIED_AT_ONCE = 1 << 20  # numbers of label vectors in memory at once


class Index(ABC):
    """Label vectors that can be searched. A label's id is the number of its row; it never changes.

    Laws: places are ordered by score, ties by the lower id; where there are fewer labels than places the rest is
    padding (id -1, score -inf); a removed label is never returned and its id is never given to another. The vector of a
    removed label stays, so that the ids of the others do not change.

    Attributes:
        kind: its name in a recipe and in a saved folder.
        label_scale: of a label tree.
    """

    kind: str
    # With a label tree, the factor of a label's inner product in its logit; None where a score is an inner product.
    label_scale: float | None = None

    def __init__(self) -> None:
        self._removed: NDArray[np.int64] = np.empty(0, dtype=np.int64)

    @classmethod
    @abstractmethod
    def build(cls, vectors_LD: Vectors, **settings: Any) -> Self:
        """An index over these label vectors; ids are row numbers."""

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The index that ``save`` wrote."""
        folder = Path(folder)
        manifest = read_manifest(folder, cls.kind)
        index = cls._read(folder, manifest)
        index._removed = check_ids(load_array(folder / "removed.npy", (None,)), manifest["num_ids"], "removed labels")
        return index

    def save(self, folder: Path) -> None:
        """Write the index to a folder; an index that is there already is replaced."""
        manifest = {"kind": self.kind, "num_ids": self.num_ids, "dim": self.dim, **self._about()}
        with saved_folder(folder, manifest) as new:
            np.save(new / "removed.npy", self._removed)
            self._write(new)

    @property
    def num_labels(self) -> int:
        """Number of labels that can be found, without the removed ones."""
        return self.num_ids - len(self._removed)

    @property
    @abstractmethod
    def num_ids(self) -> int:
        """Number of ids given so far, removed labels included; the next added label gets this id."""

    @property
    @abstractmethod
    def dim(self) -> int:
        """Numbers per label vector."""

    @property
    def query_dim(self) -> int:
        """Numbers per text vector."""
        return self.dim

    def search(
        self, queries_BD: Vectors, k: int, *, allowed: ArrayLike | None = None, forbidden: ArrayLike | None = None
    ) -> TopK:
        """The k best labels of each text.

        ``allowed`` are ids of the only labels that may be returned, ``forbidden`` ids of labels that are not returned.
        """
        check_k(k)
        check_vectors(queries_BD, "text vectors", self.query_dim)
        hidden = hidden_labels(self.num_ids, self._removed, allowed, forbidden)
        return self._search(queries_BD, k, hidden, self.num_ids if hidden is None else int(np.count_nonzero(~hidden)))

    def shortlist(self, queries_BD: NDArray[np.float32], k: int) -> NDArray[np.int64] | None:
        """Ids of labels among which an index finds the k best of each text by their inner products; None without any.

        The queries must be finite, which is not checked again.
        """
        return None

    @abstractmethod
    def vectors(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """The vectors of labels, one per row."""

    def inner_products(
        self, queries_NC: NDArray[np.float32], ids_NK: NDArray[np.int64], first: int = 0
    ) -> NDArray[np.float32]:
        """The inner product of each text with the vectors of its labels; -inf for an id below 0.

        Queries may be of some columns alone, from ``first`` on.
        """
        num_texts, width = ids_NK.shape
        found, columns = np.empty((num_texts, width), dtype=np.float32), queries_NC.shape[1]
        if not ids_NK.size:
            return found
        table = self.all_vectors()
        if table is not None and native.kernels is not None:
            queries, ids = np.ascontiguousarray(queries_NC), np.ascontiguousarray(ids_NK)
            native.kernels.inner_products(queries, table, ids, found, columns, table.shape[1], first, width)
            return found
        at_once = max(1, _MULTIPLIED_AT_ONCE // (width * columns))
        for start in range(0, num_texts, at_once):
            texts = slice(start, start + at_once)
            ids = ids_NK[texts]
            rows = self.vectors(np.maximum(ids, 0).ravel())[:, first : first + columns].reshape(*ids.shape, columns)
            # Summed one by one, so that a score does not depend on the texts and labels beside it.
            np.add.reduce(rows * queries_NC[texts, None, :], axis=2, out=found[texts])
        found[ids_NK < 0] = -np.inf
        return found

    def all_vectors(self) -> NDArray[np.float32] | None:
        """The vectors of all labels by id where they are one array in memory."""
        return None

    def add(self, vectors: Vectors) -> NDArray[np.int64]:
        """Append labels; the result is their ids."""
        check_vectors(vectors, "label vectors", self.dim)
        first = self.num_ids
        self._append(vectors)
        return np.arange(first, self.num_ids, dtype=np.int64)

    def remove(self, ids: ArrayLike) -> None:
        """Never return these labels again. The ids of the others do not change."""
        self._removed = np.union1d(self._removed, check_ids(ids, self.num_ids, "removed labels"))

    def replace(self, ids: ArrayLike, vectors: Vectors) -> None:
        """Give labels other vectors, one per row; their ids stay, and a removed label stays removed."""
        chosen = check_replaced(ids, vectors, self.num_ids, self.dim)
        if len(chosen):
            self._move(chosen, vectors)

    @classmethod
    @abstractmethod
    def _read(cls, folder: Path, manifest: dict[str, Any]) -> Self:
        """The index in a folder, without its removed labels."""

    @abstractmethod
    def _write(self, folder: Path) -> None:
        """Write everything but the manifest and the removed labels."""

    def _about(self) -> dict[str, Any]:
        """What the manifest says of this kind alone."""
        return {"settings": {}}

    @abstractmethod
    def _search(self, queries_BD: Vectors, k: int, hidden: NDArray[np.bool_] | None, num_visible: int) -> TopK:
        """The k best of the labels that are not hidden, of which there are ``num_visible``."""

    @abstractmethod
    def _append(self, vectors: Vectors) -> None:
        """Store vectors of new labels, and make them searchable."""

    @abstractmethod
    def _move(self, ids: NDArray[np.int64], vectors: Vectors) -> None:
        """Store other vectors for labels, at least one, and make them searchable by the new ones only."""


def build(kind: str, vectors_LD: Vectors, **settings: Any) -> Index:
    """An index of a kind over label vectors.

    >>> labels = np.array([[1.0, 0.0], [0.0, 1.0]], dtype=np.float32)
    >>> index = build("exact", labels)
    >>> index.search(np.array([[0.2, 0.9]], dtype=np.float32), k=1).ids.tolist()
    [[1]]
    """
    cls = _class_of(kind)
    try:
        return cls.build(vectors_LD, **settings)
    except TypeError as error:
        if "unexpected keyword" not in str(error):
            raise
        raise ConfigError(f"index {kind!r} does not know a setting: {str(error).split(') ')[-1]}") from None


def load(folder: Path) -> Index:
    """The index in a folder, whatever its kind."""
    folder = Path(folder)
    return _class_of(read_manifest(folder)["kind"]).load(folder)


def _class_of(kind: str) -> type[Index]:
    kinds = KINDS | REMOTE | _BUILT_BY_NETWORK
    if kind not in kinds:
        raise ConfigError(f"an index must be one of {listed(KINDS)}, but is {quoted(kind)}")
    # Imported on demand: the protocol can be used without torch or faiss.
    module, name = kinds[kind].split(":")
    found: type[Index] = getattr(importlib.import_module(module), name)
    return found
