"""The fit of rankers to held-out texts, and their predictions for texts that they were not fitted to."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from unidex.config.predict import Predict
from unidex.data.dataset import Propensity, Split
from unidex.scoring.boosted_trees import BoostedTrees, BoostedTreesRanker, feature_names
from unidex.scoring.decision_tree import FEATURES as TREE_FEATURES
from unidex.scoring.decision_tree import DecisionTreeFusion, DecisionTreeRanker
from unidex.scoring.linear_ranker import LinearRanker, LinearWeights
from unidex.scoring.queries import Queries
from unidex.scoring.rankers import Candidates, FittedRanker, Rarity, added_weights
from unidex.scoring.scorer import Scorer
from unidex.sparse_rows import contains
from unidex.topk import PADDING, TopK

logger = logging.getLogger(__name__)

# With fewer texts that have a label of the train texts, weights of a few features are fitted in place of trees.
MIN_TREES = 200
# Of the wrong candidates of a text behind its best ones, one stands for so many: trees are fitted in half of the time.
_BEST, _STANDS_FOR = 10, 3


class RankerFit:
    """The candidates of held-out texts, and the rankers that are fitted to them.

    Args:
        scorer: of the network, with all parts that a ranker may read.
        predict: what kind of ranker is asked for, and what the user favours.
        held_out: the texts with all of their labels.
        queries_of: the queries of some of them.
        answered: the rows of those that have a label of the train texts.
        forbidden: labels that only held-out texts have. They take part in the fit and are not predicted.
        num_train: number of train texts.
        propensity: constants of the data set.
    """

    def __init__(
        self,
        scorer: Scorer,
        predict: Predict,
        held_out: Split,
        queries_of: Callable[[NDArray[np.int64]], Queries],
        *,
        answered: NDArray[np.int64],
        forbidden: NDArray[np.int64],
        num_train: int,
        propensity: Propensity,
    ) -> None:
        has_frozen = scorer.pretrained is not None
        self._layout, self._predict = scorer.layout, predict
        self._num_train, self._propensity = num_train, propensity
        self._rarity = Rarity.of(predict.favour, num_train, propensity)
        self._linear = LinearWeights.prior(scorer.layout, self._rarity, pretrained=has_frozen)
        self._is_few = len(answered) < MIN_TREES
        rows_N = answered
        if predict.rank == "decision-tree":
            names, counts = (*TREE_FEATURES, *added_weights(scorer.layout.weights)), DecisionTreeRanker.counts
        elif self._is_few:
            # Most labels of few texts are new to the others: those texts count that have nothing else.
            rows_N = np.arange(len(held_out))
            names, counts = self._linear.ranker(scorer.layout).features, LinearRanker.counts
            found_few = (len(self._linear.weights), len(answered), MIN_TREES)
            logger.info("The ranker has weights of %d features: %d held-out texts are few (trees need %d).", *found_few)
        else:
            has = {"linear": scorer.linear is not None, "links": scorer.links is not None}
            names = feature_names(scorer.layout, pretrained=has_frozen, **has)
            counts = BoostedTreesRanker.counts
        split = held_out.take(rows_N)
        # Labels that only these texts have show the ranker what it may expect of labels without training texts.
        self._candidates = scorer.candidates(queries_of(rows_N), counts, names)
        ids_NK = self._candidates.ids_NK
        self._hits_NK = contains(split.positives, ids_NK)
        self._counts_NK = (ids_NK >= 0) & ~contains(split.filter_pairs, ids_NK)
        self._known_NK = np.where(np.isin(ids_NK, forbidden), PADDING, ids_NK)
        self._places_of_answered = np.searchsorted(rows_N, answered)

    def predictions(self) -> TopK:
        """The predictions for the texts that are answered.

        Each half of the texts is predicted by a ranker that was fitted to the other half.
        """
        known = Candidates(self._known_NK, self._candidates.features)
        num_texts, num_places = self._known_NK.shape
        half_N = np.arange(num_texts) % 2 == 0
        found = TopK(np.full_like(self._known_NK, PADDING), np.full((num_texts, num_places), -np.inf, dtype=np.float32))
        for chosen_N in (half_N, ~half_N) if num_texts > 1 else ():
            best = self._fit(~chosen_N).ranker(self._layout).rank(known.take(chosen_N), num_places)
            found.ids[chosen_N], found.scores[chosen_N] = best.ids, best.scores
        return TopK(found.ids[self._places_of_answered], found.scores[self._places_of_answered])

    def ranker(self) -> FittedRanker:
        """A ranker that is fitted to all texts."""
        return self._fit(np.ones(len(self._known_NK), dtype=bool))

    def _fit(self, chosen_N: NDArray[np.bool_]) -> FittedRanker:
        """A ranker that is fitted to these texts."""
        features = self._candidates.features
        pairs_NK = self._counts_NK & chosen_N[:, None]
        if self._predict.rank == "learned":
            if self._is_few:
                return self._linear.fit(features, self._hits_NK, pairs_NK)
            counts_NK = pair_counts(self._hits_NK, features["weighted_sum_place"])
            of_pairs, hits = self._flat(pairs := pairs_NK & (counts_NK > 0))
            # A half of them gets the trees of all, so that probabilities fit the final scores.
            texts = len(self._known_NK)
            return BoostedTrees.fit(of_pairs, hits, self._rarity, counts_NK[pairs], num_texts=texts)
        of_pairs, hits = self._flat(pairs_NK)
        weight = self._predict.decision_tree_weight
        return DecisionTreeFusion.fit(
            of_pairs, hits, weight=weight, num_train=self._num_train, propensity=self._propensity
        )

    def _flat(self, pairs_NK: NDArray[np.bool_]) -> tuple[dict[str, NDArray[np.float32]], NDArray[np.bool_]]:
        """The features of some pairs of a text and a label, by name, and which pairs are right."""
        features = {name: values_NK[pairs_NK] for name, values_NK in self._candidates.features.items()}
        return features, self._hits_NK[pairs_NK]


def pair_counts(hits_NK: NDArray[np.bool_], places_NK: NDArray[np.float32]) -> NDArray[np.float32]:
    """How many pairs of a text and a candidate each one stands for in a fit of trees; 0 where it is left out.

    The right candidates of a text and its best ones stay. One in three of the others stands for three; which of them
    depends on the rows and columns alone.

    Args:
        hits_NK: whether a candidate is right.
        places_NK: its place by the weighted sum, from 0 on.

    >>> pair_counts(np.array([[True, False, False, False]]), np.array([[30, 2, 11, 12]], dtype=np.float32)).tolist()
    [[1.0, 1.0, 0.0, 3.0]]
    """
    num_texts, num_places = hits_NK.shape
    is_drawn_NK = (np.arange(num_texts)[:, None] + np.arange(num_places)) % _STANDS_FOR == 0
    return np.where(hits_NK | (places_NK < _BEST), 1, is_drawn_NK * _STANDS_FOR).astype(np.float32)
