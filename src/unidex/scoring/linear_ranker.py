"""The learned ranker of a few held-out texts: a weighted sum of features, whose weights start from a prior.

    score(x, l) = w . f(x, l) + power ln ip(l)

The weights are the most likely ones: right candidates of a text count by their softmax probability among all of its
candidates. The prior of a weight is the mean of the weights that were fitted on several data sets. Each weight is its
prior times a factor; the factors are normally distributed around their mean, so that the prior says little about the
scale, and the mean around 1.

    w_f = v_f prior_f
    v = argmin_v  - sum_x mean_{l right} ln softmax_l(w . f(x, l)) + 1/2 sum_f (v_f - mean v)^2
                  + 1/2 ((mean v - 1) / 3)^2

Without any text, they are the prior. What a label shares with a text counts most: heads of a few texts know little.

Shapes: N texts, K candidates, F features.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from unidex.errors import ModelError
from unidex.scoring.layout import Layout
from unidex.scoring.pretrained import PRETRAINED
from unidex.scoring.rankers import (
    LEXICAL,
    CandidateCounts,
    Features,
    Ranker,
    Rarity,
    WeightedSum,
    searched_parts,
    sum_parts,
)

# Weights as fitted on parts of the train texts of seven data sets: their means, rounded.
_PRIOR = {
    "dual": 1.5,
    "classifier": 1.5,
    "label_tree": 1.5,
    "knn": 1.0,
    "label_prior": 1.0,
    "word_overlap": 1.0,
    "char_overlap": 6.0,
    "word_coverage": 2.5,
    "pretrained": 1.5,
    "pretrained_knn": 0.5,
}
# Standard deviation of the common scale of weights.
_SCALE = 3.0


@dataclass(frozen=True)
class LinearWeights:
    """Fitted weights, as a model folder stores them.

    Attributes:
        weights: of the features, by name.
        rarity: what favours rare labels.
    """

    weights: Mapping[str, float]
    rarity: Rarity

    @classmethod
    def prior(cls, layout: Layout, rarity: Rarity, *, pretrained: bool = False) -> LinearWeights:
        """The ranker of a model without held-out texts, perhaps with a pretrained part."""
        names = (*searched_parts(layout), "knn", "label_prior", *LEXICAL, *(PRETRAINED if pretrained else ()))
        return cls({name: _PRIOR[name] for name in names}, rarity)

    def fit(self, features: Features, hits_NK: NDArray[np.bool_], counts_NK: NDArray[np.bool_]) -> LinearWeights:
        """Fit weights to candidates, of which ``hits_NK`` tells the right ones and ``counts_NK`` those that count."""
        from scipy.optimize import minimize

        right_NK = hits_NK & counts_NK
        told = right_NK.any(axis=1)
        right_NK, there_NK = right_NK[told], counts_NK[told]
        targets_NK = right_NK / right_NK.sum(axis=1, keepdims=True)
        prior_F = np.array(list(self.weights.values()))
        values_NKF = np.stack([features[name][told] for name in self.weights], axis=2).astype(np.float64) * prior_F

        def loss(factors_F: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            logits_NK = np.where(there_NK, values_NKF @ factors_F, -np.inf)
            logits_NK -= logits_NK.max(axis=1, keepdims=True, initial=-np.inf)
            total_N = np.log(np.exp(logits_NK).sum(axis=1, keepdims=True))
            logs_NK = np.where(there_NK, logits_NK - total_N, 0)
            own_F = factors_F - factors_F.mean()
            common = (factors_F.mean() - 1) / _SCALE
            softmax_NK = np.exp(logs_NK) * there_NK
            gradient_F = np.einsum("nk,nkf->f", softmax_NK - targets_NK, values_NKF) + own_F
            gradient_F += common / (_SCALE * len(factors_F))
            return float(0.5 * (own_F @ own_F + common**2) - (targets_NK * logs_NK).sum()), gradient_F

        fitted_F = minimize(loss, np.ones(len(prior_F)), jac=True, method="L-BFGS-B").x * prior_F
        return LinearWeights(dict(zip(self.weights, fitted_F.tolist(), strict=True)), self.rarity)

    def ranker(self, layout: Layout) -> Ranker:
        """The ranker of a model with this layout."""
        return LinearRanker(self.weights, self.rarity)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"kind": "linear", "weights": dict(self.weights)} | vars(self.rarity)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> LinearWeights:
        """Read what ``as_dict`` gave."""
        try:
            rarity = Rarity.from_dict({name: value for name, value in values.items() if name != "weights"})
            found = cls({name: float(value) for name, value in values["weights"].items()}, rarity)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise ModelError(f"ranker.json must hold weights, but does not ({error}); copy the model again") from None
        if unknown := sorted(found.weights.keys() - _PRIOR.keys()):
            raise ModelError(f"ranker.json must hold weights of known features, but has {unknown}; copy it again")
        return found


@dataclass(frozen=True)
class LinearRanker(WeightedSum):
    """The sum of features with fitted weights."""

    rarity: Rarity
    counts: ClassVar[CandidateCounts] = CandidateCounts(index=30, knn=10, lexical=20)

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features it reads."""
        return (*self.weights, "frequency")

    def contributions(self, features: Features) -> dict[str, NDArray[Any]]:
        """The terms of the scores by name; those of the lexical part together, and those of the pretrained part."""
        parts = super().contributions(features)
        words = sum_parts({name: parts.pop(name) for name in LEXICAL})
        if frozen := {name: parts.pop(name) for name in PRETRAINED if name in parts}:
            parts["pretrained"] = sum_parts(frozen)
        return parts | {"words": words, "frequency": self.rarity(features["frequency"])}
