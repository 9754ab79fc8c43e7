"""The training texts of each label.

Shapes: T training texts, L labels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex.sparse_rows import find_sorted

LISTED_UP_TO = 1 << 22  # labels
_PAIRS_AT_ONCE = 1 << 22


class LabelTexts:
    """The training texts of each label, in ascending order.

    >>> texts = LabelTexts(sparse.csr_array(np.array([[1, 1, 0], [1, 0, 0], [1, 1, 1]])))
    >>> texts.of(1).tolist(), texts.share(0, 1), texts.share(1, 0)
    ([0, 2], 0.6666666666666666, 1.0)
    """

    def __init__(self, positives_TL: sparse.csr_array) -> None:
        # Of very many labels, a list of the texts of each takes more memory than is worth it: all pairs are looked at.
        self._pairs = positives_TL if positives_TL.shape[1] > LISTED_UP_TO else None
        by_label = sparse.csc_array(positives_TL if self._pairs is None else (0, 0))
        self._starts: NDArray[np.integer[Any]] = by_label.indptr
        self._texts: NDArray[np.integer[Any]] = by_label.indices

    def of(self, label: int) -> NDArray[np.integer[Any]]:
        """The ids of the training texts that have a label; none for a label that was added later."""
        if self._pairs is not None:
            labels = self._pairs.indices
            blocks = range(0, len(labels), _PAIRS_AT_ONCE)
            found = [first + np.flatnonzero(labels[first : first + _PAIRS_AT_ONCE] == label) for first in blocks]
            places = np.concatenate([np.empty(0, dtype=np.int64), *found])
            return np.searchsorted(self._pairs.indptr, places, side="right") - 1
        if label + 1 >= len(self._starts):
            return self._texts[:0]
        return self._texts[self._starts[label] : self._starts[label + 1]]

    def share(self, label: int, other: int) -> float:
        """The share of a label's training texts that have another label too: P(other | label); 0 where it has none.

        It looks the shorter list up in the longer one, so that a frequent label costs little beside a rare one.
        """
        own, others = self.of(label), self.of(other)
        few, many = sorted((own, others), key=len)
        return int(np.count_nonzero(find_sorted(many, few)[1])) / max(1, len(own))
