"""The two regressions of a calibration: a logistic one, and an isotonic one as a table.

Both are written out here: the import of SciPy's optimisers takes longer than a fit.

Shapes: P places, F features, M knots of the table.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

# L2 penalty of the weights of features of variance 1.
_L2 = 1.0
# Of Newton's method: its maximum of steps, the least step, and what keeps the curvature of certain places above 0.
_MAX_STEPS, _LEAST_STEP, _LEAST_CURVE = 100, 1e-10, 1e-12


def fit_logistic(
    features_PF: NDArray[np.float64], hits_P: NDArray[np.bool_], l2: float = _L2
) -> tuple[NDArray[np.float64], float]:
    """Weights and intercept of a logistic regression.

    Formula: the minimum over w, b of sum_p ln(1 + exp(-y_p (w . x_p + b))) + l2/2 |w|^2, where y_p is 1 or -1 and x_p
    are the features shifted and scaled to mean 0 and variance 1; the result is for the features as they are.

    Shapes:
        features_PF [P, F], hits_P [P]; result [F] and a number.

    >>> weights, intercept = fit_logistic(np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([False, True, False, True]))
    >>> bool(weights[0] > 0), round(float(weights[0] * 1.5 + intercept), 3)
    (True, 0.0)
    """
    num_places, num_features = features_PF.shape
    mean_F, scale_F = features_PF.mean(axis=0), features_PF.std(axis=0)
    scale_F = np.where(scale_F > 1e-12, scale_F, 1.0)
    right = int(hits_P.sum())
    base = float(logit((right + 0.5) / (num_places + 1)))
    if right in (0, num_places):
        # No feature can tell right from wrong here; the base rate, without certainty.
        return np.zeros(num_features), base
    scaled_PF = (features_PF - mean_F) / scale_F
    signs_P = np.where(hits_P, 1.0, -1.0)

    design_PF = np.column_stack([scaled_PF, np.ones(num_places)])
    ridge_F = np.append(np.full(num_features, l2), 0.0)

    def loss(values_F: NDArray[np.float64]) -> float:
        margins_P = signs_P * (design_PF @ values_F)
        return float(np.logaddexp(0.0, -margins_P).sum() + ridge_F @ values_F**2 / 2)

    # Newton's method in place of an optimiser of SciPy, whose import takes longer than the fit.
    found_F = np.append(np.zeros(num_features), base)
    value = loss(found_F)
    for _ in range(_MAX_STEPS):
        wrong_P = expit(-signs_P * (design_PF @ found_F))
        slopes_F = ridge_F * found_F - design_PF.T @ (signs_P * wrong_P)
        curve_FF = (design_PF * (wrong_P * (1 - wrong_P))[:, None]).T @ design_PF + np.diag(ridge_F + _LEAST_CURVE)
        step_F = np.linalg.solve(curve_FF, slopes_F)
        # Far from the minimum a step may be too long.
        while (after := loss(found_F - step_F)) > value and np.abs(step_F).max() > _LEAST_STEP:
            step_F /= 2
        if after > value:
            break
        found_F, value = found_F - step_F, after
        if np.abs(step_F).max() <= _LEAST_STEP:
            break
    weights_F = found_F[:-1] / scale_F
    return weights_F, float(found_F[-1] - weights_F @ mean_F)


def fit_table(
    logits_P: NDArray[np.float64], hits_P: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """An increasing piecewise-linear map from logits to probabilities: its knots and their values.

    Isotonic regression makes blocks of neighbouring logits of one share each. A block becomes a knot at its mean logit,
    whose value is its share with the logistic's own guess counted as one place more: no block says 0 or 1.

    Formula: value_m = (hits_m + mean of expit(z) over m) / (places_m + 1), made increasing.

    Shapes:
        logits_P [P], hits_P [P]; result two of [M].

    References:
        Zadrozny, Elkan: Transforming Classifier Scores into Accurate Multiclass Probability Estimates, KDD 2002.

    >>> knots, values = fit_table(np.array([-2.0, -1.0, 0.0, 2.0]), np.array([False, True, False, True]))
    >>> knots.tolist(), values.round(2).tolist()
    ([-2.0, -0.5, 2.0], [0.06, 0.46, 0.94])
    """
    points, place_of = np.unique(logits_P, return_inverse=True)
    counts = np.bincount(place_of)
    right = np.bincount(place_of, weights=hits_P)
    starts = _rising_blocks(right.astype(np.int64).tolist(), counts.tolist())
    num_places = np.add.reduceat(counts, starts)
    guess = np.add.reduceat(counts * expit(points), starts) / num_places
    knots_M = np.add.reduceat(counts * points, starts) / num_places
    values_M = (np.add.reduceat(right, starts) + guess) / (num_places + 1)
    return knots_M, np.maximum.accumulate(values_M)


def _rising_blocks(hits: Sequence[int], places: Sequence[int]) -> list[int]:
    """Where the blocks of isotonic regression start: neighbours are joined until each share is above the one before.

    Whole numbers are compared, so that no share is above another one by rounding.

    >>> _rising_blocks([0, 1, 0, 1], [1, 1, 1, 1])
    [0, 1, 3]
    """
    blocks: list[tuple[int, int, int]] = []
    for start, (hit, place) in enumerate(zip(hits, places, strict=True)):
        first = start
        while blocks and blocks[-1][1] * place >= hit * blocks[-1][2]:
            first, more_hits, more_places = blocks.pop()
            hit, place = hit + more_hits, place + more_places
        blocks.append((first, hit, place))
    return [first for first, _, _ in blocks]
