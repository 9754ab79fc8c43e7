"""Calibration: the probability that a predicted label is right, by its score, place and frequency class.

A logistic regression on features of a place gives a logit z; an increasing piecewise-linear table, from isotonic
regression, gives the probability of the lowest logit up to the place:

    z = w1 s + w2 (s - s_1) + w3 (s - mean of s_1 .. s_r) + w4 ln r + w5 [head] + w6 [tail] + b
    p = table(min of z_1 .. z_r + ln t)

with s the score at place r and s_1 the best score of the text. Only the places up to r count, so that a label's
probability does not depend on how many labels are asked for. By the minimum, probabilities never rise along the places:
the order of labels by score is an order by probability. The trust t of a text (`Trust`) is 1 if all of it is known and
near 0 if nothing is. The table is fitted to the minima with trust.

Shapes: N texts, K places, L labels, P places of all texts, F features, M knots of the table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import log_expit, logit

from unidex.errors import DataError, ModelError, listed, quoted
from unidex.metrics.bins import frequency_classes
from unidex.metrics.thresholds import Threshold
from unidex.scoring.regressions import fit_logistic, fit_table
from unidex.topk import TopK

FEATURES = ("score", "below_best", "below_mean", "log_place", "head", "tail")
_RANDOM_SHARE = 0.1
BEST_F1 = "best-f1"


def place_features(topk: TopK, frequencies_L: NDArray[np.int64]) -> NDArray[np.float64]:
    """The features of each place.

    Formula: (s, s - s_1, s - mean of s_1 .. s_r, ln r, [head], [tail]) at place r; torso is neither.

    Shapes:
        topk [N, K], frequencies_L [L], result [N, K, 6]; values at places without a label mean nothing.

    >>> topk = TopK.rank([[3, 0]], [[0.75, 0.25]])
    >>> place_features(topk, np.array([200, 0, 0, 2])).round(2).tolist()
    [[[0.75, 0.0, 0.0, 0.0, 0.0, 1.0], [0.25, -0.5, -0.25, 0.69, 1.0, 0.0]]]
    """
    scores_NK = np.where(topk.ids < 0, 0.0, topk.scores).astype(np.float64)
    places_K = np.arange(1, topk.k + 1)
    classes_NK = frequency_classes(frequencies_L)[topk.ids] if len(frequencies_L) else np.zeros_like(topk.ids)
    parts = (
        scores_NK,
        scores_NK - scores_NK[:, :1],
        scores_NK - np.cumsum(scores_NK, axis=1) / places_K,
        np.broadcast_to(np.log(places_K), scores_NK.shape),
        classes_NK == 0,
        classes_NK == 2,
    )
    return np.stack([np.asarray(part, dtype=np.float64) for part in parts], axis=2)


@dataclass(frozen=True)
class Trust:
    """How far scores of a text can be trusted, by its familiarity (`unidex.features.known_words`).

    Somebody wrote the held-out texts; random letters mean nothing. A logistic regression tells the two apart by
    familiarity, as if one text in ten were random. Its answer relative to that for a wholly known text is the trust.

    Attributes:
        slope: of the familiarity.
        intercept: added to it.

    >>> trust = Trust.fit(np.linspace(0.6, 1, 50), np.linspace(0, 0.4, 50))
    >>> bool(trust.logs(np.array([0.0]))[0] < -2), trust.logs(np.array([1.0])).tolist()
    (True, [0.0])
    """

    slope: float
    intercept: float

    @classmethod
    def fit(cls, written_N: NDArray[np.floating[Any]], random_M: NDArray[np.floating[Any]]) -> Trust:
        """Fit to the familiarity of written and of random texts."""
        # As many of each: the number of held-out texts says nothing of how often a text is random.
        written_N = written_N[:: max(1, len(written_N) // max(1, len(random_M)))]
        familiarity = np.concatenate([written_N, random_M]).astype(np.float64)
        weights, intercept = fit_logistic(familiarity[:, None], np.arange(len(familiarity)) < len(written_N))
        # A vocabulary that tells nothing must not turn the answer around.
        if weights[0] <= 0:
            return cls(0.0, 0.0)
        return cls(float(weights[0]), intercept + float(logit(1 - _RANDOM_SHARE)))

    def logs(self, familiarity_N: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """The logarithm of the trust, N: 0 for a text of which everything is known, below 0 for others."""
        at_N = self.slope * familiarity_N.astype(np.float64) + self.intercept
        logs_N: NDArray[np.float64] = log_expit(at_N) - log_expit(self.slope + self.intercept)
        return logs_N


class _Saved(msgspec.Struct, forbid_unknown_fields=True):
    """calibration.json."""

    weights: dict[str, float]
    intercept: float
    knots: list[float]
    values: list[float]
    mode: str
    thresholds: dict[str, dict[str, float]]
    measured: dict[str, Any]
    trust: dict[str, float] | None = None


@dataclass(frozen=True, eq=False)
class Calibration:
    """The probability of a place, and thresholds for giving labels.

    Attributes:
        weights_F: of the features of a place.
        intercept: added to their sum.
        knots_M: logits of the table, ascending.
        values_M: their probabilities, never descending.
        mode: the heads whose scores these are: both, dual or classifier.
        thresholds: by name, such as "best-f1" and "precision-0.9"; a threshold that no probability reaches is left out.
        measured: number of texts and errors of the fit.
        trust: from the familiarity of a text to how far its scores hold; None where nothing tells familiarity.
    """

    weights_F: NDArray[np.float64]
    intercept: float
    knots_M: NDArray[np.float64]
    values_M: NDArray[np.float64]
    mode: str
    thresholds: Mapping[str, Threshold]
    measured: Mapping[str, Any]
    trust: Trust | None = None

    @classmethod
    def fit(
        cls,
        topk: TopK,
        hits_NK: NDArray[np.bool_],
        frequencies_L: NDArray[np.int64],
        mode: str = "both",
        trust: Trust | None = None,
        familiarity_N: NDArray[np.floating[Any]] | None = None,
    ) -> Calibration:
        """Fit to places and hits; thresholds and measurements are left to the caller.

        Shapes:
            topk [N, K], hits_NK [N, K], frequencies_L [L], familiarity_N [N].
        """
        there = topk.ids >= 0
        features_NKF, hits_P = place_features(topk, frequencies_L), hits_NK[there]
        if not len(hits_P):
            raise DataError("probabilities must be fitted to predicted labels, but there are none")
        weights_F, intercept = fit_logistic(features_NKF[there], hits_P)
        logits_NK = np.minimum.accumulate(features_NKF @ weights_F + intercept, axis=1)
        if trust is not None and familiarity_N is not None:
            logits_NK += trust.logs(familiarity_N)[:, None]
        knots_M, values_M = fit_table(logits_NK[there], hits_P)
        return cls(weights_F, intercept, knots_M, values_M, mode, {}, {}, trust)

    def probabilities(
        self,
        topk: TopK,
        frequencies_L: NDArray[np.int64],
        familiarity_N: NDArray[np.floating[Any]] | None = None,
    ) -> NDArray[np.float32]:
        """How likely each predicted label is right, never rising along the places; 0 where there is none.

        Without familiarity, every text is trusted.

        Shapes:
            topk [N, K], frequencies_L [L], familiarity_N [N]; result [N, K].
        """
        if topk.ids.size == 0:
            return np.zeros(topk.ids.shape, dtype=np.float32)
        # As place_features and a product, without the array of all features: a service computes this for each request.
        score, below_best, below_mean, log_place, head, tail = self.weights_F.tolist()
        scores_NK = np.where(topk.ids < 0, 0.0, topk.scores).astype(np.float64)
        places_K = np.arange(1, topk.k + 1)
        by_class = np.array([head, 0.0, tail])
        logits_NK = (
            (score + below_best + below_mean) * scores_NK
            - below_best * scores_NK[:, :1]
            - below_mean * (np.cumsum(scores_NK, axis=1) / places_K)
            + (log_place * np.log(places_K) + self.intercept)
            + by_class[frequency_classes(frequencies_L[np.maximum(topk.ids, 0)])]
        )
        if self.trust is not None and familiarity_N is not None:
            logits_NK += self.trust.logs(familiarity_N)[:, None]
        found = np.interp(np.minimum.accumulate(logits_NK, axis=1), self.knots_M, self.values_M)
        return np.where(topk.ids < 0, 0.0, found).astype(np.float32)

    def min_probability(self, asked: str | float) -> float:
        """A minimum probability by number or by name of a threshold."""
        text = str(asked).strip()
        if text in self.thresholds:
            return self.thresholds[text].probability
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not 0 <= value <= 1:
            raise DataError(
                f"a minimum probability must be a number from 0 to 1 or one of the model's thresholds "
                f"({listed(self.thresholds) or 'it has none'}), but is {quoted(asked)}"
            )
        return value

    def summary(self) -> dict[str, Any]:
        """Measured errors and thresholds, for metrics.json."""
        return dict(self.measured) | {"thresholds": self.as_dict()["thresholds"]}

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "weights": dict(zip(FEATURES, self.weights_F.tolist(), strict=True)),
            "intercept": self.intercept,
            "knots": self.knots_M.tolist(),
            "values": self.values_M.tolist(),
            "mode": self.mode,
            "thresholds": {name: asdict(threshold) for name, threshold in self.thresholds.items()},
            "measured": dict(self.measured),
            "trust": None if self.trust is None else asdict(self.trust),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Calibration:
        """Read what ``as_dict`` gave."""
        try:
            saved = msgspec.convert(values, _Saved)
            weights = np.array([saved.weights[name] for name in FEATURES])
            thresholds = {name: Threshold(**numbers) for name, numbers in saved.thresholds.items()}
            trust = None if saved.trust is None else Trust(**saved.trust)
        except (msgspec.ValidationError, KeyError, TypeError) as error:
            raise ModelError(
                f"a calibration must be as unidex calibrate writes it, but: {error}; calibrate anew"
            ) from None
        knots, table = np.array(saved.knots), np.array(saved.values)
        of_trust = [] if trust is None else [trust.slope, trust.intercept]
        finite = all(np.isfinite(part).all() for part in (weights, knots, table, saved.intercept, of_trust))
        rising = len(knots) == len(table) > 0 and bool((np.diff(knots) > 0).all()) and bool((np.diff(table) >= 0).all())
        if not (finite and rising and table[0] >= 0 and table[-1] <= 1):
            raise ModelError("the table of a calibration must rise from 0 to 1 at most, but does not; calibrate anew")
        return cls(weights, saved.intercept, knots, table, saved.mode, thresholds, saved.measured, trust)

    def as_json(self) -> str:
        """The text of calibration.json."""
        return json.dumps(self.as_dict(), indent=2) + "\n"
