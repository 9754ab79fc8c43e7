"""Vectors of texts or labels by each head, as tensors or as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from unidex.distributed import Processes

# A torch.Tensor or an array of NumPy. Not named as a union: arrays are read where torch is not loaded.
Array = Any


@dataclass(frozen=True, eq=False)
class Vectors:
    """Vectors of both heads; None for a head that the network does not have."""

    dual: Array | None
    classifier: Array | None
    # Vectors of texts for the clusters of a label tree, the levels side by side; None without a tree.
    levels: Array | None = None

    def gathered(self, processes: Processes) -> Vectors:
        """The vectors of all processes, in their order; each gets all of them."""
        parts = (self.dual, self.classifier, self.levels)
        return Vectors(*(None if part is None else processes.gather(part) for part in parts))

    def arrays(self) -> Vectors:
        """The same vectors as arrays in main memory."""
        parts = (self.dual, self.classifier, self.levels)
        return Vectors(*(None if part is None else as_array(part) for part in parts))


def as_array(vectors: Array) -> Any:
    """A tensor as an array in main memory; an array as it is."""
    return vectors if isinstance(vectors, np.ndarray) else vectors.detach().cpu().numpy()
