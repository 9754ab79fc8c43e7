"""Search and order among texts of which there are very many: a block of them at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_TEXTS_AT_ONCE = 1 << 16
_FIRST_BYTES = 16


def rows_with(texts: Sequence[str], wanted: str) -> NDArray[np.bool_]:
    """Which texts have a part in any case; ``wanted`` is in one case.

    >>> rows_with(["Red shoe", "hat", "SHOE"], "shoe").tolist()
    [True, False, True]
    """
    found_L = np.zeros(len(texts), dtype=bool)
    for start in range(0, len(texts), _TEXTS_AT_ONCE):
        block = [text.casefold() for text in texts[start : start + _TEXTS_AT_ONCE]]
        found_L[start : start + len(block)] = [wanted in text for text in block]
    return found_L


def order_by_text(texts: Sequence[str]) -> NDArray[np.int64]:
    """The order of texts by alphabet, in any case; ties go by place.

    Only the first bytes of all texts are in memory at once, and whole texts where these are the same.

    >>> order_by_text(["pear", "Apple", "a very long name, two", "a very long name, one"]).tolist()
    [3, 2, 1, 0]
    """
    # UTF-8 sorts as its characters do.
    firsts_L = np.empty(len(texts), dtype=f"S{_FIRST_BYTES}")
    for start in range(0, len(texts), _TEXTS_AT_ONCE):
        block = texts[start : start + _TEXTS_AT_ONCE]
        firsts_L[start : start + len(block)] = [_folded_bytes(text)[:_FIRST_BYTES] for text in block]
    order_L = np.argsort(firsts_L, kind="stable")
    sorted_L = firsts_L[order_L]
    del firsts_L
    ends = np.append(np.flatnonzero(sorted_L[1:] != sorted_L[:-1]) + 1, len(texts))
    for first, end in zip(np.append(0, ends[:-1]).tolist(), ends.tolist(), strict=True):
        if end - first > 1:
            order_L[first:end] = sorted(order_L[first:end].tolist(), key=lambda row: _folded_bytes(texts[row]))
    return order_L


def _folded_bytes(text: str) -> bytes:
    return text.casefold().encode("utf-8", "surrogatepass")
