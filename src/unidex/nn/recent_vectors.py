"""The vectors that an encoder made last, as long as its weights stay as they are.

Between two steps, several parts of a run ask for the vectors of the same labels or texts: mining, validation, the
choice of fusion weights, the ranker and the index. A transformer takes longer for them than for many steps.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from unidex.features.tokens import TokenRows

# Fewer texts, such as those of a step or of a request, are encoded again.
_MIN_TEXTS = 32
# Texts that are kept or encoded together: callers ask for the same labels in one piece, or in pieces of this size.
_BLOCK = 512
_MAX_BYTES = 1 << 28


class RecentVectors:
    """Vectors by the tokens they were made of; the oldest go first where they are more than ``max_bytes``."""

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._weights, self._are_weights_known = b"", False
        self._vectors: OrderedDict[bytes, Tensor] = OrderedDict()

    def expect_new_weights(self) -> None:
        """Compare the weights before the next vectors: training may change them."""
        self._are_weights_known = False

    def of(self, rows: TokenRows, weights: Iterable[Tensor], encode: Callable[[TokenRows], Tensor]) -> Tensor:
        """The vectors of some rows: those of the last time, or what ``encode`` gives for them."""
        if len(rows) < _MIN_TEXTS:
            return encode(rows)
        self._compare(weights)
        # A copy: the caller may change it.
        blocks = [self._block(rows[start : start + _BLOCK], encode) for start in range(0, len(rows), _BLOCK)]
        return torch.cat(blocks) if len(blocks) > 1 else blocks[0].clone()

    def _block(self, rows: TokenRows, encode: Callable[[TokenRows], Tensor]) -> Tensor:
        key = _digest([rows.lengths, rows.flat()])
        found = self._vectors.pop(key, None)
        if found is None:
            found = encode(rows)
        self._vectors[key] = found
        while sum(vectors.nbytes for vectors in self._vectors.values()) > self._max_bytes:
            self._vectors.popitem(last=False)
        return found

    def _compare(self, weights: Iterable[Tensor]) -> None:
        """Forget all vectors where the weights are others than before."""
        if self._are_weights_known:
            return
        # Their bytes: the version that torch counts for a tensor stays the same in a step of a fused optimiser.
        found = _digest(weight.detach().cpu().contiguous().numpy() for weight in weights)
        if found != self._weights:
            self._vectors.clear()
        self._weights, self._are_weights_known = found, True


def _digest(arrays: Iterable[NDArray[Any]]) -> bytes:
    digest = blake2b(digest_size=16)
    for array in arrays:
        digest.update(array.data.cast("B") if array.size else b"")
    return digest.digest()
