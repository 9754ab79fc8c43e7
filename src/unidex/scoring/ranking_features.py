"""Ranking features: what is known of a pair of a text and a candidate label.

A feature is one function from `Pairs` to an array N x K. Its name is the name of the feature; a ranker lists the names
it reads. To add a feature, write its function here and decorate it with `ranking_feature`.

Shapes: N texts, K candidates, L labels, D columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex.index import Index
from unidex.index.tree import TreeIndex
from unidex.scoring.layout import Layout
from unidex.sparse_rows import values_at

_TEXTS_AT_ONCE = 256


@dataclass(frozen=True, eq=False)
class Pairs:
    """Texts and their candidates, and all that features are computed from.

    Attributes:
        layout: the layout of queries and rows.
        index: the rows of labels.
        queries_ND: the queries of the texts.
        ids_NK: candidates of each text.
        frequencies_L: number of training texts per label.
        knn_scores_NL: of the kNN part; None where it is not used.
    """

    layout: Layout
    index: Index
    queries_ND: NDArray[np.float32]
    ids_NK: NDArray[np.int64]
    frequencies_L: NDArray[np.int64]
    knn_scores_NL: sparse.csr_array | None

    @cached_property
    def rows(self) -> NDArray[np.float32]:
        """The rows of the candidates."""
        rows = self.index.vectors(self.ids_NK.ravel())
        return rows.reshape(*self.ids_NK.shape, rows.shape[1])


Feature = Callable[[Pairs], NDArray[Any]]
FEATURES: dict[str, Feature] = {}


def ranking_feature(function: Feature) -> Feature:
    """Register a feature under the name of its function."""
    FEATURES[function.__name__] = function
    return function


@ranking_feature
def dual(pairs: Pairs) -> NDArray[np.float32]:
    """The score of the dual encoder."""
    return pairs.layout.scores(pairs.queries_ND, pairs.rows, "dual")


@ranking_feature
def classifier(pairs: Pairs) -> NDArray[np.float32]:
    """The score of the classifier."""
    return pairs.layout.scores(pairs.queries_ND, pairs.rows, "classifier")


@ranking_feature
def label_tree(pairs: Pairs) -> NDArray[np.float32]:
    """The probability of the label by a label tree: that of its cluster times its own."""
    assert isinstance(pairs.index, TreeIndex)
    return pairs.index.scores(pairs.queries_ND, pairs.ids_NK)


@ranking_feature
def knn(pairs: Pairs) -> NDArray[np.float32]:
    """The kNN score; 0 for a label that none of the nearest training texts has."""
    if pairs.knn_scores_NL is None:
        return np.zeros(pairs.ids_NK.shape, dtype=np.float32)
    return values_at(pairs.knn_scores_NL, pairs.ids_NK)


@ranking_feature
def label_prior(pairs: Pairs) -> NDArray[np.float32]:
    """The logarithm of the label's frequency, ln(1 + n)."""
    return np.log1p(pairs.frequencies_L).astype(np.float32)[pairs.ids_NK]


@ranking_feature
def frequency(pairs: Pairs) -> NDArray[np.int64]:
    """The number of training texts of the label."""
    return pairs.frequencies_L[pairs.ids_NK]


def compute_features(pairs: Pairs, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Features by name, N x K each, in blocks of texts."""
    blocks = []
    for start in range(0, max(1, len(pairs.ids_NK)), _TEXTS_AT_ONCE):
        texts = slice(start, start + _TEXTS_AT_ONCE)
        block = Pairs(
            pairs.layout,
            pairs.index,
            pairs.queries_ND[texts],
            np.maximum(pairs.ids_NK[texts], 0),
            pairs.frequencies_L,
            None if pairs.knn_scores_NL is None else pairs.knn_scores_NL[texts],
        )
        blocks.append({name: FEATURES[name](block) for name in names})
    if len(blocks) == 1:
        return blocks[0]
    return {name: np.concatenate([block[name] for block in blocks]) for name in names}
