"""Exact search over labels that are spread over processes: each searches its own, and the best of all are kept."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from unidex.distributed import Processes
from unidex.index.exact import RowSource, search_exact
from unidex.topk import PADDING, TopK


def search_shards(
    queries_BD: Tensor,
    vectors_LD: Tensor | RowSource,
    k: int,
    first: int,
    processes: Processes,
    *,
    excluded: sparse.csr_array | None = None,
    forbidden: NDArray[np.int64] | None = None,
) -> TopK:
    """The k best labels of each text over the labels of all processes; the same on each.

    Each process has the same texts and the vectors of its own labels, whose ids start at ``first``. Pairs that are
    ``excluded`` have a column for each label of all processes.
    """
    if processes.size == 1:
        return search_exact(queries_BD, vectors_LD, k, excluded=excluded, forbidden=forbidden)
    stop = first + len(vectors_LD)
    if excluded is not None:
        excluded = excluded[:, first:stop]
        excluded.sort_indices()
    if forbidden is not None:
        forbidden = forbidden[(forbidden >= first) & (forbidden < stop)] - first
    if len(vectors_LD) and len(queries_BD):
        found = search_exact(queries_BD, vectors_LD, k, excluded=excluded, forbidden=forbidden)
    else:
        found = TopK(np.full((len(queries_BD), k), PADDING), np.full((len(queries_BD), k), -np.inf, dtype=np.float32))
    ids = torch.from_numpy(np.where(found.ids < 0, PADDING, found.ids + first)).to(queries_BD.device)
    scores = torch.from_numpy(found.scores).to(queries_BD.device)
    # Row after row of one process, then of the next: side by side they are the candidates of a text.
    sides = [processes.gather(part).view(processes.size, -1, k).transpose(0, 1).flatten(1) for part in (ids, scores)]
    return TopK.rank(sides[0].cpu().numpy(), sides[1].cpu().numpy(), k)
