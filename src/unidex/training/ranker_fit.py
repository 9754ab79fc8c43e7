"""The fit of a ranker to held-out texts, and its predictions for texts that it was not fitted to."""

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


def fit_ranker(
    scorer: Scorer,
    predict: Predict,
    held_out: Split,
    queries_of: Callable[[NDArray[np.int64]], Queries],
    *,
    answered: NDArray[np.int64],
    forbidden: NDArray[np.int64],
    num_train: int,
    propensity: Propensity,
) -> tuple[FittedRanker, TopK]:
    """A ranker of all parts of a scorer, and its predictions for the held-out texts that are answered.

    Each half of the texts is predicted by a ranker that was fitted to the other half.

    Args:
        scorer: of the network.
        predict: what kind of ranker is asked for, and what the user favours.
        held_out: the texts with all of their labels.
        queries_of: the queries of some of them.
        answered: the rows of those that have a label of the train texts.
        forbidden: labels that only held-out texts have. They take part in the fit and are not predicted.
        num_train: number of train texts.
        propensity: constants of the data set.
    """
    has_frozen = scorer.pretrained is not None
    rarity = Rarity.of(predict.favour, num_train, propensity)
    linear = LinearWeights.prior(scorer.layout, rarity, pretrained=has_frozen)
    few = len(answered) < MIN_TREES
    rows_N = answered
    if predict.rank == "decision-tree":
        names, counts = (*TREE_FEATURES, *added_weights(scorer.layout.weights)), DecisionTreeRanker.counts
    elif few:
        # Most labels of few texts are new to the others: those texts count that have nothing else.
        rows_N = np.arange(len(held_out))
        names, counts = linear.ranker(scorer.layout).features, LinearRanker.counts
        found_few = (len(linear.weights), len(answered), MIN_TREES)
        logger.info("The ranker has weights of %d features: %d held-out texts are few (trees need %d).", *found_few)
    else:
        names = feature_names(scorer.layout, pretrained=has_frozen, linear=scorer.linear is not None)
        counts = BoostedTreesRanker.counts
    fitted_to = held_out.take(rows_N)
    # Labels that only these texts have show the ranker what it may expect of labels without training texts.
    candidates = scorer.candidates(queries_of(rows_N), counts, names)
    ids_NK = candidates.ids_NK
    hits_NK = contains(fitted_to.positives, ids_NK)
    counts_NK = (ids_NK >= 0) & ~contains(fitted_to.filter_pairs, ids_NK)

    def fit(chosen_N: NDArray[np.bool_]) -> FittedRanker:
        pairs = counts_NK & chosen_N[:, None]
        if predict.rank == "learned" and few:
            return linear.fit(candidates.features, hits_NK, pairs)
        features, hits = {name: values[pairs] for name, values in candidates.features.items()}, hits_NK[pairs]
        if predict.rank == "learned":
            return BoostedTrees.fit(features, hits, rarity)
        weight = predict.decision_tree_weight
        return DecisionTreeFusion.fit(features, hits, weight=weight, num_train=num_train, propensity=propensity)

    known = Candidates(np.where(np.isin(ids_NK, forbidden), PADDING, ids_NK), candidates.features)
    half_N = np.arange(len(fitted_to)) % 2 == 0
    found = TopK(np.full_like(ids_NK, PADDING), np.full(ids_NK.shape, -np.inf, dtype=np.float32))
    for chosen_N in (half_N, ~half_N) if len(fitted_to) > 1 else ():
        best = fit(~chosen_N).ranker(scorer.layout).rank(known.take(chosen_N), ids_NK.shape[1])
        found.ids[chosen_N], found.scores[chosen_N] = best.ids, best.scores
    places = np.searchsorted(rows_N, answered)
    return fit(np.ones(len(fitted_to), dtype=bool)), TopK(found.ids[places], found.scores[places])
