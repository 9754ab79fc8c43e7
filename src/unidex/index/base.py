"""What every index promises, the checks they share, and the two ways to get one: ``build`` and ``load``.

An index finds, for each text vector, the labels whose vectors have the highest inner product with it. How it looks for
them is in one module per kind.

Shapes: B texts, L labels, D dimensions, K places.
"""

from __future__ import annotations

import importlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unidex import native
from unidex.errors import ConfigError, ModelError, listed, quoted
from unidex.storage.atomic import write_folder
from unidex.storage.mapped import load_array
from unidex.topk import TopK

if TYPE_CHECKING:
    from torch import Tensor

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
FORMAT = 1
_MANIFEST = "manifest.json"
_MULTIPLIED_AT_ONCE = 1 << 20  # numbers of label vectors in memory at once
_CHECKED_AT_ONCE = 1 << 22  # numbers checked in one step, so that a mapped file is never read whole

Vectors: TypeAlias = "NDArray[np.floating[Any]] | Tensor"


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


def check_vectors(vectors: Vectors, what: str, dim: int | None = None, *, first: int = 0) -> None:
    """Refuse what is not a table of finite numbers with ``dim`` columns; ``first`` is the number of its first row.

    >>> check_vectors(np.array([[1.0, np.nan]]), "label vectors")
    Traceback (most recent call last):
    ...
    ValueError: label vectors must be finite numbers, but row 0 is not; look for a division by zero
    """
    if vectors.ndim != 2:
        raise ValueError(f"{what} must have two dimensions [number, dim], but have shape {tuple(vectors.shape)}")
    num_rows, found = vectors.shape
    if found == 0 or (dim is not None and found != dim):
        wanted = "at least one number" if dim is None else f"{dim} numbers"
        raise ValueError(
            f"{what} must have {wanted} per row like the index, but have {found}; encode them with its model"
        )
    if isinstance(vectors, np.ndarray) and vectors.size <= _CHECKED_AT_ONCE and np.isfinite(vectors).all():
        return
    rows_at_once = max(1, _CHECKED_AT_ONCE // found)
    for start in range(0, num_rows, rows_at_once):
        block = vectors[start : start + rows_at_once]
        if isinstance(block, np.ndarray):
            finite = np.isfinite(block).all(axis=1)
        else:
            finite = block.isfinite().all(dim=1).cpu().numpy()
        if not finite.all():
            row = first + start + int(np.argmin(finite))
            raise ValueError(f"{what} must be finite numbers, but row {row} is not; look for a division by zero")


def check_k(k: int) -> None:
    """Refuse a number of places below one."""
    if k < 1:
        raise ValueError(f"k must be at least 1, but is {k}")


def check_ids(ids: ArrayLike, num_ids: int, what: str) -> NDArray[np.int64]:
    """Label ids as a sorted array without repetition.

    >>> check_ids([3, 1, 3], 4, "removed labels").tolist()
    [1, 3]
    """
    found = np.unique(np.asarray(ids))
    if found.size == 0:
        return np.empty(0, dtype=np.int64)
    if not np.issubdtype(found.dtype, np.integer):
        raise ValueError(f"{what} must be label ids (whole numbers), but are {found.dtype}")
    if found[0] < 0 or found[-1] >= num_ids:
        wrong = found[(found < 0) | (found >= num_ids)]
        raise ValueError(f"{what} must be label ids below {num_ids}, but some are not: {listed(wrong.tolist())}")
    return found.astype(np.int64)


def check_replaced(ids: ArrayLike, vectors: Vectors, num_ids: int, dim: int) -> NDArray[np.int64]:
    """Label ids in the given order, each once, one per vector.

    >>> check_replaced([2, 0], np.ones((2, 3)), num_ids=4, dim=3).tolist()
    [2, 0]
    """
    given = np.asarray(ids)
    if given.ndim != 1:
        raise ValueError(f"replaced labels must be a list of ids, but have shape {given.shape}")
    check_vectors(vectors, "label vectors", dim)
    if len(given) != len(vectors):
        raise ValueError(
            f"there must be one vector per replaced label, but there are {len(vectors)} vectors and {len(given)} labels"
        )
    if len(check_ids(given, num_ids, "replaced labels")) < len(given):
        found, counts = np.unique(given, return_counts=True)
        again = found[counts > 1].tolist()
        raise ValueError(f"replaced labels must differ, but some come more than once: {listed(again)}; name each once")
    return given.astype(np.int64)


def check_whole_numbers(kind: str, settings: Any, minimums: Mapping[str, int]) -> None:
    """Refuse settings of an index that are not whole numbers from their minimum on."""
    for name, minimum in minimums.items():
        value = getattr(settings, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise ConfigError(f"index {kind!r}: {name} must be a whole number >= {minimum}, but is {value!r}")


def hidden_labels(
    num_ids: int, removed: NDArray[np.int64], allowed: ArrayLike | None, forbidden: ArrayLike | None
) -> NDArray[np.bool_] | None:
    """Which ids must not be returned: removed, forbidden, or outside the allowed; None where every id may be.

    >>> hidden_labels(4, np.array([0]), allowed=[0, 1, 2], forbidden=[2]).tolist()
    [True, False, True, True]
    """
    if allowed is None and forbidden is None and removed.size == 0:
        return None
    hidden = np.zeros(num_ids, dtype=bool)
    if allowed is not None:
        hidden[:] = True
        hidden[check_ids(allowed, num_ids, "allowed labels")] = False
    if forbidden is not None:
        hidden[check_ids(forbidden, num_ids, "forbidden labels")] = True
    hidden[removed] = True
    return hidden


@contextmanager
def saved_folder(folder: Path, manifest: dict[str, Any]) -> Iterator[Path]:
    """Yield a hidden folder to write an index into, which becomes ``folder`` at the end of the block.

    A crash leaves the old index or the new one. An index may be saved over the files it is mapped from.
    """
    folder = Path(folder)
    if folder.exists() and any(folder.iterdir()) and not (folder / _MANIFEST).is_file():
        raise ModelError(
            f"an index must be saved to a new folder or over another index, but {folder} holds other files"
        )
    with write_folder(folder) as new:
        yield new
        (new / _MANIFEST).write_text(json.dumps({"format": FORMAT, **manifest}, indent=2) + "\n", encoding="utf-8")


def read_manifest(folder: Path, kind: str | None = None) -> dict[str, Any]:
    """The manifest of a saved index, checked for its form and, where given, its kind."""
    file = Path(folder) / _MANIFEST
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(
            f"an index folder must hold {_MANIFEST}, but {folder} does not; build the index again"
        ) from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{file} cannot be read ({error}); build the index again") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        found = manifest.get("format") if isinstance(manifest, dict) else manifest
        raise ModelError(f"{file} must have format {FORMAT}, but has {quoted(found)}; build the index again")
    for key, wanted in (("kind", str), ("num_ids", int), ("dim", int), ("settings", dict)):
        if not isinstance(manifest.get(key), wanted):
            raise ModelError(f"{file} must name {key!r}, but does not; build the index again")
    if kind is not None and manifest["kind"] != kind:
        raise ModelError(f"{file} must be of an index {kind!r}, but is of {quoted(manifest['kind'])}")
    return manifest
