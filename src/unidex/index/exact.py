"""Exact search: every score is computed, block by block, and only the best places are kept.

A block's scores come from one matrix product. How the best of them are chosen is in ``best_places``. Arrays are
searched by NumPy, so that a model predicts without loading torch; what only torch can do is in ``tensor_search``.

Shapes: B texts, L labels, D dimensions, K places.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from unidex.index.base import Index
from unidex.index.best_places import GROUP, best_of_all
from unidex.index.checks import Vectors, check_k, check_vectors, hidden_labels
from unidex.index.stored_rows import read_rows, write_rows
from unidex.storage.growing_rows import GrowingRows
from unidex.topk import TopK

if TYPE_CHECKING:
    import torch
    from torch import Tensor

# Scores in memory at once, 16 MB of float32; more labels than this are searched by torch, block by block.
SCORES_AT_ONCE = 1 << 22
PAIRS_AT_ONCE = 1 << 12
GATHER_BELOW = 0.25  # share of visible labels below which they are copied out instead of scored with the rest
ROWS_AT_ONCE = 1 << 14
# Vectors are copied for a faster product: of fewer texts the copy takes as long as their scores, and large ones have no
# room for it.
_MANY_TEXTS, _MAX_COPIED = 64, 1 << 25


class RowSource(Protocol):
    """Label vectors that are computed where they are read, with the methods of a tensor that a search uses."""

    shape: tuple[int, int]

    @property
    def device(self) -> torch.device:
        """The device of the vectors."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice, /) -> Tensor: ...

    def index_select(self, dim: int, ids: Tensor, /) -> Tensor:
        """Rows by number."""
        ...


def search_exact(
    queries: Vectors,
    vectors: Vectors | RowSource,
    k: int,
    *,
    allowed: ArrayLike | None = None,
    forbidden: ArrayLike | None = None,
    excluded: sparse.csr_array | None = None,
    device: str | torch.device | None = None,
) -> TopK:
    """The k labels of highest inner product of each text; never more than one block of scores in memory.

    Args:
        queries: B x D, one vector per text.
        vectors: L x D, one vector per label; may be mapped from a file, which is then read once, or computed by block.
        k: number of places.
        allowed: ids of the only labels that may be returned; all where None.
        forbidden: ids of labels that are not returned.
        excluded: B x L, pairs that are not returned (training positives, filter pairs); a stored value counts,
            whatever it is.
        device: where the scores are computed; where the label vectors are, if None. Label vectors that are elsewhere
            are sent there block by block.

    >>> labels = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], dtype=np.float32)
    >>> search_exact(np.array([[1.0, 0.5]], dtype=np.float32), labels, k=2).ids.tolist()
    [[0, 2]]
    >>> known = sparse.csr_array(np.array([[1, 0, 0]]))
    >>> search_exact(np.array([[1.0, 0.5]], dtype=np.float32), labels, k=2, excluded=known).ids.tolist()
    [[2, 1]]
    """
    if len(vectors.shape) != 2:
        raise ValueError(f"label vectors must have two dimensions [number, dim], but have {tuple(vectors.shape)}")
    hidden = hidden_labels(len(vectors), np.empty(0, dtype=np.int64), allowed, forbidden)
    return _search([vectors], queries, k, hidden=hidden, excluded=excluded, device=device)


