"""How texts of different lengths are cut into chunks that are padded to their longest text."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Texts of one chunk have at least this share of the longest one's tokens, unless it would have too few tokens then.
_SIMILAR = 0.8


def chunk_ends(lengths_N: NDArray[np.int64], min_tokens: int, max_tokens: int) -> list[int]:
    """Where to cut texts, longest first, into chunks of similar length that are padded to their longest.

    A chunk whose first text has w tokens takes the texts of at least 0.8 w tokens, and shorter ones until it has
    ``min_tokens`` with padding. It stops before it would have more than ``max_tokens``, but has at least one text.

    >>> chunk_ends(np.array([10, 9, 9, 4, 4, 3]), min_tokens=1, max_tokens=100)
    [3, 5, 6]
    >>> chunk_ends(np.array([10, 9, 9, 4, 4, 3]), min_tokens=1, max_tokens=20)
    [2, 3, 5, 6]
    >>> chunk_ends(np.array([10, 9, 9, 4, 4, 3]), min_tokens=40, max_tokens=100)
    [4, 6]
    """
    ends: list[int] = []
    start = 0
    while start < len(lengths_N):
        width = max(1, int(lengths_N[start]))
        similar = int(np.searchsorted(-lengths_N, -_SIMILAR * width, side="right")) - start
        count = max(1, min(max_tokens // width, max(similar, min_tokens // width)))
        start = min(start + count, len(lengths_N))
        ends.append(start)
    return ends
