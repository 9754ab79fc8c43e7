"""All features of the learned ranker at once, by compiled code: what `unidex.scoring.ranking_features` computes.

Its numbers are the same, bit for bit. Models whose rankers read other features, as those of a label tree, of a
pretrained part or of several texts per label, take the other way.

Shapes: N texts, K candidates, L labels, F features.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex import native
from unidex.scoring.boosted_trees import feature_names
from unidex.scoring.layout import Layout
from unidex.scoring.matches import MATCHES
from unidex.scoring.rankers import FeatureColumns, WeightedSum
from unidex.scoring.ranking_features import Pairs
from unidex.sparse_rows import unchecked_csr

# The rows of their candidates fit the caches of a processor, and little memory is needed.
_TEXTS_AT_ONCE = 64


def describe_at_once(pairs: Pairs, names: Sequence[str], priors_L: NDArray[np.float32]) -> FeatureColumns | None:
    """The named features of pairs; None where they must be computed one by one.

    Args:
        pairs: texts and candidates; an id below 0 is no candidate.
        names: of the features, in the order of the columns.
        priors_L: ln(1 + frequency) of each label.
    """
    words, lexical = pairs.queries.words, pairs.lexical
    if native.kernels is None or lexical is None or words is None or not pairs.ids_NK.size:
        return None
    if pairs.ids_NK.dtype != np.int64 or pairs.frequencies_L.dtype != np.int64:
        return None
    layout, label_rows = pairs.layout, lexical.only_texts
    if label_rows is None or layout.has_tree:
        return None
    known_names, weights = known_features(layout)
    more = tuple(names)[len(known_names) :]
    if more not in ((), MATCHES) or (more and (lexical.matches is None or pairs.queries.matches is None)):
        return None
    num_texts, num_candidates = pairs.ids_NK.shape
    if pairs.knn is None:
        knn, nearest_N = _no_scores(num_texts), np.zeros(num_texts, dtype=np.float32)
    else:
        knn, nearest_N = pairs.knn.scores_NL, pairs.knn.nearest_N
    if tuple(names) != (*known_names, *more) or not native.is_plain(words, knn, label_rows.rows_RF):
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
        *(pairs.ids_NK, heads_HNK, weights, *native.arrays_of(knn), nearest_N, priors_L),
        *(pairs.frequencies_L, lexical.idf_of_columns, *native.arrays_of(words), *native.arrays_of(label_rows.rows_RF)),
        *(label_rows.num_words_R, label_rows.word_norms_R, columns_FNK[: len(known_names)]),
    )
    if lexical.matches is not None and pairs.queries.matches is not None and more:
        lexical.matches.features(pairs.queries.matches, pairs.ids_NK, columns_FNK[len(known_names) :])
    found = FeatureColumns(zip(names, columns_FNK, strict=True))
    found.names, found.columns_FNK = tuple(names), columns_FNK
    # Whole numbers, from which the propensity is computed.
    found["frequency"] = pairs.frequencies_L[ids_NK]
    return found


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
