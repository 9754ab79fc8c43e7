"""The training texts of each label.

Shapes: T training texts, L labels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex.sparse_rows import find_sorted


class LabelTexts:
    """The training texts of each label, in ascending order.

    >>> texts = LabelTexts(sparse.csr_array(np.array([[1, 1, 0], [1, 0, 0], [1, 1, 1]])))
    >>> texts.of(1).tolist(), texts.share(0, 1), texts.share(1, 0)
    ([0, 2], 0.6666666666666666, 1.0)
    """

    def __init__(self, positives_TL: sparse.csr_array) -> None:
        by_label = sparse.csc_array(positives_TL)
        self._starts: NDArray[np.integer[Any]] = by_label.indptr
        self._texts: NDArray[np.integer[Any]] = by_label.indices

    def of(self, label: int) -> NDArray[np.integer[Any]]:
        """The ids of the training texts that have a label; none for a label that was added later."""
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
