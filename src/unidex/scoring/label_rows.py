"""The rows of all labels, made from the network where they are read: no table of them is in memory.

Shapes: L labels, N labels that are read, D columns of a row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unidex.nn.array_network import ArrayNetwork
from unidex.nn.network import BLOCK, Network
from unidex.nn.vectors import Vectors
from unidex.scoring.layout import Layout


class LabelRows:
    """L x D rows as `Layout.rows` arranges them. Slices and chosen rows are computed, with the network as it is then.

    Args:
        network: encoder and classifiers.
        layout: the layout of the rows.
        prepared: prepared texts of the labels that this network has.
        frequencies: number of training texts per label.
        arrays: encodes the label texts in place of the network, where a model predicts by it.
    """

    def __init__(
        self,
        network: Network,
        layout: Layout,
        prepared: Any,
        frequencies: NDArray[np.int64],
        arrays: ArrayNetwork | None = None,
    ) -> None:
        self._arrays = arrays
        self._network, self._layout, self._prepared, self._frequencies = network, layout, prepared, frequencies
        self.shape = (int(prepared.shape[0]), int(self._rows(slice(0, 1)).shape[1]))

    @property
    def device(self) -> torch.device:
        """The device of the rows."""
        return self._network.device

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> Tensor:
        start, stop, _ = rows.indices(len(self))
        blocks = [self._rows(slice(at, min(at + BLOCK, stop))) for at in range(start, stop, BLOCK)]
        return torch.cat(blocks) if len(blocks) != 1 else blocks[0]

    def index_select(self, dim: int, ids: Tensor) -> Tensor:
        """Rows by number; each is computed once, however often it is asked for."""
        assert dim == 0
        distinct, places = torch.unique(ids, return_inverse=True)
        if len(distinct) == 0:
            return torch.empty(0, self.shape[1], device=self.device)
        numbers = distinct.cpu().numpy()
        parts = [self._rows(numbers[at : at + BLOCK]) for at in range(0, len(numbers), BLOCK)]
        return torch.cat(parts).index_select(0, places)

    def _rows(self, rows: slice | NDArray[np.int64]) -> Tensor:
        prepared = self._prepared[rows]
        vectors = self._network.label_vectors(None if self._arrays else prepared, rows)
        if self._arrays is not None and self._arrays.dual is not None:
            dual = torch.from_numpy(self._arrays.text_vectors(prepared).dual).to(self.device)
            vectors = Vectors(dual, vectors.classifier)
        found: Tensor = self._layout.rows(vectors, self._frequencies[rows])
        return found
