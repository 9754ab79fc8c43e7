"""Vectors of many texts with the memory of a few: encode in chunks, go back through them one by one.

A chunk is first encoded without a graph. When the loss has given the gradient of its vectors, it is encoded again with
a graph, under the same random state, and that gradient goes back through it. Every chunk is encoded twice; the memory
of activations is that of one chunk.

References: gradient caching (arXiv 2101.06983), as DEXML uses it for labels (arXiv 2310.10636).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from unidex.nn.device import seed_torch
from unidex.training.backward_pass import Parts, backward

Ids = NDArray[np.int64]
# Rows of prepared texts and a source of random choices -> their vectors, one tensor per head or encoder.
Encode = Callable[[Ids, np.random.Generator], Parts]


class GradientCache:
    """The vectors of some texts, and the way back to what made them.

    All random choices of ``encode`` come from the generator given and from torch's own, which is seeded before each
    call; each chunk has its own seed. A ``chunk`` of 0, or of no fewer texts than there are, keeps one graph and
    encodes once.

    >>> weight = torch.tensor([[2.0]], requires_grad=True)
    >>> texts = torch.arange(3.0)[:, None]
    >>> cache = GradientCache(lambda ids, rng: (texts[ids] @ weight,), np.arange(3), chunk=2, seed=[0])
    >>> cache.vectors()[0].flatten().tolist()
    [0.0, 2.0, 4.0]
    >>> cache.backward((torch.ones(3, 1),))
    >>> weight.grad
    tensor([[3.]])
    """

    def __init__(self, encode: Encode, ids: Ids, *, chunk: int, seed: list[int]) -> None:
        size = chunk or max(1, len(ids))
        self._encode, self._seed = encode, seed
        # One chunk, perhaps an empty one, for no texts: heads tell how wide nothing is.
        self._chunks = [ids[start : start + size] for start in range(0, max(1, len(ids)), size)]
        self._graph: Parts | None = None

    def vectors(self) -> Parts:
        """The vectors without a graph."""
        if len(self._chunks) == 1:
            self._graph = self._encoded(0)
            return tuple(part.detach() for part in self._graph)
        with torch.no_grad():
            parts = [self._encoded(number) for number in range(len(self._chunks))]
        return tuple(torch.cat(heads) for heads in zip(*parts, strict=True))

    def backward(self, gradients: Parts) -> None:
        """Let the gradients of the vectors flow to everything that made them."""
        if self._graph is not None:
            backward(self._graph, gradients)
            self._graph = None
            return
        start = 0
        for number, chunk in enumerate(self._chunks):
            rows = slice(start, start + len(chunk))
            backward(self._encoded(number), tuple(gradient[rows] for gradient in gradients))
            start += len(chunk)

    def _encoded(self, number: int) -> Parts:
        rng = np.random.default_rng([*self._seed, number])
        seed_torch(int(rng.integers(2**63)))
        return self._encode(self._chunks[number], rng)