class ExactIndex(Index):
    """Label vectors in memory, on a device or mapped from a file, searched exactly.

    >>> index = ExactIndex.build(np.eye(3, dtype=np.float32))
    >>> index.remove([0])
    >>> index.add(np.array([[0.5, 0.0, 0.0]], dtype=np.float32)).tolist()
    [3]
    >>> index.search(np.array([[1.0, 0.1, 0.0]], dtype=np.float32), k=2).ids.tolist()
    [[3, 1]]
    """

    kind = "exact"

    def __init__(self, vectors_LD: Vectors, *, shared: bool = True) -> None:
        super().__init__()
        # The first part may be mapped from a file or on a device; labels that are added later are in the second.
        self._parts: list[Vectors] = [vectors_LD]
        self._added = GrowingRows(int(vectors_LD.shape[1]))
        self._shared = shared  # whether the caller may use the first part too, so that it must not be written to

    @classmethod
    def build(cls, vectors_LD: Vectors, *, device: str | torch.device | None = None) -> Self:  # type: ignore[override]
        """An index over these vectors, which are not copied where they are float32 on the device already."""
        check_vectors(vectors_LD, "label vectors")
        if device is not None:
            from unidex.index.tensor_search import as_tensor

            vectors_LD = as_tensor(vectors_LD).to(device)
        if not isinstance(vectors_LD, np.ndarray) and _on_device(vectors_LD):
            return cls(vectors_LD.detach().float())
        return cls(as_rows(vectors_LD))

    @classmethod
    def _read(cls, folder: Path, manifest: dict[str, Any]) -> Self:
        """Vectors are mapped, copy-on-write: what is written to them stays in memory, and only the pages touched."""
        return cls(read_rows(folder, (manifest["num_ids"], manifest["dim"])), shared=False)

    def _write(self, folder: Path) -> None:
        write_rows(folder, (self.num_ids, self.dim), self._blocks())

    def _blocks(self) -> Sequence[NDArray[np.float32]]:
        return [
            as_rows(part[start : start + ROWS_AT_ONCE])
            for part in self._parts
            for start in range(0, len(part), ROWS_AT_ONCE)
        ]

    @property
    def num_ids(self) -> int:
        """Over both parts."""
        return sum(len(part) for part in self._parts)

    @property
    def dim(self) -> int:
        """Numbers per vector."""
        return int(self._parts[0].shape[1])

    def _search(self, queries_BD: Vectors, k: int, hidden: NDArray[np.bool_] | None, num_visible: int) -> TopK:
        return _search(self._parts, queries_BD, k, hidden=hidden, excluded=None, device=None)

    def vectors(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """The vectors of labels, one per row."""
        if len(self._parts) == 1:
            return as_rows(self._parts[0][ids])
        found = np.empty((len(ids), self.dim), dtype=np.float32)
        first = 0
        for part in self._parts:
            here = (ids >= first) & (ids < first + len(part))
            found[here] = as_rows(part[ids[here] - first])
            first += len(part)
        return found

    def all_vectors(self) -> NDArray[np.float32] | None:
        """The first part where there is no other, in memory or mapped."""
        rows = self._parts[0]
        is_plain = len(self._parts) == 1 and isinstance(rows, np.ndarray) and rows.dtype == np.float32
        return rows if is_plain and rows.flags.c_contiguous else None  # type: ignore[return-value, union-attr]

    def _append(self, vectors: Vectors) -> None:
        self._added.append(as_rows(vectors))
        self._parts[1:] = [self._added.rows]

    def _move(self, ids: NDArray[np.int64], vectors: Vectors) -> None:
        """Vectors that ``build`` was given are copied first, once."""
        new_ND = as_rows(vectors)
        first = 0
        for number, part in enumerate(self._parts):
            here = np.flatnonzero((ids >= first) & (ids < first + len(part)))
            if len(here) and number == 0 and (self._shared or not isinstance(part, np.ndarray)):
                part, self._shared = as_rows(part).copy(), False
                self._parts[0] = part
            if isinstance(part, np.ndarray):
                part[ids[here] - first] = new_ND[here]
            first += len(part)


def as_rows(vectors: Vectors) -> NDArray[np.float32]:
    """The same numbers as a float32 array in memory, not copied where they are one already."""
    found = vectors if isinstance(vectors, np.ndarray) else vectors.detach().float().cpu().numpy()
    return np.ascontiguousarray(found, dtype=np.float32)


def _on_device(vectors: Vectors) -> bool:
    return not isinstance(vectors, np.ndarray) and vectors.device.type != "cpu"


def _search(
    parts: Sequence[Vectors | RowSource],
    queries: Vectors,
    k: int,
    *,
    hidden: NDArray[np.bool_] | None,
    excluded: sparse.csr_array | None,
    device: str | torch.device | None,
) -> TopK:
    check_k(k)
    check_vectors(queries, "text vectors", parts[0].shape[1])
    num_texts, num_ids = len(queries), sum(len(part) for part in parts)
    if excluded is not None and excluded.shape != (num_texts, num_ids):
        raise ValueError(f"excluded pairs must have shape {(num_texts, num_ids)}, but have {excluded.shape}")
    arrays = [part for part in parts if isinstance(part, np.ndarray)]
    is_plain = len(arrays) == len(parts) and isinstance(queries, np.ndarray) and device is None
    if is_plain and excluded is None and num_ids <= SCORES_AT_ONCE:
        return search_arrays(arrays, as_rows(queries), k, hidden)
    from unidex.index.tensor_search import search_tensors

    return search_tensors(parts, queries, k, hidden=hidden, excluded=excluded, device=device)


def search_arrays(
    parts: Sequence[NDArray[np.float32]], queries_BD: NDArray[np.float32], k: int, hidden: NDArray[np.bool_] | None
) -> TopK:
    """The k best labels of each text, from the scores of all labels for a block of texts at a time."""
    num_ids = sum(len(part) for part in parts)
    ids = np.arange(num_ids, dtype=np.int64)
    if hidden is not None and np.count_nonzero(~hidden) < GATHER_BELOW * num_ids:
        ids = np.flatnonzero(~hidden)
        parts, hidden = [_rows_of(parts, ids)], None
    width = -(-len(ids) // GROUP) * GROUP
    ids_N = np.concatenate([ids, np.full(width - len(ids), num_ids)])
    dead = np.arange(len(ids), width)
    if hidden is not None:
        dead = np.concatenate([np.flatnonzero(hidden), dead])
    at_once = max(1, SCORES_AT_ONCE // max(width, 1))
    scores_of = _products(parts, width, len(queries_BD))
    blocks = [TopK(np.empty((0, k), dtype=np.int64), np.empty((0, k), dtype=np.float32))]
    for start in range(0, len(queries_BD), at_once):
        texts_BD = queries_BD[start : start + at_once]
        scores_BN = scores_of(texts_BD)
        scores_BN[:, dead] = -np.inf
        rescore = partial(_pair_scores, parts, texts_BD)
        blocks.append(best_of_all(scores_BN, ids_N, k, rescore))
    return blocks[-1] if len(blocks) == 2 else TopK.concatenate(blocks)


def _products(
    parts: Sequence[NDArray[np.float32]], width: int, num_texts: int
) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
    """From some of so many texts to their scores, in rows of this width; what is behind the last label is anything.

    Which library multiplies changes no result: the best labels are scored again by themselves (``_pair_scores``).
    """
    is_worth_it = len(parts) == 1 and num_texts >= _MANY_TEXTS and parts[0].size <= _MAX_COPIED
    if is_worth_it and "torch" in sys.modules:
        # Where torch is loaded, as in training, there may be a product of twice the speed.
        from unidex.index.tensor_search import as_tensor
        from unidex.losses.products import rows_with_rows

        rows = rows_with_rows()
        if rows is not None:
            padded_ND = np.zeros((width, parts[0].shape[1]), dtype=np.float32)
            padded_ND[: len(parts[0])] = parts[0]
            labels_ND = as_tensor(padded_ND)
            return lambda texts_BD: rows(as_tensor(texts_BD), labels_ND).numpy()

    def multiplied(texts_BD: NDArray[np.float32]) -> NDArray[np.float32]:
        scores_BN = np.empty((len(texts_BD), width), dtype=np.float32)
        first = 0
        for part in parts:
            np.matmul(texts_BD, part.T, out=scores_BN[:, first : first + len(part)])
            first += len(part)
        return scores_BN

    return multiplied


def _rows_of(parts: Sequence[NDArray[np.float32]], rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """Rows of the parts one after the other."""
    if len(parts) == 1:
        return parts[0][rows]
    found = np.empty((len(rows), parts[0].shape[1]), dtype=np.float32)
    first = 0
    for part in parts:
        here = (rows >= first) & (rows < first + len(part))
        found[here] = part[rows[here] - first]
        first += len(part)
    return found


def _pair_scores(
    parts: Sequence[NDArray[np.float32]],
    texts_BD: NDArray[np.float32],
    text_P: NDArray[np.int64],
    row_P: NDArray[np.int64],
) -> NDArray[np.float32]:
    """The inner product of each pair by itself, whose rounding depends on the two vectors alone.

    Columns behind the last label have the score of no label.
    """
    found = np.empty(len(text_P), dtype=np.float32)
    for start in range(0, len(text_P), PAIRS_AT_ONCE):
        pairs = slice(start, start + PAIRS_AT_ONCE)
        np.einsum("pd,pd->p", texts_BD[text_P[pairs]], _rows_of(parts, row_P[pairs]), out=found[pairs])
    return found
