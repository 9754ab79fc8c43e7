"""The scorer: from the queries of texts to ranked labels and their probabilities.

The index finds candidates; ranking features describe each candidate; a ranker makes one score of them. Where the
index itself searches by the sum of the parts, its order is the ranking, and only the kNN part is joined to it.

Shapes: N texts, K places or candidates, L labels, J columns of both heads, D columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from unidex.errors import ModelError
from unidex.index import Index
from unidex.index.checks import hidden_labels
from unidex.index.exact import search_exact
from unidex.nn.vectors import Vectors, as_array
from unidex.scoring.calibration import Calibration
from unidex.scoring.candidate_ids import continued, without_repeats
from unidex.scoring.feature_columns import describe_at_once
from unidex.scoring.knn import KnnPart
from unidex.scoring.knn_join import join_scores
from unidex.scoring.label_counts import LabelCounts
from unidex.scoring.layout import Head, Layout, Mode
from unidex.scoring.lexical import LexicalPart
from unidex.scoring.linear_part import LINEAR, LinearPart
from unidex.scoring.links import LINKS, Links, best_links, named_labels
from unidex.scoring.matches import MATCHES
from unidex.scoring.pretrained import PRETRAINED, PretrainedPart
from unidex.scoring.queries import Queries
from unidex.scoring.ranked_search import rank_at_once
from unidex.scoring.rankers import (
    LEXICAL,
    CandidateCounts,
    Candidates,
    FittedRanker,
    Ranker,
    WeightedSum,
    added_weights,
)
from unidex.scoring.ranking_features import KnnFound, Pairs, compute_features
from unidex.topk import TopK


@dataclass(eq=False)
class Scorer:
    """Everything that makes a score.

    Attributes:
        layout: the columns of queries and rows, and the weights of the parts.
        index: the rows of the labels.
        labels: their frequencies, and which are removed.
        knn: training texts; None where they are not used.
        fitted: the fitted ranker; None where the parts are summed.
        calibration: from scores to probabilities; None where none was fitted.
        lexical: words of the labels; None where no ranker reads them.
        pretrained: vectors by a frozen encoder; None where no ranker reads them.
        linear: linear classifiers of the labels; None where no ranker reads them.
        links: between labels; None where no ranker reads them.
    """

    layout: Layout
    index: Index
    labels: LabelCounts
    knn: KnnPart | None = None
    fitted: FittedRanker | None = None
    calibration: Calibration | None = None
    lexical: LexicalPart | None = None
    pretrained: PretrainedPart | None = None
    linear: LinearPart | None = None
    links: Links | None = None
    _logarithms: tuple[NDArray[np.int64], NDArray[np.float32], int] | None = None
    _removed: tuple[NDArray[np.bool_], NDArray[np.int64]] | None = None
    _fitted_ranker: tuple[int, int, Ranker] | None = None  # with the fitted one and the layout that it was made of

    def ranker(self, mode: Mode = "both") -> Ranker:
        """The ranker of a mode."""
        if self.fitted is not None and mode == "both":
            if self._fitted_ranker is None or self._fitted_ranker[:2] != (id(self.fitted), id(self.layout)):
                self._fitted_ranker = id(self.fitted), id(self.layout), self.fitted.ranker(self.layout)
            return self._fitted_ranker[2]
        return WeightedSum.of(self.layout, self.layout.weights, mode)

    def missing_part(self) -> str:
        """The part that the fitted ranker reads and that is not there, as its folder is called; empty where none is."""
        matches = None if self.lexical is None else self.lexical.matches
        parts = (
            ("lexical", self.lexical, LEXICAL),
            ("lexical", matches, MATCHES),
            ("pretrained", self.pretrained, PRETRAINED),
            ("linear", self.linear, LINEAR),
            ("links", self.links, LINKS),
        )
        read = set() if self.fitted is None else set(self.ranker().features)
        return next((name for name, part, features in parts if part is None and read.intersection(features)), "")

    def queries(
        self, vectors: Vectors, texts: Sequence[str], mode: Mode = "both", prepared: sparse.csr_array | None = None
    ) -> Queries:
        """The queries of texts with these vectors; a linear part and a pretrained part may read their prepared form."""
        words = matches = links = None
        if self.lexical is not None and mode == "both":
            words = self.lexical.rows(texts)
            if self.lexical.matches is not None and (self.fitted is None or MATCHES[0] in self.ranker().features):
                matches = self.lexical.matches.find(texts)
                if self.links is not None:
                    links = self.links.of_texts(named_labels(self.lexical.matches, matches))
        frozen = self.pretrained.encode(texts, prepared) if self.pretrained is not None and mode == "both" else None
        rows = prepared if self.linear is not None and mode == "both" else None
        return Queries(as_array(self.layout.queries(vectors, mode)), words, frozen, matches, rows, links)

    def learn_links(self, texts: Sequence[str], positives: sparse.csr_array) -> None:
        """Count the links of further train texts, where there are links."""
        if self.links is not None:
            assert self.lexical is not None
            assert self.lexical.matches is not None
            finder = self.lexical.matches
            self.links = self.links.with_texts(named_labels(finder, finder.find(texts)), positives)

    def search(
        self,
        queries: Queries,
        k: int,
        *,
        mode: Mode = "both",
        allowed: ArrayLike | None = None,
        forbidden: ArrayLike | None = None,
    ) -> TopK:
        """The k best labels of each text.

        Args:
            queries: of the texts in the mode.
            k: number of places.
            mode: the heads that are used.
            allowed: ids of the only labels that may be returned; all where None.
            forbidden: ids of labels that are not returned.
        """
        if not self._index_ranks(mode):
            ranker = self.ranker(mode)
            is_any_hidden = allowed is not None or forbidden is not None or bool(len(self._removed_ids()))
            best = None if is_any_hidden else rank_at_once(self, ranker, queries, k)
            if best is None:
                filters = {"allowed": allowed, "forbidden": forbidden}
                candidates = self.candidates(queries, ranker.counts, ranker.features, **filters)
                best = ranker.rank(candidates, min(k, candidates.ids_NK.shape[1]))
            if best.k == k and (best.ids >= 0).all():
                return best
            return continued(best, self.index.search(queries.vectors, k, allowed=allowed, forbidden=forbidden), k)
        found = self.index.search(queries.vectors, k, allowed=allowed, forbidden=forbidden)
        if mode != "both" or self.layout.weights.knn == 0:
            return found
        knn = self._knn_found(queries, self._hidden(allowed, forbidden))
        if knn is None:
            return found

        def score_of(of_texts: NDArray[np.int64], of_labels: NDArray[np.int64]) -> NDArray[np.float32]:
            scores: NDArray[np.float32] = np.einsum(
                "nd,nd->n", queries.vectors[of_texts], self.index.vectors(of_labels)
            )
            return scores

        # A label that the kNN part lifts above the k best is scored too. The last place bounds what the index has left
        # out; an index that is not exact may err there, rarely and by little.
        return join_scores(found, knn.scores_NL, self.layout.weights.knn, score_of, k=k, found_is_best=True)

    def candidates(
        self,
        queries: Queries,
        counts: CandidateCounts,
        features: Sequence[str],
        *,
        allowed: ArrayLike | None = None,
        forbidden: ArrayLike | None = None,
    ) -> Candidates:
        """The candidates of texts with the named features.

        Args:
            queries: of the texts, by all heads.
            counts: how many candidates the index, the kNN part and the lexical part may find.
            features: names of the features. Where "knn" is among them, the kNN part finds candidates.
            allowed: ids of the only labels that may be candidates; all where None.
            forbidden: ids of labels that are no candidates.
        """
        ids = [self.index.search(queries.vectors, counts.index, allowed=allowed, forbidden=forbidden).ids]
        hidden_L = self._hidden(allowed, forbidden)
        knn = self._knn_found(queries, hidden_L) if "knn" in features else None
        if knn is not None:
            ids.append(TopK.from_csr(knn.scores_NL, counts.knn).ids)
        if self.lexical is not None and queries.words is not None and counts.lexical:
            ids.append(self.lexical.search(queries.words, counts.lexical, hidden_L).ids)
        if self.lexical is not None and self.lexical.matches is not None and queries.matches and counts.matches:
            ids.append(self.lexical.matches.search(queries.matches, counts.matches, hidden_L).ids)
        if queries.links is not None and counts.links:
            ids.append(best_links(queries.links, counts.links, hidden_L).ids)
        frozen = self._frozen_knn(queries, features, hidden_L)
        if frozen is not None:
            ids.append(TopK.from_csr(frozen, counts.knn).ids)
            assert self.pretrained is not None
            assert queries.pretrained is not None
            by_cosine = self.pretrained.search(queries.pretrained, counts.lexical, hidden_L) if counts.lexical else None
            ids += [] if by_cosine is None else [by_cosine.ids]
        return self._described(queries, without_repeats(np.concatenate(ids, axis=1)), features, knn, frozen)

    def describe(self, queries: Queries, ids_NK: NDArray[np.int64], mode: Mode = "both") -> Candidates:
        """Given labels as candidates, with their features."""
        ranker = self.ranker(mode)
        hidden_L = self._hidden(None, None)
        knn = self._knn_found(queries, hidden_L) if "knn" in ranker.features else None
        frozen = self._frozen_knn(queries, ranker.features, hidden_L)
        if not ranker.compares_candidates:
            return self._described(queries, ids_NK, ranker.features, knn, frozen)
        # Their features depend on the candidates that the text has without them.
        others = self.candidates(queries, ranker.counts, ranker.features).ids_NK
        all_ids = without_repeats(np.concatenate([others, ids_NK], axis=1))
        described = self._described(queries, all_ids, ranker.features, knn, frozen)
        places = (all_ids[:, None, :] == ids_NK[:, :, None]).argmax(axis=2)
        taken = {name: np.take_along_axis(values, places, axis=1) for name, values in described.features.items()}
        return Candidates(ids_NK, taken)

    def head_vectors(self, ids: NDArray[np.int64], mode: Mode = "both") -> dict[Head, NDArray[np.float32]]:
        """For each head that is used, vectors of labels whose inner products with a text are the head's contribution.

        With a label tree, that is the logit of the label within its cluster, of which the score is no sum.
        """
        weights = self.ranker(mode).head_weights
        if self.index.label_scale is not None:
            weights = {"classifier": self.index.label_scale}
        rows = self.index.vectors(ids)
        return {head: self.layout.vectors_of(rows, head) * np.float32(weight) for head, weight in weights.items()}

    def nearest(self, vectors_NJ: NDArray[np.float32], k: int, *, forbidden: ArrayLike | None = None) -> TopK:
        """The k labels of highest inner product with vectors of both heads side by side.

        The heads count with their weights. The label prior and the clusters of a label tree do not count.
        """
        if not self.layout.has_tree:
            return self.index.search(self.layout.padded(vectors_NJ), k, forbidden=forbidden)
        hidden = self._removed_ids()
        if forbidden is not None:
            hidden = np.union1d(hidden, np.asarray(forbidden, dtype=np.int64))
        return search_exact(vectors_NJ, self.index.vectors(np.arange(self.index.num_ids)), k, forbidden=hidden)

    def nearest_by_head(
        self, vectors_ND: NDArray[np.float32], head: Head, k: int, *, forbidden: ArrayLike | None = None
    ) -> TopK:
        """As `nearest`, by the vectors of one head; scores are those of the head alone, without its weight."""
        found = self.nearest(self.layout.one_head(vectors_ND, head), k, forbidden=forbidden)
        return TopK(found.ids, found.scores / np.float32(self.layout.weight(head) or 1.0))

    def probabilities(
        self, topk: TopK, mode: Mode, familiarity_N: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32] | None:
        """How likely each predicted label is right, N x K, 0 for none; None without a calibration for the mode.

        Args:
            topk: predictions.
            mode: the mode that made them.
            familiarity_N: how much of each text is known; None to trust every text.
        """
        if self.calibration is None or self.calibration.mode != mode:
            return None
        return self.calibration.probabilities(topk, self.labels.frequencies, familiarity_N)

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
        return self.fitted is None and not (self.layout.has_tree and added_weights(self.layout.weights))

    def _hidden(self, allowed: ArrayLike | None, forbidden: ArrayLike | None) -> NDArray[np.bool_] | None:
        """Which labels are removed or must not be returned; None where all may be."""
        return hidden_labels(len(self.labels.removed), self._removed_ids(), allowed, forbidden)

    def _removed_ids(self) -> NDArray[np.int64]:
        """The removed labels: the marks of all labels are read once."""
        removed_L = self.labels.removed
        if self._removed is None or self._removed[0] is not removed_L:
            self._removed = removed_L, np.flatnonzero(removed_L)
        return self._removed[1]

    def _knn_found(self, queries: Queries, hidden_L: NDArray[np.bool_] | None) -> KnnFound | None:
        """What the kNN part finds; None where there is none."""
        if self.knn is None:
            return None
        near = self.knn.nearest(self.layout.knn_queries(queries.vectors))
        nearest_N = near.scores[:, 0] if near.k else np.zeros(len(near), dtype=np.float32)
        return KnnFound(self.knn.scores_of(near, hidden_L), np.maximum(nearest_N, 0))

    def _frozen_knn(
        self, queries: Queries, features: Sequence[str], hidden_L: NDArray[np.bool_] | None
    ) -> sparse.csr_array | None:
        """The kNN scores of the pretrained part; None where no feature asks for it."""
        if self.pretrained is None or queries.pretrained is None or not set(PRETRAINED) & set(features):
            return None
        return self.pretrained.knn_scores(queries.pretrained, hidden_L)

    def _described(
        self,
        queries: Queries,
        ids_NK: NDArray[np.int64],
        features: Sequence[str],
        knn: KnnFound | None,
        frozen: sparse.csr_array | None,
    ) -> Candidates:
        of_labels = (self.labels.frequencies, knn, self.lexical, self.pretrained, frozen, self.linear)
        pairs = Pairs(self.layout, self.index, queries, ids_NK, ids_NK >= 0, *of_labels)
        at_once = describe_at_once(pairs, features, lambda: self.log_frequencies()[0])
        return Candidates(ids_NK, compute_features(pairs, features) if at_once is None else at_once)

    def log_frequencies(self) -> tuple[NDArray[np.float32], int]:
        """ln(1 + frequency) of each label, and the highest frequency, computed once."""
        frequencies_L = self.labels.frequencies
        if self._logarithms is None or self._logarithms[0] is not frequencies_L:
            highest = int(frequencies_L.max(initial=0))
            self._logarithms = frequencies_L, np.log1p(frequencies_L).astype(np.float32), highest
        return self._logarithms[1:]
