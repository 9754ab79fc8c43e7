"""Inverse propensities: a true label is less likely to be annotated the rarer it is, so that rare labels weigh more."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unidex.data.dataset import Propensity
from unidex.errors import DataError


def inverse_propensity(
    label_frequencies: ArrayLike, num_train: int, propensity: Propensity | None = None
) -> NDArray[np.float64]:
    """The weight of a hit on each label, at least 1 and larger for rarer labels.

    Formula: w_l = 1 + C (n_l + B)^-A with C = max(ln N - 1, 0) (B + 1)^A. For N of 3 or more the maximum changes
    nothing; below, it keeps weights from falling under 1 (and a data set without train texts defined).

    Args:
        label_frequencies: n_l, number of train texts that have each label; of the original train set, not of a part
            of it and not of an augmented one.
        num_train: N, number of train texts.
        propensity: the constants A and B; 0.55 and 1.5 where not given.

    References: Jain, Prabhu, Varma: Extreme Multi-label Loss Functions for Recommendation, Tagging, Ranking & Other
    Missing Label Applications. KDD 2016 (the propensity is 1 / w_l).

    With N = 3 train texts, A = 1 and B = 1: C = 2 (ln 3 - 1) = 0.1972, so a label that was never seen weighs 1.1972,
    one that was seen once weighs 1 + 0.1972 / 2 = 1.0986:

    >>> inverse_propensity([0, 1], 3, Propensity(a=1.0, b=1.0)).round(4).tolist()
    [1.1972, 1.0986]
    """
    constants = Propensity() if propensity is None else propensity
    frequencies_L = np.asarray(label_frequencies)
    _check(frequencies_L, num_train, constants)
    return _weights(frequencies_L, num_train, constants)


def _check(frequencies_L: NDArray[Any], num_train: int, constants: Propensity) -> None:
    if frequencies_L.ndim != 1 or frequencies_L.dtype.kind not in "iu" or bool((frequencies_L < 0).any()):
        raise ValueError(
            "label frequencies must be a vector of whole numbers >= 0, "
            f"but are {frequencies_L.dtype} of shape {frequencies_L.shape}"
        )
    if num_train < 0:
        raise ValueError(f"the number of train texts must be >= 0, but is {num_train}")
    if constants.b == 0 and constants.a > 0 and bool((frequencies_L == 0).any()):
        raise DataError(
            f"propensity constant B must be > 0 where a label has no train text, but is 0 and label "
            f"{int(np.argmax(frequencies_L == 0))} has none; set B (1.5 suits most data) or drop such labels"
        )


def frequency_weights(
    frequencies_L: NDArray[np.integer[Any]], num_train: int, propensity: Propensity
) -> NDArray[np.float64]:
    """The inverse propensity of every number of train texts from 0 to the highest; of those that no label has, 0.

    >>> frequency_weights(np.array([3, 1]), 3, Propensity(a=1.0, b=1.0)).round(4).tolist()
    [0.0, 1.0986, 0.0, 1.0493]
    """
    _check(frequencies_L, num_train, propensity)
    present = np.flatnonzero(np.bincount(frequencies_L))
    found = np.zeros(int(present[-1]) + 1 if len(present) else 0)
    found[present] = _weights(present, num_train, propensity)
    return found


def _weights(frequencies: NDArray[np.integer[Any]], num_train: int, constants: Propensity) -> NDArray[np.float64]:
    c = max(math.log(max(num_train, 1)) - 1, 0.0) * (constants.b + 1) ** constants.a
    weights: NDArray[np.float64] = 1 + c * (frequencies + constants.b) ** -constants.a
    return weights
