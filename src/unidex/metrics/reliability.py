"""Whether probabilities are calibrated: of the places of probability p, a share p should be right.

Shapes: P places, M bins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

NUM_BINS = 15


@dataclass(frozen=True)
class ReliabilityBin:
    """The places whose probability lies between two bounds."""

    low: float  # lower bound; it belongs to the bin
    high: float  # upper bound; it belongs to the next bin, that of the last one to it
    num_places: int  # how many
    probability: float  # their mean probability
    share: float  # share of them that is right


def reliability(
    probabilities_P: NDArray[np.floating[Any]], hits_P: NDArray[np.bool_], num_bins: int = NUM_BINS
) -> list[ReliabilityBin]:
    """Bins of equal width over 0..1; those without places are left out.

    >>> for found in reliability(np.array([0.1, 0.2, 0.9]), np.array([False, True, True]), 2):
    ...     print(f"{found.low} to {found.high}: {found.num_places}, {found.probability:.2f}, {found.share:.2f}")
    0.0 to 0.5: 2, 0.15, 0.50
    0.5 to 1.0: 1, 0.90, 1.00
    """
    if probabilities_P.shape != hits_P.shape or probabilities_P.ndim != 1:
        raise ValueError(
            f"there must be one probability per hit, but shapes are {probabilities_P.shape} and {hits_P.shape}"
        )
    if num_bins < 1:
        raise ValueError(f"there must be at least one bin, but num_bins is {num_bins}")
    bins_P = np.clip((probabilities_P * num_bins).astype(np.int64), 0, num_bins - 1)
    counts_M = np.bincount(bins_P, minlength=num_bins)
    sums_M = np.bincount(bins_P, weights=probabilities_P, minlength=num_bins)
    right_M = np.bincount(bins_P, weights=hits_P, minlength=num_bins)
    return [
        ReliabilityBin(
            float(number / num_bins),
            float((number + 1) / num_bins),
            int(counts_M[number]),
            float(sums_M[number] / counts_M[number]),
            float(right_M[number] / counts_M[number]),
        )
        for number in np.flatnonzero(counts_M)
    ]


def expected_calibration_error(
    probabilities_P: NDArray[np.floating[Any]], hits_P: NDArray[np.bool_], num_bins: int = NUM_BINS
) -> float:
    """The mean distance of probabilities from the share that is right, over places; 0 for no places.

    Formula: ECE = sum over bins b of (P_b / P) |mean probability of b - share of b that is right|.

    References: Guo, Pleiss, Sun, Weinberger: On Calibration of Modern Neural Networks, arXiv 1706.04599, equation 3.

    Two of three places have 0.1 and 0.2, and one of them is right: |0.15 - 0.5| counts 2/3; the third has 0.9.

    >>> round(expected_calibration_error(np.array([0.1, 0.2, 0.9]), np.array([False, True, True]), 2), 4)
    0.2667
    """
    found = reliability(probabilities_P, hits_P, num_bins)
    return sum(part.num_places * abs(part.probability - part.share) for part in found) / max(len(hits_P), 1)
