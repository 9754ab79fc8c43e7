"""Hard negatives: the labels that score highest for a text without being its own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from unidex import progress
from unidex.distributed import ALONE, Processes
from unidex.index.shards import search_shards

_BLOCK = 4096


def mine_negatives(
    texts_ND: Tensor,
    labels_LD: Tensor,
    positives: sparse.csr_array,
    filter_pairs: sparse.csr_array,
    count: int,
    processes: Processes = ALONE,
) -> NDArray[np.int64]:
    """The ``count`` labels of highest score for each text that are neither its positives nor its filter pairs.

    Exact search with the index's own code, block by block; ``labels_LD`` are those of this process's shard.
    A row has -1 where there are fewer labels than places.

    References: UniDEC (arXiv 2405.03714), eta x refresh labels per text.
    """
    found = np.full((len(texts_ND), count), -1, dtype=np.int64)
    first = processes.shard(positives.shape[1]).start
    with progress.task("mining hard negatives", len(texts_ND), unit="texts") as advance:
        for start in range(0, len(texts_ND), _BLOCK):
            rows = slice(start, start + _BLOCK)
            own = (positives[rows] + filter_pairs[rows].astype(np.float32)).tocsr()
            own.sort_indices()
            found[rows] = search_shards(texts_ND[rows], labels_LD, count, first, processes, excluded=own).ids
            advance(len(texts_ND[rows]))
    return found
