"""Exact search by torch: on a device, without given pairs, or over more labels than fit one block of scores.

Shapes: B texts, L labels, N labels of a block, D dimensions, K places.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from unidex.index.best_places import WIDTH_MULTIPLE, best_of_all
from unidex.index.checks import Vectors
from unidex.index.running_best import RunningTopK
from unidex.losses.products import all_scores
from unidex.sparse_rows import find_sorted
from unidex.topk import TopK

if TYPE_CHECKING:
    from unidex.index.exact import RowSource

SCORES_AT_ONCE = 1 << 24  # 64 MB of float32
LABELS_AT_ONCE = 1 << 14
WHOLE_UP_TO = 1 << 22  # scores; up to this many are computed in one step
GATHER_BELOW = 0.25  # share of visible labels below which they are copied out instead of scored with the rest


@torch.no_grad()
def search_tensors(
    vectors: Sequence[Vectors | RowSource],
    queries: Vectors,
    k: int,
    *,
    hidden: NDArray[np.bool_] | None,
    excluded: sparse.csr_array | None,
    device: str | torch.device | None,
) -> TopK:
    """As `unidex.index.exact.search_exact`, over label vectors in one or more parts, computed on a device."""
    parts = [as_tensor(part) if isinstance(part, np.ndarray | Tensor) else part for part in vectors]
    device = parts[0].device if device is None else torch.device(device)
    queries_BD = as_tensor(queries).to(device)
    num_texts, num_ids = len(queries_BD), sum(len(part) for part in parts)
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
            scores_BN = all_scores(queries_BD[texts], labels_ND)
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
    """The same from the scores of all labels at once; None where no label is left."""
    blocks = list(_blocks(parts, hidden, WHOLE_UP_TO, queries_BD.device))
    if not blocks:
        return None
    scores = []
    for labels_ND, _, dead_N in blocks:
        scores.append(all_scores(queries_BD, labels_ND))
        if dead_N is not None:
            scores[-1].masked_fill_(dead_N, -torch.inf)
    scores_BN = scores[0] if len(scores) == 1 else torch.cat(scores, dim=1)
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
