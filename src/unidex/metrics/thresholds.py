"""The minimum probability of predicted labels: for the best F1, or for a requested precision.

Counted over all places of all texts at once (micro).

Shapes: P places.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Threshold:
    """The minimum probability of a predicted label, and the precision and recall that result."""

    probability: float  # labels of at least this probability are predicted
    precision: float  # share of predicted labels that are right
    recall: float  # share of right labels that are predicted
    f1: float  # their harmonic mean


def best_f1(
    probabilities_P: NDArray[np.floating[Any]], hits_P: NDArray[np.bool_], num_positives: int
) -> Threshold | None:
    """The threshold of the highest F1; of equal ones the highest. None where no place is right.

    Formula: F1(t) = 2 hits(t) / (given(t) + num_positives).

    A place has a probability and a label that is right or not; ``num_positives`` are all labels that the texts have,
    also those in no place.

    >>> found = best_f1(np.array([0.9, 0.6, 0.2]), np.array([True, True, False]), 3)
    >>> found.probability, found.precision, round(found.recall, 2), found.f1
    (0.6, 1.0, 0.67, 0.8)
    """
    offered = _candidates(probabilities_P, hits_P, num_positives)
    best = max(offered, key=lambda threshold: threshold.f1, default=None)
    return best if best is not None and best.f1 > 0 else None


def at_precision(
    probabilities_P: NDArray[np.floating[Any]], hits_P: NDArray[np.bool_], num_positives: int, precision: float
) -> Threshold | None:
    """The lowest threshold with at least this precision; None where none does.

    >>> found = at_precision(np.array([0.9, 0.6, 0.2]), np.array([True, False, True]), 4, 0.6)
    >>> found.probability, round(found.precision, 2), found.recall
    (0.2, 0.67, 0.5)
    """
    candidates = _candidates(probabilities_P, hits_P, num_positives)
    good = [threshold for threshold in candidates if threshold.f1 > 0 and threshold.precision >= precision]
    return good[-1] if good else None


def at_probability(
    probabilities_P: NDArray[np.floating[Any]], hits_P: NDArray[np.bool_], num_positives: int, probability: float
) -> Threshold:
    """Precision and recall of a threshold on other places than it was chosen on; of no labels the precision is 1.

    >>> at_probability(np.array([0.9, 0.6, 0.2]), np.array([True, False, True]), 4, 0.5)
    Threshold(probability=0.5, precision=0.5, recall=0.25, f1=0.3333333333333333)
    """
    given_P = probabilities_P >= probability
    given, hits = int(given_P.sum()), int((given_P & hits_P).sum())
    return Threshold(
        probability,
        hits / given if given else 1.0,
        hits / max(num_positives, 1),
        2 * hits / max(given + num_positives, 1),
    )


def _candidates(
    probabilities_P: NDArray[np.floating[Any]], hits_P: NDArray[np.bool_], num_positives: int
) -> list[Threshold]:
    """Every threshold that tells places apart, highest first."""
    order = np.argsort(-probabilities_P, kind="stable")
    descending = probabilities_P[order]
    # Equal probabilities are predicted together or not at all.
    last = np.flatnonzero(np.diff(descending, append=-np.inf) != 0)
    right = np.cumsum(hits_P[order])[last]
    given = last + 1
    return [
        Threshold(float(probability), hits / count, hits / max(num_positives, 1), 2 * hits / (count + num_positives))
        for probability, hits, count in zip(descending[last].tolist(), right.tolist(), given.tolist(), strict=True)
    ]
