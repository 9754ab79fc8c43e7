"""The learned ranker: gradient-boosted decision trees over the features of candidates, fitted to held-out texts.

    score(x, l) = ln p(x, l) + power ln ip(l)        p = sigmoid of the sum of the trees

where ip is the inverse propensity of the label. A power of 0 ranks by the chance to be right, a power of 1 by the
expected propensity-scored gain. In the fit, a right pair has the weight ip^0.5 and a wrong one the weight 1. A score
never falls where a part or an overlap of words rises: held-out texts are too few to learn that from them.

Shapes: N texts, K candidates, P pairs of a text and a label, F features.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from unidex.errors import ModelError
from unidex.scoring.layout import Head, Layout
from unidex.scoring.lightgbm_library import Trees, fit_trees
from unidex.scoring.linear_part import LINEAR
from unidex.scoring.links import LINKS
from unidex.scoring.matches import MATCHES
from unidex.scoring.pretrained import PRETRAINED
from unidex.scoring.rankers import (
    LEXICAL,
    CandidateCounts,
    FeatureColumns,
    Features,
    Ranker,
    Rarity,
    WeightedSum,
    searched_parts,
)
from unidex.scoring.ranking_features import FEATURES
from unidex.scoring.tree_scores import TreeScores, checked_text

_FIT_POWER = 0.5
# Trees of more leaves gain with many held-out texts, and more trees with very many; both fit the chance of few.
_LEAVES, _LEAVES_OF_MANY, _MANY_TEXTS = 7, 15, 3500
_NUM_TREES, _TREES_OF_VERY_MANY, _VERY_MANY_TEXTS = 150, 200, 16_000
_SETTINGS: dict[str, Any] = {
    "objective": "binary",
    "learning_rate": 0.1,
    "num_leaves": _LEAVES,
    "min_data_in_leaf": 50,
    "feature_fraction": 0.8,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "lambda_l2": 20.0,
    "seed": 0,
    "deterministic": True,
    "force_row_wise": True,
    # Hardly any feature is 0 for most pairs: to look for such features takes longer than it saves.
    "enable_bundle": False,
    "num_threads": 1,
    "verbose": -1,
}
# Features that can only speak for a label: the higher, the better.
_RISING = frozenset(
    {"dual", "classifier", "label_tree", "knn", "weighted_sum", "linear", *LINKS, *LEXICAL, *PRETRAINED}
)
# Features that explanations show as one part.
_PARTS = dict.fromkeys((*LEXICAL, *MATCHES, "label_length", "text_length"), "words")
_PARTS |= dict.fromkeys(PRETRAINED, "pretrained")
_PARTS |= {"nearest_text": "knn", "best_sum": "weighted_sum"}


def feature_names(
    layout: Layout, *, pretrained: bool = False, linear: bool = False, links: bool = False
) -> tuple[str, ...]:
    """The features that a model of this layout has, perhaps with a pretrained part, a linear part and links."""
    compared = (*searched_parts(layout), "knn", "weighted_sum", *(PRETRAINED if pretrained else ()))
    with_places = [f"{name}{more}" for name in compared for more in ("", "_gap", "_place")]
    lexical = [f"{name}{more}" for name in LEXICAL for more in ("", "_gap")]
    of_text = ("best_sum", "nearest_text", "frequency", "label_length", "text_length")
    # Those of matches, links and the linear part are the last: compiled code computes the others at once.
    return (*with_places, *lexical, *of_text, *MATCHES, *(LINKS if links else ()), *(LINEAR if linear else ()))


@dataclass(frozen=True)
class BoostedTrees:
    """Fitted trees, as a model folder stores them.

    Attributes:
        names: the features, in the order of the trees' columns.
        trees: the text of a LightGBM model.
        rarity: what favours rare labels.
    """

    names: tuple[str, ...]
    trees: str
    rarity: Rarity

    @classmethod
    def fit(
        cls,
        features: Features,
        hits: NDArray[np.bool_],
        rarity: Rarity,
        counts: NDArray[np.float32] | float = 1.0,
        *,
        num_texts: int = 0,
    ) -> BoostedTrees:
        """Fit trees to the features of pairs of texts and labels.

        Args:
            features: of the pairs, by name.
            hits: which pairs are right.
            rarity: what favours rare labels.
            counts: how many pairs each of them stands for.
            num_texts: number of held-out texts.
        """
        weights = np.where(hits, rarity.inverse_propensities(features["frequency"]) ** _FIT_POWER, 1.0) * counts
        settings = _SETTINGS | {"monotone_constraints": [_direction(name) for name in features]}
        if num_texts >= _MANY_TEXTS:
            settings |= {"num_leaves": _LEAVES_OF_MANY}
        num_trees = _TREES_OF_VERY_MANY if num_texts >= _VERY_MANY_TEXTS else _NUM_TREES
        text = fit_trees(_columns(features, tuple(features)), hits, weights, settings, num_trees)
        # Without the list of parameters at its end, which prediction does not read.
        return cls(tuple(features), text.split("\nfeature_importances:")[0], rarity)

    @cached_property
    def library_trees(self) -> Trees:
        """The trees as LightGBM has them, for explanations."""
        return Trees(checked_text(self.trees))

    @cached_property
    def tree_scores(self) -> TreeScores:
        """The trees, ready to predict."""
        return TreeScores.parse(self.trees)

    def ranker(self, layout: Layout) -> Ranker:
        """The ranker of a model with this layout."""
        return BoostedTreesRanker(self, WeightedSum.of(layout, layout.weights).head_weights)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"kind": "boosted-trees", "names": list(self.names), "trees": self.trees} | vars(self.rarity)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> BoostedTrees:
        """Read what ``as_dict`` gave."""
        try:
            found = cls(tuple(values["names"]), values["trees"], Rarity.from_dict(values))
            if unknown := {name.removesuffix("_gap").removesuffix("_place") for name in found.names} - FEATURES.keys():
                raise ValueError(f"unknown features {sorted(unknown)}")
            num_features = found.tree_scores.num_features
            checked_text(found.trees)
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError, StopIteration) as error:
            raise ModelError(f"ranker.json must hold trees, but does not ({error}); copy the model again") from None
        if num_features != len(found.names):
            raise ModelError(
                f"ranker.json must name the {num_features} features of its trees, but names {len(found.names)}; "
                "copy the model again"
            )
        return found


@dataclass(frozen=True)
class BoostedTreesRanker(Ranker):
    """Rank by the fitted trees.

    Attributes:
        fitted: the trees.
        weights: of the heads in the weighted sum.
    """

    fitted: BoostedTrees
    weights: Mapping[Head, float]
    counts: ClassVar[CandidateCounts] = CandidateCounts(index=30, knn=10, lexical=6, matches=12, links=6)
    compares_candidates: ClassVar[bool] = True

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features it reads."""
        return self.fitted.names

    @property
    def head_weights(self) -> Mapping[Head, float]:
        """The factor of each head's score in the weighted sum; explanations attribute these terms to words."""
        return self.weights

    def scores(self, features: Features) -> NDArray[np.float32]:
        """The scores of candidates, N x K."""
        sums = self.fitted.tree_scores(_columns(features, self.fitted.names))
        found = self.fitted.rarity(features["frequency"]) - np.logaddexp(0, -sums).reshape(features["frequency"].shape)
        scores: NDArray[np.float32] = found.astype(np.float32)
        return scores

    def contributions(self, features: Features) -> dict[str, NDArray[Any]]:
        """The terms of the scores by name: SHAP values by group of features, and the base.

        "frequency" has the power of the inverse propensity too, and the base what makes ln p of the logit.
        """
        shape = features["frequency"].shape
        columns_PF = _columns(features, self.fitted.names)
        shares_PF = self.fitted.library_trees.shares(columns_PF)
        found: dict[str, NDArray[Any]] = {}
        for name, share in zip((*self.fitted.names, "base"), shares_PF.T, strict=True):
            feature = name.removesuffix("_gap").removesuffix("_place")
            part = _PARTS.get(feature, feature)
            found[part] = found.get(part, 0) + share.reshape(shape)
        found["base"] = found["base"] - np.logaddexp(0, shares_PF.sum(axis=1)).reshape(shape)
        found["frequency"] = found["frequency"] + self.fitted.rarity(features["frequency"])
        return found


def _direction(name: str) -> int:
    """How a score may change where a feature rises: 1 for up, -1 for down, 0 for either.

    >>> [_direction(name) for name in ("dual", "dual_gap", "dual_place", "frequency", "best_sum")]
    [1, -1, 0, 0, 0]
    """
    if name.removesuffix("_gap") not in _RISING:
        return 0
    return -1 if name.endswith("_gap") else 1


def _columns(features: Features, names: tuple[str, ...]) -> NDArray[np.float32]:
    if isinstance(features, FeatureColumns) and features.names == names:
        return features.columns_FNK.reshape(len(names), -1).T
    columns = np.empty((len(names), *features[names[0]].shape), dtype=np.float32)
    for column, name in zip(columns, names, strict=True):
        column[...] = features[name]
    return columns.reshape(len(names), -1).T
