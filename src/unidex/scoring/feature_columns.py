"""All features of the learned ranker at once, by compiled code: what `unidex.scoring.ranking_features` computes.

Its numbers are the same, bit for bit. Models whose rankers read other features, as those of a label tree, of a
pretrained part or of several texts per label, take the other way.

Shapes: N texts, K candidates, L labels, F features.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex import native
from unidex.scoring.boosted_trees import feature_names
from unidex.scoring.layout import Layout
from unidex.scoring.lexical import LexicalPart
from unidex.scoring.lexical_rows import TextRows
from unidex.scoring.linear_part import LINEAR
from unidex.scoring.links import LINKS
from unidex.scoring.matches import MATCHES
from unidex.scoring.rankers import FeatureColumns, WeightedSum
from unidex.scoring.ranking_features import Pairs, compute_features
from unidex.sparse_rows import csr_from_counts, find_sorted, row_of_entries, unchecked_csr

# The rows of their candidates fit the caches of a processor, and little memory is needed.
_TEXTS_AT_ONCE = 64


def describe_at_once(
    pairs: Pairs, names: Sequence[str], priors: Callable[[], NDArray[np.float32]]
) -> FeatureColumns | None:
    """The named features of pairs; None where they must be computed one by one.

    Args:
        pairs: texts and candidates; an id below 0 is no candidate.
        names: of the features, in the order of the columns.
        priors: gives ln(1 + frequency) of each label.
    """
    words, lexical = pairs.queries.words, pairs.lexical
    if native.kernels is None or lexical is None or words is None or not pairs.ids_NK.size:
        return None
    if pairs.ids_NK.dtype != np.int64 or pairs.frequencies_L.dtype != np.int64:
        return None
    layout = pairs.layout
    if lexical.has_further_texts or layout.has_tree:
        return None
    known_names, weights = known_features(layout)
    more = tuple(names)[len(known_names) :]
    last: tuple[str, ...] = ()
    for group, is_there in ((LINEAR, pairs.linear is not None), (LINKS, pairs.queries.links is not None)):
        if is_there and more[-len(group) :] == group:
            more, last = more[: -len(group)], (*group, *last)
    if more not in ((), MATCHES) or (more and (lexical.matches is None or pairs.queries.matches is None)):
        return None
    num_texts, num_candidates = pairs.ids_NK.shape
    if pairs.knn is None:
        knn, nearest_N = _no_scores(num_texts), np.zeros(num_texts, dtype=np.float32)
    else:
        knn, nearest_N = pairs.knn.scores_NL, pairs.knn.nearest_N
    if tuple(names) != (*known_names, *more, *last) or not native.is_plain(words, knn):
        return None
    of_labels = _few_labels(pairs, lexical, knn) if lexical.only_texts is None else None
    if of_labels is None:
        assert lexical.only_texts is not None
        of_labels = _OfLabels(pairs.ids_NK, knn, priors(), pairs.frequencies_L, lexical.only_texts)
    label_rows = of_labels.rows
    if not native.is_plain(label_rows.rows_RF):
        return None
    ids_NK = np.maximum(pairs.ids_NK, 0)
    heads_HNK = np.empty((len(layout.heads), num_texts, num_candidates), dtype=np.float32)
    for start in range(0, num_texts, _TEXTS_AT_ONCE):
        texts = slice(start, start + _TEXTS_AT_ONCE)
        for place, head in enumerate(layout.heads):
            queries = layout.head_queries(pairs.queries.vectors[texts], head)
            first = layout.first_column(head)
            heads_HNK[place, texts] = pairs.index.inner_products(queries, ids_NK[texts], first)
    columns_FNK = np.empty((len(names), num_texts, num_candidates), dtype=np.float32)
    native.kernels.describe_pairs(
        *(of_labels.ids_NK, heads_HNK, weights, *native.arrays_of(of_labels.knn), nearest_N, of_labels.priors),
        *(of_labels.frequencies, lexical.idf_of_columns, *native.arrays_of(words)),
        *native.arrays_of(label_rows.rows_RF),
        *(label_rows.num_words_R, label_rows.word_norms_R, columns_FNK[: len(known_names)]),
    )
    if lexical.matches is not None and pairs.queries.matches is not None and more:
        lexical.matches.features(
            pairs.queries.matches, pairs.ids_NK, columns_FNK[len(known_names) : len(known_names) + len(more)]
        )
    if last:
        columns_FNK[-len(last) :] = list(compute_features(pairs, last).values())
    found = FeatureColumns(zip(names, columns_FNK, strict=True))
    found.names, found.columns_FNK = tuple(names), columns_FNK
    # Whole numbers, from which the propensity is computed.
    found["frequency"] = pairs.frequencies_L[ids_NK]
    return found


class _OfLabels(NamedTuple):
    """Candidates, and what is known of labels: of all, or of the candidates, whose ids are then places among them."""

    ids_NK: NDArray[np.int64]
    knn: sparse.csr_array
    priors: NDArray[np.float32]
    frequencies: NDArray[np.int64]
    rows: TextRows


def _few_labels(pairs: Pairs, lexical: LexicalPart, knn: sparse.csr_array) -> _OfLabels:
    """What is known of the candidates alone: of very many labels, arrays of all are not in memory."""
    # No candidate is as label 0, here as there: where there is one, label 0 has the place 0.
    distinct_C, places_NK = np.unique(np.maximum(pairs.ids_NK, 0), return_inverse=True)
    ids_NK = np.where(pairs.ids_NK < 0, -1, places_NK.reshape(pairs.ids_NK.shape))
    columns, is_there = find_sorted(distinct_C, knn.indices)
    counts_N = np.bincount(row_of_entries(knn)[is_there], minlength=knn.shape[0])
    few = csr_from_counts(knn.data[is_there], columns[is_there].astype(np.int32), counts_N, len(distinct_C))
    frequencies_C = pairs.frequencies_L[distinct_C]
    return _OfLabels(
        ids_NK, few, np.log1p(frequencies_C).astype(np.float32), frequencies_C, lexical.rows_of(distinct_C)
    )


@lru_cache(maxsize=16)
def known_features(layout: Layout) -> tuple[tuple[str, ...], NDArray[np.float32]]:
    """The features that the kernel computes, and the weights of the heads, kNN scores and label priors in their sum."""
    weights = WeightedSum.of(layout, layout.weights).weights
    parts = (*layout.heads, "knn", "label_prior")
    names = feature_names(layout)[: -len(MATCHES)]
    return names, np.array([weights.get(part, 0.0) for part in parts], dtype=np.float32)


def _no_scores(num_texts: int) -> sparse.csr_array:
    starts = np.zeros(num_texts + 1, dtype=np.int32)
    return unchecked_csr(np.empty(0, dtype=np.float32), np.empty(0, dtype=np.int32), starts, (num_texts, 1))
