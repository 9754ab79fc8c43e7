"""The fit of a calibration to texts whose labels are known, and its measured quality.

Each half of the texts gets its probabilities from a fit to the other half; errors and thresholds are measured on
these. The final calibration is fitted to all texts.

Shapes: N texts, K places, L labels, P places of all texts.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex.errors import DataError
from unidex.metrics.bins import CLASSES, frequency_classes
from unidex.metrics.reliability import expected_calibration_error, reliability
from unidex.metrics.thresholds import Threshold, at_precision, at_probability, best_f1
from unidex.scoring.calibration import BEST_F1, Calibration, Trust
from unidex.sparse_rows import contains
from unidex.topk import TopK

# Places that the fit and the thresholds use, and those whose error is reported: the default of `predict`.
PLACES = 10
SHOWN = 5
# With fewer texts, the fit is chance.
MIN_TEXTS = 20
PRECISION = 0.9
_SEED = 0


@dataclass(frozen=True, eq=False)
class Places:
    """Predictions for texts whose labels are known.

    Attributes:
        topk: the predicted labels without filter pairs, N x K.
        hits_NK: which are right.
        frequencies_L: number of training texts per label.
        num_positives: number of labels of all texts, also of those that are not predicted.
        familiarity_N: how much of each text is known; None where nothing tells it.
    """

    topk: TopK
    hits_NK: NDArray[np.bool_]
    frequencies_L: NDArray[np.int64]
    num_positives: int
    familiarity_N: NDArray[np.float32] | None = None

    @classmethod
    def of(
        cls,
        topk: TopK,
        positives: sparse.csr_array,
        filter_pairs: sparse.csr_array | None,
        frequencies_L: NDArray[np.int64],
        familiarity_N: NDArray[np.float32] | None = None,
    ) -> Places:
        """The first places of predictions, which have more where filter pairs are to be taken out of them.

        Shapes:
            topk [N, K], positives [N, L], filter_pairs [N, L], frequencies_L [L], familiarity_N [N].
        """
        topk = (topk if filter_pairs is None else topk.without(filter_pairs)).first(min(PLACES, topk.k))
        return cls(topk, contains(positives, topk.ids), frequencies_L, int(positives.nnz), familiarity_N)

    def rows(self, chosen_N: NDArray[np.bool_]) -> Places:
        """The places of some texts."""
        topk = TopK(self.topk.ids[chosen_N], self.topk.scores[chosen_N])
        familiarity_N = None if self.familiarity_N is None else self.familiarity_N[chosen_N]
        return replace(self, topk=topk, hits_NK=self.hits_NK[chosen_N], familiarity_N=familiarity_N)

    def plain(self) -> NDArray[np.float32]:
        """The scores, cut to 0..1: a stand-in for probabilities without a calibration."""
        return np.where(self.topk.ids < 0, 0, np.clip(self.topk.scores, 0, 1)).astype(np.float32)

    def fit(self, mode: str, trust: Trust | None = None) -> Calibration:
        """A calibration fitted to all places."""
        return Calibration.fit(self.topk, self.hits_NK, self.frequencies_L, mode, trust, self.familiarity_N)

    def probabilities(self, calibration: Calibration) -> NDArray[np.float32]:
        """The probabilities that a calibration gives."""
        return calibration.probabilities(self.topk, self.frequencies_L, self.familiarity_N)

    def error(self, probabilities_NK: NDArray[np.float32]) -> float:
        """The expected calibration error over the shown places."""
        return expected_calibration_error(*self._shown(probabilities_NK))

    def bins(self, probabilities_NK: NDArray[np.float32]) -> list[dict[str, Any]]:
        """Reliability over the shown places."""
        return [asdict(part) for part in reliability(*self._shown(probabilities_NK))]

    def groups(self, probabilities_NK: NDArray[np.float32]) -> list[dict[str, Any]]:
        """Mean probability against the share that is right: at each shown place, and by frequency class."""
        shown = np.arange(self.topk.k) < SHOWN
        there_NK = (self.topk.ids >= 0) & shown
        classes_NK = frequency_classes(self.frequencies_L[np.maximum(self.topk.ids, 0)])
        chosen = {f"place {place + 1}": there_NK & (np.arange(self.topk.k) == place) for place in np.flatnonzero(shown)}
        chosen |= {name: there_NK & (classes_NK == number) for number, name in enumerate(CLASSES)}
        return [
            {
                "name": name,
                "num_places": int(wanted_NK.sum()),
                "probability": float(probabilities_NK[wanted_NK].mean()),
                "share": float(self.hits_NK[wanted_NK].mean()),
            }
            for name, wanted_NK in chosen.items()
            if wanted_NK.any()
        ]

    def thresholds(self, probabilities_NK: NDArray[np.float32], precision: float) -> dict[str, Threshold]:
        """The thresholds of the best F1 and of a precision, where it is reached."""
        all_places = self._all(probabilities_NK)
        found = {
            BEST_F1: best_f1(*all_places, self.num_positives),
            f"precision-{precision:g}": at_precision(*all_places, self.num_positives, precision),
        }
        return {name: threshold for name, threshold in found.items() if threshold is not None}

    def threshold(self, probabilities_NK: NDArray[np.float32], probability: float) -> Threshold:
        """Precision and recall of a threshold on these places."""
        return at_probability(*self._all(probabilities_NK), self.num_positives, probability)

    def _all(self, probabilities_NK: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        there_NK = self.topk.ids >= 0
        return probabilities_NK[there_NK], self.hits_NK[there_NK]

    def _shown(self, probabilities_NK: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        there_NK = (self.topk.ids >= 0) & (np.arange(self.topk.k) < SHOWN)
        return probabilities_NK[there_NK], self.hits_NK[there_NK]


def fit_calibration(
    places: Places,
    *,
    mode: str = "both",
    precision: float = PRECISION,
    random_M: NDArray[np.float32] | None = None,
) -> tuple[Calibration, NDArray[np.float32]]:
    """A calibration fitted to places, and their probabilities by fits to the other half of the texts.

    Args:
        places: predictions and hits.
        mode: the heads that made the scores.
        precision: find a threshold for this precision, beside the threshold of the best F1.
        random_M: the familiarity of random texts; None where nothing tells it.
    """
    if not 0 < precision <= 1:
        raise DataError(f"--precision must be above 0 and at most 1, but is {precision:g}")
    num_texts = len(places.topk)
    if num_texts < MIN_TEXTS:
        raise DataError(
            f"probabilities need at least {MIN_TEXTS} texts to be fitted to, but there are {num_texts}; take more"
        )
    trust = None
    if places.familiarity_N is not None and random_M is not None:
        trust = Trust.fit(places.familiarity_N, random_M)
    # At random, not every second text: the order of the texts must not decide their half.
    first_N = np.random.default_rng(_SEED).permutation(num_texts) % 2 == 0
    probabilities_NK = np.zeros(places.topk.ids.shape, dtype=np.float32)
    for fitted_N in (first_N, ~first_N):
        fit = places.rows(fitted_N).fit(mode, trust)
        probabilities_NK[~fitted_N] = places.rows(~fitted_N).probabilities(fit)
    measured = {
        "num_texts": num_texts,
        "num_places": places.topk.k,
        "ece_before": places.error(places.plain()),
        "ece_after": places.error(probabilities_NK),
    }
    thresholds = places.thresholds(probabilities_NK, precision)
    return replace(places.fit(mode, trust), thresholds=thresholds, measured=measured), probabilities_NK


def measure_calibration(
    places: Places, calibration: Calibration, probabilities_NK: NDArray[np.float32]
) -> dict[str, Any]:
    """The errors of probabilities on places, and the precision and recall of thresholds, as plain values."""
    return {
        "num_texts": len(places.topk),
        "num_places": places.topk.k,
        "ece_before": places.error(places.plain()),
        "ece_after": places.error(probabilities_NK),
        "thresholds": {
            name: asdict(places.threshold(probabilities_NK, threshold.probability))
            for name, threshold in calibration.thresholds.items()
        },
        "groups": places.groups(probabilities_NK),
        "bins": {"before": places.bins(places.plain()), "after": places.bins(probabilities_NK)},
    }
