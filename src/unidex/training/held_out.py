"""Which train texts are held out for choices and the ranker."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unidex.config import Config
from unidex.data.dataset import split_rows
from unidex.errors import UnidexError

# Held-out texts at most. A ranker is better the more of them it is fitted to, and a decay phase trains on all of them.
MAX_TEXTS, MAX_RANKED = 8000, 32_000
# Of few texts up to a quarter is held out, to have this many.
_MIN_TEXTS = 50


class NothingHeldOutError(UnidexError):
    """No held-out text has a label that the other texts have too."""

    def __init__(self, share: float, num_texts: int) -> None:
        self.reason = f"no held-out text of {share:g} of {num_texts} texts has a label that the others have too"
        super().__init__(f"a validation split must have labels of the other texts, but {self.reason}; add texts")


def wanted_share(config: Config, num_texts: int) -> float:
    """The share of the train texts that a recipe asks to hold out, of very many no more than it needs."""
    ranks = config.predict.rank == "learned" and config.train.decay_epochs > 0
    return min(config.train.validation, (MAX_RANKED if ranks else MAX_TEXTS) / max(1, num_texts))


def held_out_share(num_texts: int, share: float) -> float:
    """The share of texts that is held out where a recipe asks for this one."""
    return max(share, min(0.25, _MIN_TEXTS / max(1, num_texts)), 1 / max(1, num_texts))


def held_out_rows(num_texts: int, share: float, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The texts that are trained on, and those that are held out."""
    return split_rows(num_texts, held_out_share(num_texts, share), seed)
