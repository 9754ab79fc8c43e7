"""The pool of a step: the labels that a batch of texts is scored against, and which of them are positives.

A pool is filled in the order of UniDEC (arXiv 2405.03714): the labels drawn for the texts; where there are too many of
them, those drawn most often; else the hard negatives drawn for the texts, most often drawn first; where room is left,
further labels of the texts, most frequent first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from unidex import progress
from unidex.distributed import ALONE, Processes
from unidex.index.shards import search_shards
from unidex.losses import Targets
from unidex.sparse_rows import find_sorted

Ids = NDArray[np.int64]

_MINED_AT_ONCE = 4096  # texts


@dataclass(frozen=True, eq=False)
class Batch:
    """The texts and labels of a step."""

    texts: Ids  # ids of the texts, B
    labels: Ids  # ids of the labels of the pool, P, ascending
    targets: Targets  # which pairs are positive, and which do not count
    # Places in the pool of the labels mined for each text, B x N, -1 for none; None where all texts share the pool.
    mined: Ids | None = None


def entries_of(matrix: sparse.csr_array, rows: Ids) -> tuple[Ids, NDArray[np.int64]]:
    """The stored entries of some rows: for each, the place of its row in ``rows``, and its place in the matrix.

    >>> entries_of(sparse.csr_array(np.array([[1, 0], [1, 1], [0, 0]])), np.array([1, 0]))
    (array([0, 0, 1]), array([1, 2, 0]))
    """
    starts = matrix.indptr[rows].astype(np.int64)
    counts = matrix.indptr[rows + 1].astype(np.int64) - starts
    owner = np.repeat(np.arange(len(rows)), counts)
    before = np.cumsum(counts) - counts
    return owner, np.arange(len(owner)) - before[owner] + starts[owner]


def draw_labels(positives: sparse.csr_array, texts: Ids, count: int, rng: np.random.Generator) -> Ids:
    """At most ``count`` labels per text: drawn with replacement, so that a text with many labels repeats few.

    The result has one label per draw; texts without labels draw none.

    >>> positives = sparse.csr_array([[0, 1, 0], [0, 0, 0], [0, 0, 1]])
    >>> draw_labels(positives, np.array([0, 1, 2]), 2, np.random.default_rng(0))
    array([1, 1, 2, 2])
    """
    starts = positives.indptr[texts].astype(np.int64)
    sizes = positives.indptr[texts + 1].astype(np.int64) - starts
    filled = np.flatnonzero(sizes)
    places = (rng.random((len(filled), count)) * sizes[filled, None]).astype(np.int64)
    drawn: Ids = positives.indices[(starts[filled, None] + places).ravel()].astype(np.int64)
    return drawn


def draw_negatives(shortlist: Ids, texts: Ids, count: int, rng: np.random.Generator) -> Ids:
    """``count`` labels of each text's shortlist, drawn without replacement, one row per text; -1 stands for none.

    >>> draw_negatives(np.array([[5, 6], [7, -1]]), np.array([1]), 3, np.random.default_rng(0)).tolist()
    [[-1, 7]]
    """
    rows = shortlist[texts]
    count = min(count, rows.shape[1])
    order = np.argpartition(rng.random(rows.shape), count - 1, axis=1)[:, :count]
    return np.take_along_axis(rows, order, axis=1)


def choose_labels(drawn: Ids, negatives: Ids, further: Ids, size: int, rng: np.random.Generator) -> Ids:
    """The pool: drawn labels, then negatives, then further positives, the most frequent first, up to ``size``.

    Among equally frequent labels ``rng`` decides. The lower id would leave the same labels out in every step.

    >>> rng = np.random.default_rng(0)
    >>> choose_labels(np.array([3, 1, 3]), np.array([7, 8, 8]), np.array([5]), 3, rng)
    array([1, 3, 8])
    >>> choose_labels(np.array([3, 1, 3]), np.array([7, 8, 8]), np.array([5]), 9, rng)
    array([1, 3, 5, 7, 8])
    """
    pool = np.empty(0, dtype=np.int64)
    for candidates in (drawn, negatives, further):
        room = size - len(pool)
        if room <= 0:
            break
        labels, counts = np.unique(candidates, return_counts=True)
        new = ~np.isin(labels, pool, assume_unique=True)
        labels, counts = labels[new], counts[new]
        if len(labels) > room:
            labels = labels[np.lexsort((rng.random(len(labels)), -counts))[:room]]
        pool = np.union1d(pool, labels)
    return pool


def make_targets(positives: sparse.csr_array, filter_pairs: sparse.csr_array, texts: Ids, labels: Ids) -> Targets:
    """Which pairs of texts and pool are positive, whichever text brought the label in, and which are filter pairs.

    A pair that is both counts as a positive.
    """
    rows, places = entries_of(positives, texts)
    columns, known = find_sorted(labels, positives.indices[places])
    rows, columns, weights = rows[known], columns[known], positives.data[places[known]]
    ignored_rows = ignored_columns = np.empty(0, dtype=np.int64)
    if filter_pairs.nnz:
        ignored_rows, places = entries_of(filter_pairs, texts)
        ignored_columns, known = find_sorted(labels, filter_pairs.indices[places])
        taken = rows * len(labels) + columns
        known &= ~np.isin(ignored_rows * len(labels) + ignored_columns, taken)
        ignored_rows, ignored_columns = ignored_rows[known], ignored_columns[known]
    return Targets(
        torch.from_numpy(rows),
        torch.from_numpy(columns),
        torch.from_numpy(np.asarray(weights, dtype=np.float32)),
        torch.from_numpy(ignored_rows),
        torch.from_numpy(ignored_columns),
        (len(texts), len(labels)),
    )


def make_batch(
    positives: sparse.csr_array,
    filter_pairs: sparse.csr_array,
    texts: Ids,
    *,
    num_positives: int,
    num_negatives: int,
    size: int,
    shortlist: Ids | None,
    rng: np.random.Generator,
    fill: bool = True,
    is_shared: bool = True,
) -> Batch:
    """Draw the pool of a batch of texts. Texts that are left without a positive in it are dropped.

    With ``fill``, further labels of the texts take the room that is left. Without ``is_shared``, the batch says which
    labels were mined for which text, as soon as there are any.
    """
    drawn = draw_labels(positives, texts, num_positives, rng)
    negatives = np.empty((len(texts), 0), dtype=np.int64)
    if shortlist is not None and num_negatives:
        negatives = draw_negatives(shortlist, texts, num_negatives, rng)
    further = np.empty(0, dtype=np.int64)
    if fill:
        further = positives.indices[entries_of(positives, texts)[1]].astype(np.int64)
    labels = choose_labels(drawn, negatives[negatives >= 0], further, size, rng)
    targets = make_targets(positives, filter_pairs, texts, labels)
    with_positive = np.unique(targets.rows.numpy())
    if len(with_positive) < len(texts):
        texts, negatives = texts[with_positive], negatives[with_positive]
        targets = make_targets(positives, filter_pairs, texts, labels)
    if is_shared or not negatives.size:
        return Batch(texts, labels, targets)
    places, known = find_sorted(labels, negatives.ravel())
    return Batch(texts, labels, targets, np.where(known, places, -1).reshape(negatives.shape))


def label_batch(
    positives: sparse.csr_array,
    filter_pairs: sparse.csr_array,
    positives_LN: sparse.csr_array,
    labels: Ids,
    rng: np.random.Generator,
) -> Batch:
    """The batch of labels, each with one of its texts: a tail label is seen as often as a head label.

    A text that is drawn for several labels is there once. ``positives_LN`` are the positives the other way round; each
    of the labels must have a text.

    References: SiameseXML (Dahiya et al., ICML 2021), whose batches are of labels.
    """
    texts, labels = np.unique(draw_labels(positives_LN, labels, 1, rng)), np.sort(labels)
    return Batch(texts, labels, make_targets(positives, filter_pairs, texts, labels))


def whole_batch(positives: sparse.csr_array, filter_pairs: sparse.csr_array, texts: Ids) -> Batch:
    """The batch of texts that meets all labels (DEXML, Renee)."""
    labels = np.arange(positives.shape[1])
    return Batch(texts, labels, make_targets(positives, filter_pairs, texts, labels))


def log_inclusion(positives: sparse.csr_array, batch_size: int, num_positives: int) -> NDArray[np.float32]:
    """The logarithm of q_l: how often a label is in the pool of a batch of texts drawn evenly.

    A text with m labels that draws b with replacement has each of them with probability 1 - (1 - 1/m)^b; a batch of B
    of N texts has the label with q_l = 1 - prod over its texts of (1 - B/N * that). Labels of no text get the lowest q.

    >>> np.exp(log_inclusion(sparse.csr_array([[1, 1, 0], [1, 0, 0]]), batch_size=1, num_positives=1)).round(3)
    array([0.625, 0.25 , 0.25 ], dtype=float32)
    """
    num_texts, num_labels = positives.shape
    sizes = np.diff(positives.indptr)
    with np.errstate(divide="ignore"):
        chance = 1 - (1 - 1 / np.maximum(sizes, 1)) ** num_positives
    share = min(1.0, batch_size / num_texts)
    missing = np.log1p(-np.minimum(share * np.repeat(chance, sizes), 1 - 1e-6))
    log_missing = np.bincount(positives.indices, weights=missing, minlength=num_labels)
    # In place: there is one number per label.
    inclusion = np.expm1(log_missing, out=log_missing)
    np.negative(inclusion, out=inclusion)
    lowest = inclusion[inclusion > 0].min(initial=1.0)
    np.maximum(inclusion, lowest, out=inclusion)
    log_q: NDArray[np.float32] = np.log(inclusion, out=inclusion).astype(np.float32)
    return log_q


def mine_negatives(
    texts_ND: Tensor,
    labels_LD: Tensor,
    positives: sparse.csr_array,
    filter_pairs: sparse.csr_array,
    count: int,
    processes: Processes = ALONE,
) -> Ids:
    """The ``count`` labels of highest score for each text that are neither its positives nor its filter pairs.

    Exact search with the index's own code, block by block; ``labels_LD`` are those of this process's shard.
    A row has -1 where there are fewer labels than places.

    References: UniDEC (arXiv 2405.03714), eta x refresh labels per text.
    """
    found = np.full((len(texts_ND), count), -1, dtype=np.int64)
    first = processes.shard(positives.shape[1]).start
    with progress.task("mining hard negatives", len(texts_ND), unit="texts") as advance:
        for start in range(0, len(texts_ND), _MINED_AT_ONCE):
            rows = slice(start, start + _MINED_AT_ONCE)
            own = (positives[rows] + filter_pairs[rows].astype(np.float32)).tocsr()
            own.sort_indices()
            found[rows] = search_shards(texts_ND[rows], labels_LD, count, first, processes, excluded=own).ids
            advance(len(texts_ND[rows]))
    return found
