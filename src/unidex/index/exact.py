"""Exact search: every score is computed, block by block, and only the running best places are kept.

A block's scores come from one matrix product. How the best of them are chosen is in ``best_places``.

Shapes: B texts, L labels, N labels of a block, D dimensions, K places.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from torch import Tensor

from unidex.index.base import Index, Vectors, check_k, check_vectors, hidden_labels
from unidex.index.best_places import RunningTopK, best_of_all
from unidex.nn.row_table import RowTable
from unidex.sparse_rows import find_sorted
from unidex.storage.mapped import load_array
from unidex.topk import TopK

# A matrix product rounds the last columns of an odd width differently from the rest, so that equal vectors would get
# unequal scores and a tie would go to the wrong label. Every block is as wide as a multiple of this: no odd columns.
WIDTH_MULTIPLE = 128
SCORES_AT_ONCE = 1 << 24  # 64 MB of float32
LABELS_AT_ONCE = 1 << 14
WHOLE_UP_TO = 1 << 22  # scores; up to this many are computed in one step
GATHER_BELOW = 0.25  # share of visible labels below which they are copied out instead of scored with the rest


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
    labels_LD = as_tensor(vectors) if isinstance(vectors, np.ndarray | Tensor) else vectors
    if len(labels_LD.shape) != 2:
        raise ValueError(f"label vectors must have two dimensions [number, dim], but have {tuple(labels_LD.shape)}")
    hidden = hidden_labels(len(labels_LD), np.empty(0, dtype=np.int64), allowed, forbidden)
    where = labels_LD.device if device is None else torch.device(device)
    return _search([labels_LD], queries, k, hidden=hidden, excluded=excluded, device=where)


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

    def __init__(self, vectors_LD: Tensor, *, shared: bool = True) -> None:
        super().__init__()
        # The first part may be mapped from a file; labels that are added later are in the second, in memory.
        self._parts = [vectors_LD]
        self._added = RowTable(torch.empty(0, vectors_LD.shape[1], device=vectors_LD.device))
        self._shared = shared  # whether the caller may use the first part too, so that it must not be written to

    @classmethod
    def build(cls, vectors_LD: Vectors, *, device: str | torch.device | None = None) -> Self:  # type: ignore[override]
        """An index over these vectors, which are not copied where they are float32 on the device already."""
        check_vectors(vectors_LD, "label vectors")
        return cls(as_tensor(vectors_LD).to(device))

    @classmethod
    def _read(cls, folder: Path, manifest: dict[str, Any]) -> Self:
        """Vectors are mapped, copy-on-write: what is written to them stays in memory, and only the pages touched."""
        shape = (manifest["num_ids"], manifest["dim"])
        vectors = load_array(folder / "vectors.npy", shape, mapped=shape[0] > 0)
        return cls(as_tensor(vectors), shared=False)

    def _write(self, folder: Path) -> None:
        shape = (self.num_ids, self.dim)
        if shape[0] == 0:
            np.save(folder / "vectors.npy", np.empty(shape, dtype=np.float32))
            return
        file = np.lib.format.open_memmap(folder / "vectors.npy", mode="w+", dtype=np.float32, shape=shape)
        written = 0
        for part in self._parts:
            for block in torch.split(part, LABELS_AT_ONCE):
                file[written : written + len(block)] = block.cpu().numpy()
                written += len(block)
        file.flush()

    @property
    def num_ids(self) -> int:
        """Over both parts."""
        return sum(len(part) for part in self._parts)

    @property
    def dim(self) -> int:
        """Numbers per vector."""
        return self._parts[0].shape[1]

    def _search(self, queries_BD: Vectors, k: int, hidden: NDArray[np.bool_] | None, num_visible: int) -> TopK:
        return _search(self._parts, queries_BD, k, hidden=hidden, excluded=None, device=self._parts[0].device)

    def vectors(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """The vectors of labels, one per row."""
        found = np.empty((len(ids), self.dim), dtype=np.float32)
        first = 0
        for part in self._parts:
            here = (ids >= first) & (ids < first + len(part))
            rows = torch.from_numpy(ids[here] - first).to(part.device)
            found[here] = part.index_select(0, rows).cpu().numpy()
            first += len(part)
        return found

    def _append(self, vectors: Vectors) -> None:
        self._added.grow(as_tensor(vectors).to(self._parts[0].device))
        self._parts[1:] = [self._added.weight]

    def _move(self, ids: NDArray[np.int64], vectors: Vectors) -> None:
        """Vectors that ``build`` was given are copied first, once."""
        chosen = torch.from_numpy(ids)
        new_ND = as_tensor(vectors)
        first = 0
        for number, part in enumerate(self._parts):
            rows = ((chosen >= first) & (chosen < first + len(part))).nonzero().squeeze(1)
            if len(rows) and number == 0 and self._shared:
                self._parts[0], self._shared = part.clone(), False
            target = self._parts[number]
            moved_ND = new_ND[rows.to(new_ND.device)].to(target.device)
            target.index_copy_(0, (chosen[rows] - first).to(target.device), moved_ND)
            first += len(part)


@torch.no_grad()
def _search(
    parts: Sequence[Tensor | RowSource],
    queries: Vectors,
    k: int,
    *,
    hidden: NDArray[np.bool_] | None,
    excluded: sparse.csr_array | None,
    device: torch.device,
) -> TopK:
    check_k(k)
    check_vectors(queries, "text vectors", parts[0].shape[1])
    queries_BD = as_tensor(queries).to(device)
    num_texts, num_ids = len(queries_BD), sum(len(part) for part in parts)
    if excluded is not None and excluded.shape != (num_texts, num_ids):
        raise ValueError(f"excluded pairs must have shape {(num_texts, num_ids)}, but have {excluded.shape}")
    is_stored = all(isinstance(part, Tensor) for part in parts)
    whole = is_stored and 0 < num_texts * num_ids <= min(WHOLE_UP_TO, SCORES_AT_ONCE)
    if whole and excluded is None and device.type == parts[0].device.type == "cpu":
        found = _search_whole(parts, queries_BD, k, hidden)
        if found is not None:
            return found
    best = RunningTopK(num_texts, k, device)
    pairs = None if excluded is None or excluded.nnz == 0 else excluded.tocsc()
    width = LABELS_AT_ONCE
    if device == parts[0].device and is_stored:
        # Few texts: wider blocks, for fewer rounds. Blocks that are computed or sent to a device stay small.
        width = max(width, SCORES_AT_ONCE // max(num_texts, 1) // WIDTH_MULTIPLE * WIDTH_MULTIPLE)
    texts_at_once = max(1, SCORES_AT_ONCE // width)
    for labels_ND, ids, dead_N in _blocks(parts, hidden, width, device) if num_texts else ():
        ids_N = torch.from_numpy(ids).to(device)
        rows, columns = _excluded_within(pairs, ids)
        for start in range(0, num_texts, texts_at_once):
            texts = slice(start, min(start + texts_at_once, num_texts))
            scores_BN = queries_BD[texts] @ labels_ND.T
            if dead_N is not None:
                scores_BN.masked_fill_(dead_N, -torch.inf)
            first, last = np.searchsorted(rows, (texts.start, texts.stop))
            if first < last:
                place = torch.from_numpy(rows[first:last] - start), torch.from_numpy(columns[first:last])
                scores_BN[place[0].to(device), place[1].to(device)] = -torch.inf
            best.offer(texts, scores_BN, ids_N)
    return best.result()


def _search_whole(
    parts: Sequence[Tensor | RowSource], queries_BD: Tensor, k: int, hidden: NDArray[np.bool_] | None
) -> TopK | None:
    """The same from the scores of all labels at once; None where ``RunningTopK`` is needed."""
    blocks = list(_blocks(parts, hidden, WHOLE_UP_TO, queries_BD.device))
    if not blocks:
        return None
    scores_BN = torch.empty(len(queries_BD), sum(len(ids) for _, ids, _ in blocks))
    first = 0
    for labels_ND, ids, dead_N in blocks:
        own_BN = scores_BN[:, first : first + len(ids)]
        torch.mm(queries_BD, labels_ND.T, out=own_BN)
        if dead_N is not None:
            own_BN.masked_fill_(dead_N, -torch.inf)
        first += len(ids)
    return best_of_all(scores_BN.numpy(), np.concatenate([ids for _, ids, _ in blocks]), k)


def _blocks(
    parts: Sequence[Tensor | RowSource], hidden: NDArray[np.bool_] | None, width: int, device: torch.device
) -> Iterator[tuple[Tensor, NDArray[np.int64], Tensor | None]]:
    """Blocks of label vectors with their ascending ids; the mask marks columns that are no answer.

    Each is as wide as a multiple of ``WIDTH_MULTIPLE``: what is left at the end of a part is filled up with zeros.
    """
    gathers = hidden is not None and np.count_nonzero(~hidden) < GATHER_BELOW * len(hidden)
    first_id = 0
    for part in parts:
        rows = np.arange(len(part), dtype=np.int64)
        if hidden is not None and gathers:
            rows = np.flatnonzero(~hidden[first_id : first_id + len(part)])
        whole = len(rows) // WIDTH_MULTIPLE * WIDTH_MULTIPLE
        cuts = [*range(0, whole, width), whole, len(rows)]
        for start, stop in pairwise(cuts):
            if start == stop:
                continue
            taken = rows[start:stop]
            ids = first_id + taken
            dead = None if hidden is None else hidden[ids]
            block = part.index_select(0, torch.from_numpy(taken).to(part.device)) if gathers else part[start:stop]
            missing = -len(ids) % WIDTH_MULTIPLE
            if missing:
                block = torch.nn.functional.pad(block, (0, 0, 0, missing))
                ids = np.concatenate([ids, ids[-1] + 1 + np.arange(missing)])
                own = np.zeros(len(taken), dtype=bool) if dead is None else dead
                dead = np.concatenate([own, np.ones(missing, dtype=bool)])
            mask = None if dead is None or not dead.any() else torch.from_numpy(dead).to(device)
            yield block.to(device), ids, mask
        first_id += len(part)


def _excluded_within(
    pairs: sparse.csc_array | None, ids: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Text rows (ascending) and block columns of the pairs whose label is among the ascending ids of a block."""
    if pairs is None:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    first, last = int(ids[0]), min(int(ids[-1]) + 1, pairs.shape[1])
    starts = pairs.indptr[first : last + 1]
    rows = pairs.indices[starts[0] : starts[-1]].astype(np.int64)
    labels = np.repeat(np.arange(first, last, dtype=np.int64), np.diff(starts))
    columns, inside = find_sorted(ids, labels)
    rows, columns = rows[inside], columns[inside].astype(np.int64)
    order = np.argsort(rows, kind="stable")
    return rows[order], columns[order]


def as_tensor(vectors: Vectors) -> Tensor:
    """The same numbers as a float32 tensor, not copied where they are float32 already."""
    if isinstance(vectors, Tensor):
        return vectors.detach().float()
    array = np.ascontiguousarray(vectors, dtype=np.float32)
    if array.flags.writeable:
        return torch.from_numpy(array)
    with warnings.catch_warnings():
        # A file mapped for reading only cannot be written through the tensor; nothing here does.
        warnings.filterwarnings("ignore", message=".*not writable.*")
        return torch.from_numpy(array)
