"""The scorer: from the queries of texts to ranked labels and their probabilities.

The index finds candidates; ranking features describe each candidate; a ranker makes one score of them. Where the
index itself searches by the sum of the parts, its order is the ranking, and only the kNN part is joined to it.

Shapes: N texts, K places or candidates, L labels, J columns of both heads, D columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from unidex.errors import ModelError
from unidex.index import Index
from unidex.index.base import hidden_labels
from unidex.index.exact import search_exact
from unidex.index.tree import TreeIndex
from unidex.scoring.calibration import Calibration
from unidex.scoring.decision_tree import DecisionTreeFusion, DecisionTreeRanker
from unidex.scoring.knn import KnnPart
from unidex.scoring.knn_join import join_scores
from unidex.scoring.layout import Head, Layout, Mode
from unidex.scoring.rankers import Candidates, Ranker, WeightedSum, added_weights
from unidex.scoring.ranking_features import Pairs, compute_features
from unidex.topk import PADDING, TopK

# Labels per text that a ranker orders, and how many more the kNN part may add.
CANDIDATES = 100
KNN_CANDIDATES = 32


class LabelCounts(Protocol):
    """What a scorer must know of the labels."""

    @property
    def frequencies(self) -> NDArray[np.int64]:
        """Number of training texts per label."""
        ...

    @property
    def removed(self) -> NDArray[np.bool_]:
        """Which labels are not predicted any more."""
        ...


@dataclass(frozen=True, eq=False)
class LabelFrequencies:
    """Labels of which none is removed.

    Attributes:
        frequencies: number of training texts per label.
    """

    frequencies: NDArray[np.int64]

    @property
    def removed(self) -> NDArray[np.bool_]:
        """None is removed."""
        return np.zeros(len(self.frequencies), dtype=bool)


@dataclass(eq=False)
class Scorer:
    """Everything that makes a score.

    Attributes:
        layout: the columns of queries and rows, and the weights of the parts.
        index: the rows of the labels.
        labels: their frequencies, and which are removed.
        knn: training texts; None where they are not used.
        fusion: the decision tree of both heads; None where their scores are summed.
        calibration: from scores to probabilities; None where none was fitted.
    """

    layout: Layout
    index: Index
    labels: LabelCounts
    knn: KnnPart | None = None
    fusion: DecisionTreeFusion | None = None
    calibration: Calibration | None = None

    def ranker(self, mode: Mode = "both") -> Ranker:
        """The ranker of a mode."""
        weights = self.layout.weights
        if self.fusion is not None and mode == "both":
            return DecisionTreeRanker(self.fusion, added_weights(weights))
        return WeightedSum.of(self.layout, weights, mode)

    def search(
        self,
        queries_ND: NDArray[np.float32],
        k: int,
        *,
        mode: Mode = "both",
        allowed: ArrayLike | None = None,
        forbidden: ArrayLike | None = None,
    ) -> TopK:
        """The k best labels of each text.

        Args:
            queries_ND: queries of the texts in the mode.
            k: number of places.
            mode: the heads that are used.
            allowed: ids of the only labels that may be returned; all where None.
            forbidden: ids of labels that are not returned.
        """
        if not self._index_ranks(mode):
            candidates = self.candidates(
                queries_ND, max(k, CANDIDATES), mode=mode, allowed=allowed, forbidden=forbidden
            )
            return self.ranker(mode).rank(candidates, k)
        found = self.index.search(queries_ND, k, allowed=allowed, forbidden=forbidden)
        knn_scores = self._knn_scores(queries_ND, mode, allowed, forbidden)
        if knn_scores is None:
            return found

        def score_of(of_texts: NDArray[np.int64], of_labels: NDArray[np.int64]) -> NDArray[np.float32]:
            scores: NDArray[np.float32] = np.einsum("nd,nd->n", queries_ND[of_texts], self.index.vectors(of_labels))
            return scores

        # A label that the kNN part lifts above the k best is scored too. The last place bounds what the index has left
        # out; an index that is not exact may err there, rarely and by little.
        return join_scores(found, knn_scores, self.layout.weights.knn, score_of, k=k, found_is_best=True)

    def candidates(
        self,
        queries_ND: NDArray[np.float32],
        num: int,
        *,
        mode: Mode = "both",
        features: Sequence[str] | None = None,
        allowed: ArrayLike | None = None,
        forbidden: ArrayLike | None = None,
    ) -> Candidates:
        """The candidates of texts: the best ``num`` of the index, and the best of the kNN part.

        They have the named ``features``, or those that the ranker of the mode reads.
        """
        ids_NK = self.index.search(queries_ND, num, allowed=allowed, forbidden=forbidden).ids
        knn_scores = self._knn_scores(queries_ND, mode, allowed, forbidden)
        if knn_scores is not None:
            ids_NK = np.concatenate([ids_NK, TopK.from_csr(knn_scores, KNN_CANDIDATES).ids], axis=1)
        return self._described(queries_ND, without_repeats(ids_NK), features or self.ranker(mode).features, knn_scores)

    def describe(self, queries_ND: NDArray[np.float32], ids_NK: NDArray[np.int64], mode: Mode = "both") -> Candidates:
        """Given labels as candidates, with their features."""
        return self._described(queries_ND, ids_NK, self.ranker(mode).features, self._knn_scores(queries_ND, mode))

    def head_vectors(self, ids: NDArray[np.int64], mode: Mode = "both") -> dict[Head, NDArray[np.float32]]:
        """For each head that is used, vectors of labels whose inner products with a text are the head's contribution.

        With a label tree, that is the logit of the label within its cluster, of which the score is no sum.
        """
        weights = self.ranker(mode).head_weights
        if isinstance(self.index, TreeIndex):
            weights = {"classifier": self.index.scale}
        rows = self.index.vectors(ids)
        return {head: self.layout.vectors_of(rows, head) * np.float32(weight) for head, weight in weights.items()}

    def nearest(self, vectors_NJ: NDArray[np.float32], k: int, *, forbidden: ArrayLike | None = None) -> TopK:
        """The k labels of highest inner product with vectors of both heads side by side.

        The heads count with their weights. The label prior and the clusters of a label tree do not count.
        """
        if not self.layout.has_tree:
            return self.index.search(self.layout.padded(vectors_NJ), k, forbidden=forbidden)
        hidden = np.flatnonzero(self.labels.removed)
        if forbidden is not None:
            hidden = np.union1d(hidden, np.asarray(forbidden, dtype=np.int64))
        return search_exact(vectors_NJ, self.index.vectors(np.arange(self.index.num_ids)), k, forbidden=hidden)

    def nearest_by_head(
        self, vectors_ND: NDArray[np.float32], head: Head, k: int, *, forbidden: ArrayLike | None = None
    ) -> TopK:
        """As `nearest`, by the vectors of one head; scores are those of the head alone, without its weight."""
        found = self.nearest(self.layout.one_head(vectors_ND, head), k, forbidden=forbidden)
        return TopK(found.ids, found.scores / np.float32(self.layout.weight(head) or 1.0))

    def probabilities(self, topk: TopK, mode: Mode) -> NDArray[np.float32] | None:
        """How likely each predicted label is right, N x K, 0 for none; None without a calibration for the mode."""
        if self.calibration is None or self.calibration.mode != mode:
            return None
        return self.calibration.probabilities(topk, self.labels.frequencies)

    def min_probability(self, asked: str | float, mode: Mode) -> float:
        """A minimum probability by number, or by name of one of the model's thresholds, such as "best-f1"."""
        if self.calibration is None:
            raise ModelError(
                "a minimum probability needs a model with a calibration, but this one has none; make one on texts that "
                "it was not trained on: unidex calibrate MODEL DATA"
            )
        if self.calibration.mode != mode:
            raise ModelError(
                f"a minimum probability needs the mode that probabilities were fitted for, {self.calibration.mode}, "
                f"but the mode is {mode}; leave one of the two out"
            )
        return self.calibration.min_probability(asked)

    def _index_ranks(self, mode: Mode) -> bool:
        """Whether the index searches by the ranker's sum, except for the kNN part, which `join_scores` adds exactly."""
        if mode != "both":
            return True
        if self.layout.has_tree:
            return not added_weights(self.layout.weights)
        return self.fusion is None

    def _knn_scores(
        self,
        queries_ND: NDArray[np.float32],
        mode: Mode,
        allowed: ArrayLike | None = None,
        forbidden: ArrayLike | None = None,
    ) -> sparse.csr_array | None:
        """The kNN scores of labels, without their weight; None where they are not used."""
        if self.knn is None or mode != "both" or self.layout.weights.knn == 0:
            return None
        removed = np.flatnonzero(self.labels.removed)
        hidden_L = hidden_labels(len(self.labels.removed), removed, allowed, forbidden)
        return self.knn.label_scores(self.layout.knn_queries(queries_ND), hidden_L=hidden_L)

    def _described(
        self,
        queries_ND: NDArray[np.float32],
        ids_NK: NDArray[np.int64],
        features: Sequence[str],
        knn_scores: sparse.csr_array | None,
    ) -> Candidates:
        pairs = Pairs(self.layout, self.index, queries_ND, ids_NK, self.labels.frequencies, knn_scores)
        return Candidates(ids_NK, compute_features(pairs, features))


def without_repeats(ids_NK: NDArray[np.int64]) -> NDArray[np.int64]:
    """Each id of a row once, in ascending order; a repeated one becomes -1.

    >>> without_repeats(np.array([[3, 1, 3]])).tolist()
    [[1, 3, -1]]
    """
    ascending = np.sort(ids_NK, axis=1)
    ascending[:, 1:][ascending[:, 1:] == ascending[:, :-1]] = PADDING
    return ascending
