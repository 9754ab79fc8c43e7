"""Soft targets of label texts from random walks between labels and the texts that have them.

Shapes: N texts, L labels, R labels that walks start at, H hops of a walk.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex import progress
from unidex.config import Augment
from unidex.sparse_rows import csr_from_counts, keep_highest, row_of_entries

# Labels that walk at a time; three random numbers of 8 bytes a hop are the largest part of their memory.
_BLOCK_HOPS = 2**20

Ids = NDArray[np.int64]


def walk_targets(
    settings: Augment, positives: sparse.csr_array, rng: np.random.Generator, labels: Ids | None = None
) -> sparse.csr_array:
    """The targets of label texts: how often a walk from label j comes to label i, beside how often it comes to j.

    A hop goes from a label to one of its texts, drawn evenly, and on to one of the labels of that text, drawn evenly.
    The first hop starts at j; each further one starts at j again with probability ``walk_restart``, else where the last
    one ended. Labels of more than ``walk_verbose`` texts are taken out before the walks; each of them, and each label
    that no text has, gets its own label alone.

    Formula: y_ij = min(1, v_ji / max(v_jj, 1)) for the ``walk_max_labels`` labels i of the highest v_ji (j always among
    them, ties to the lower id), with v_ji the hops of the walk from j that end at i; y_jj = 1.

    Walks of ``walk_length`` hops start at ``labels``, ascending, or at all. The stored pairs are the positives,
    whatever their relevance.

    Shapes: positives [N, L], result [R, L], float32 with sorted columns: row j, column i.

    References: ECLARE: Mittal et al., Extreme Classification with Label Graph Correlations, WWW 2021 (the walks);
    Gandalf, arXiv 2405.04545 (as targets). How visits become targets is a choice made here.

    Label 0 stands alone; of the texts of label 1, half have label 2, so that hops end at 1 three times as often:

    >>> texts = sparse.csr_array(np.array([[1, 0, 0], [0, 1, 0], [0, 1, 1]]))
    >>> settings = Augment(walk_length=4000, walk_restart=1.0, walk_max_labels=10, walk_verbose=500)
    >>> targets = walk_targets(settings, texts, np.random.default_rng(0))
    >>> targets.toarray().astype(float).round(1).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.3], [0.0, 1.0, 1.0]]
    """
    num_labels = positives.shape[1]
    wanted = np.arange(num_labels) if labels is None else labels
    frequencies_L = np.bincount(positives.indices, minlength=num_labels)
    walks = (frequencies_L > 0) & (frequencies_L <= settings.walk_verbose)
    kept = walks[positives.indices]
    ends = np.concatenate([[0], np.cumsum(kept)])[positives.indptr]
    columns = positives.indices[kept].astype(np.int32)
    texts_NL = csr_from_counts(np.ones(len(columns), dtype=np.int8), columns, np.diff(ends), num_labels)
    labels_LN = texts_NL.T.tocsr()
    parts = []
    length = settings.walk_length
    step = max(1, _BLOCK_HOPS // length)
    with progress.task("random walks", len(wanted), unit="labels") as advance:
        for first in range(0, len(wanted), step):
            own = wanted[first : first + step]
            visits = np.repeat(own[:, None], length + 1, axis=1)
            moving = walks[own]
            # In this order, a label's numbers do not depend on how many labels walk together.
            random = rng.random((int(moving.sum()), length, 3))
            visits[moving, 1:] = _walk(labels_LN, texts_NL, own[moving], random, settings.walk_restart)
            parts.append(_as_targets(visits, num_labels, settings.walk_max_labels))
            advance(len(own))
    if not parts:
        return sparse.csr_array((0, num_labels), dtype=np.float32)
    result = sparse.vstack(parts, format="csr")
    result.has_sorted_indices = result.has_canonical_format = True
    return result


def _walk(
    labels_LN: sparse.csr_array, texts_NL: sparse.csr_array, own: Ids, random_RH3: NDArray[np.float64], restart: float
) -> NDArray[np.int64]:
    """Where the hops of one walk from each label end, R x H."""
    num_hops = random_RH3.shape[1]
    visits, at = np.empty((len(own), num_hops), dtype=np.int64), own
    for hop in range(num_hops):
        random = random_RH3[:, hop]
        at = np.where(random[:, 0] < restart, own, at)
        at = _draw(texts_NL, _draw(labels_LN, at, random[:, 1]), random[:, 2])
        visits[:, hop] = at
    return visits


def _draw(matrix: sparse.csr_array, rows: NDArray[Any], random: NDArray[np.float64]) -> NDArray[Any]:
    """One stored column of each of these rows, drawn evenly by a number from [0, 1)."""
    starts = matrix.indptr[rows]
    places = (random * (matrix.indptr[rows + 1] - starts)).astype(starts.dtype)
    columns: NDArray[Any] = matrix.indices[starts + places]
    return columns


def _as_targets(visits: Ids, num_labels: int, max_targets: int) -> sparse.csr_array:
    """Visits as targets; in the first column stands the label that a walk started at, which is no visit."""
    own = visits[:, 0].copy()
    visits.sort(axis=1)
    first = np.ones(visits.shape, dtype=bool)
    np.not_equal(visits[:, 1:], visits[:, :-1], out=first[:, 1:])
    places = np.flatnonzero(first)
    counts = np.diff(places, append=visits.size)
    found = csr_from_counts(counts, visits.ravel()[places].astype(np.int32), first.sum(axis=1), num_labels)
    rows = row_of_entries(found)
    is_own = found.indices == own[rows]
    found.data[is_own] -= 1
    found = keep_highest(found, max_targets, own)
    rows = row_of_entries(found)
    is_own = found.indices == own[rows]
    of_own = np.maximum(found.data[is_own], 1)
    targets = np.minimum(found.data / of_own[rows], 1).astype(np.float32)
    targets[is_own] = 1
    return csr_from_counts(targets, found.indices, np.diff(found.indptr), num_labels)
