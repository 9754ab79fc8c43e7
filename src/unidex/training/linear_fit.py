"""The fit of the linear part: one classifier per label, to its texts and to texts that are easily taken for them.

For a label with examples x_i of length 1, y_i = 1 for its own texts and -1 for others, and a bias as the weight of a
feature that is 1 in every text:

    min_w  1/2 |w|^2 + C sum_i max(0, 1 - y_i <w, x_i>)^2

by coordinate descent on the dual (Hsieh et al., "A dual coordinate descent method for large-scale linear SVM", ICML
2008), in compiled code. Negatives are texts for which the network ranks the label high, and texts drawn at random: with
the former alone a classifier does not know what is far from its label.

Labels without texts have no classifier. Of very many labels most have none, and all that is done here is done for those
that have some: neither time nor memory grows with the others.

Shapes: N texts, K places, L labels, F features, E examples, S labels with classifiers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from unidex import native
from unidex.index import Index
from unidex.index.disk import DiskIndex
from unidex.index.index_rows import IndexRows
from unidex.nn.vectors import as_array
from unidex.scoring.linear_part import NO_CLASSIFIER, LinearPart, unit_length
from unidex.scoring.scorer import Scorer
from unidex.sparse_rows import row_of_entries
from unidex.training.ranker_fit import MIN_TREES

# Features of all texts; more take gigabytes for their copies.
MAX_ENTRIES = 200_000_000
# A least weight of 0.16 leaves a quarter of those from 0.1 on, which rank as well.
_COST, _TOLERANCE, _LEAST_WEIGHT, _PASSES = 0.5, 0.05, 0.16, 5
# Weights are multiples of this: most are near the least one, and a file has 5 bits of each in the place of 11.
_STEP = 1 / 64
# Negatives: texts that have a label among so many best ones, more where these are mostly right ones, and random texts
# per text of the label; fewer where texts are long and many, so that either kind has so many features in all.
_MIN_PLACES, _PLACES_PER_LABEL, _MAX_PLACES = 20, 4, 100
_RANDOM_PER_TEXT, _MIN_RANDOM_PER_TEXT, _MAX_RANDOM = 12, 5, 1000
_MAX_NEGATIVE_ENTRIES = 100_000_000
# The best labels of so many pairs of a text and a label are worked out; of more, those of some texts.
_MAX_SEARCHED, _MIN_SHARE_SEARCHED = 100_000_000, 16
_LABELS_AT_ONCE, _BLOCKS_AT_ONCE, _TEXTS_AT_ONCE = 256, 16, 1024
# Of more labels, those with texts get an index of their own: an exact search among all of them takes minutes.
ALONE_ABOVE = 1 << 18
_LINEAR = 5  # part of a seed: batching has 0 to 2, clusters of a surrogate 3, the label tree 4


def obstacle(rank: str, texts: Any, num_held_out: int, num_processes: int) -> str:
    """Why there can be no linear part of these prepared texts, in words; empty where there can be one.

    >>> obstacle("learned", sparse.csr_array((5, 2)), 3, 1)
    '3 held-out texts are few (200 are needed)'
    """
    if rank != "learned":
        return "only a learned ranker reads them (predict.rank)"
    if num_held_out < MIN_TREES:
        return f"{num_held_out} held-out texts are few ({MIN_TREES} are needed)"
    if not isinstance(texts, sparse.csr_array):
        return "they need a bag encoder"
    if texts.nnz > MAX_ENTRIES:
        return f"train texts have {texts.nnz} features in all, and above {MAX_ENTRIES} they take too much memory"
    if num_processes > 1:
        return "they are fitted by one process"
    return "" if native.kernels is not None else "they need the compiled kernels"


def num_negatives(num_texts: int, num_labels: int, num_pairs: int, num_entries: int) -> tuple[int, int, int]:
    """Of a text, the best labels that have it as a negative; texts of which; random negatives per text of a label.

    >>> num_negatives(10_000, 5_000, 30_000, 2_000_000)
    (32, 10000, 12)
    >>> num_negatives(500_000, 25_000, 1_500_000, 50_000_000)
    (20, 31250, 5)
    """
    wanted = _MIN_PLACES + _PLACES_PER_LABEL * num_pairs // max(1, num_texts)
    places = min(wanted, _MAX_PLACES, max(_MIN_PLACES, _MAX_NEGATIVE_ENTRIES // max(1, num_entries)))
    of_pairs = max(1, max(1, num_entries) * num_pairs // max(1, num_texts))
    random_per_text = min(_RANDOM_PER_TEXT, max(_MIN_RANDOM_PER_TEXT, _MAX_NEGATIVE_ENTRIES // of_pairs))
    num_searched = min(num_texts, max(1, num_texts // _MIN_SHARE_SEARCHED, _MAX_SEARCHED // max(1, num_labels)))
    return places, num_searched, random_per_text


def round_weights(weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """The nearest weights that a model stores.

    >>> round_weights(np.array([0.1, -0.13], dtype=np.float32)).tolist()
    [0.09375, -0.125]
    """
    found: NDArray[np.float32] = np.rint(weights / np.float32(_STEP)) * np.float32(_STEP)
    return found


def fit_linear(
    scorer: Scorer,
    encode: Callable[[sparse.csr_array], Any],
    texts_NF: sparse.csr_array,
    positives_NL: sparse.csr_array,
    seed: int,
    scratch: Path | None = None,
) -> LinearPart:
    """The classifiers of all labels.

    Args:
        scorer: of the network, which finds hard negatives.
        encode: from prepared texts to their vectors.
        texts_NF: prepared train texts.
        positives_NL: their labels.
        seed: of the negatives that are drawn.
        scratch: where a temporary index of very many labels is.
    """
    num_texts, num_features = texts_NF.shape
    num_labels = positives_NL.shape[1]
    rng = np.random.default_rng([seed, _LINEAR])
    places, num_searched, random_per_text = num_negatives(num_texts, num_labels, positives_NL.nnz, texts_NF.nnz)
    searched = np.arange(num_texts)
    if num_searched < num_texts:
        searched = np.sort(rng.permutation(num_texts)[:num_searched])
    own_LN, index = sparse.csr_array(positives_NL.T), scorer.index
    # The labels that get a classifier, and all others where these are few.
    fitted_S = np.arange(num_labels)
    if num_labels > ALONE_ABOVE:
        fitted_S = np.flatnonzero(np.diff(own_LN.indptr))
        own_LN, index = own_LN[fitted_S], DiskIndex.build(IndexRows(scorer.index, fitted_S), scratch=scratch)
    shape = (len(fitted_S), num_texts)
    hard_SN = _hard_texts(index, lambda rows: scorer.layout.queries(encode(texts_NF[rows])), searched, places, shape)
    rows_NF = unit_length(texts_NF)
    descent = np.array([_COST, _TOLERANCE, _LEAST_WEIGHT], dtype=np.float32)

    def fit(examples_LN: sparse.csr_array) -> tuple[sparse.csr_array, NDArray[np.float32]]:
        biases = np.empty(examples_LN.shape[0], dtype=np.float32)
        arrays = (*native.arrays_of(rows_NF), *native.arrays_of(examples_LN))
        found = native.kernels.fit_classifiers(*arrays, descent, biases, num_features, _PASSES)
        values, columns, starts = map(np.frombuffer, found, (np.float32, np.int32, np.int32))
        return sparse.csr_array((values, columns, starts), shape=(len(biases), num_features)), biases

    blocks: list[tuple[sparse.csr_array, NDArray[np.float32]]] = []
    left = _examples(own_LN, hard_SN, random_per_text, rng)
    # The number of threads changes no number: each block of labels is fitted alone.
    with ThreadPoolExecutor(torch.get_num_threads()) as threads:
        while some := list(islice(left, _BLOCKS_AT_ONCE)):
            blocks += threads.map(fit, some)
    weights_SF = sparse.csr_array(sparse.vstack([weights for weights, _ in blocks], format="csr"))
    biases_L = np.full(num_labels, NO_CLASSIFIER, dtype=np.float32)
    has_texts_S = np.diff(own_LN.indptr) > 0
    biases_L[fitted_S[has_texts_S]] = np.concatenate([biases for _, biases in blocks])[has_texts_S]
    weights_FS = weights_SF.T.tocsr()
    arrays = (round_weights(weights_FS.data), fitted_S[weights_FS.indices], weights_FS.indptr)
    return LinearPart(sparse.csr_array(arrays, shape=(num_features, num_labels)), biases_L)


def _hard_texts(
    index: Index,
    queries_of: Callable[[NDArray[np.int64]], Any],
    rows: NDArray[np.int64],
    places: int,
    shape: tuple[int, int],
) -> sparse.csr_array:
    """Of each label of an index the texts, among these rows, that have it among their best; S x N."""
    found = []
    for start in range(0, len(rows), _TEXTS_AT_ONCE):
        queries = as_array(queries_of(rows[start : start + _TEXTS_AT_ONCE]))
        found.append(index.search(queries, places).ids)
    ids_NK = np.concatenate(found) if found else np.empty((0, places), dtype=np.int64)
    is_there = ids_NK >= 0
    texts = np.broadcast_to(rows[:, None], ids_NK.shape)[is_there]
    return sparse.csr_array((np.ones(len(texts), dtype=np.float32), (ids_NK[is_there], texts)), shape=shape)


def _examples(
    own_LN: sparse.csr_array, hard_LN: sparse.csr_array, random_per_text: int, rng: np.random.Generator
) -> Iterator[sparse.csr_array]:
    """The examples of labels, block after block: 1 for texts of the label, -1 for its negatives."""
    num_labels, num_texts = own_LN.shape
    for start in range(0, num_labels, _LABELS_AT_ONCE):
        own, hard = (some[start : start + _LABELS_AT_ONCE] for some in (own_LN, hard_LN))
        counts = np.diff(own.indptr)
        num_random = np.minimum(random_per_text * counts, _MAX_RANDOM)
        drawn = rng.integers(0, num_texts, int(num_random.sum()))
        labels = [
            row_of_entries(own, np.int64),
            row_of_entries(hard, np.int64),
            np.repeat(np.arange(len(counts)), num_random),
        ]
        texts = [own.indices, hard.indices, drawn]
        # One number per example, the higher where the text has the label: of two about one text, that one stays.
        is_own = np.repeat([1, 0, 0], [len(part) for part in texts])
        codes = np.unique((np.concatenate(labels) * num_texts + np.concatenate(texts)) * 2 + is_own)
        pairs = codes >> 1
        stays = np.append(pairs[1:] != pairs[:-1], True) if len(pairs) else np.empty(0, dtype=bool)
        # A label without texts has no classifier.
        stays &= counts[pairs // max(1, num_texts)] > 0
        pairs, values = pairs[stays], np.where(codes[stays] & 1, 1, -1).astype(np.float32)
        starts = np.searchsorted(pairs, np.arange(len(counts) + 1) * num_texts).astype(np.int32)
        columns = (pairs % max(1, num_texts)).astype(np.int32)
        yield sparse.csr_array((values, columns, starts), shape=own.shape)
