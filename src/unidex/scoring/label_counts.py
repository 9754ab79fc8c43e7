"""What a scorer must know of the labels: how many training texts they have, and which are removed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class LabelCounts(Protocol):
    """What a scorer must know of the labels."""

    @property
    def frequencies(self) -> NDArray[np.int64]:
        """Number of training texts per label."""
        ...

    @property
    def removed(self) -> NDArray[np.bool_]:
        """Which labels are not predicted any more."""
        ...


@dataclass(frozen=True, eq=False)
class LabelFrequencies:
    """Labels of which none is removed.

    Attributes:
        frequencies: number of training texts per label.
    """

    frequencies: NDArray[np.int64]

    @property
    def removed(self) -> NDArray[np.bool_]:
        """None is removed."""
        return np.zeros(len(self.frequencies), dtype=bool)
