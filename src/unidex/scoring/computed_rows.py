"""Rows of all labels or all train texts, made from the network where they are read: no table of them is in memory.

Shapes: L labels or texts, N of them that are read, D columns of a row.
"""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unidex.index.disk_lists import Building
from unidex.nn.array_network import ArrayNetwork
from unidex.nn.network import BLOCK, Network
from unidex.nn.vectors import Vectors
from unidex.scoring.layout import Layout

# Bytes of all rows together. Fewer are computed at once, which is quicker.
STREAMED_ABOVE = 1 << 28


class ComputedRows(ABC):
    """L x D rows. Slices and chosen rows are computed, with the network as it is then.

    Args:
        network: encoder and classifiers.
        layout: the layout of the rows.
        prepared: prepared texts, one per row.
        arrays: encodes texts in place of the network, where a model predicts by it.
    """

    def __init__(self, network: Network, layout: Layout, prepared: Any, arrays: ArrayNetwork | None = None) -> None:
        self._network, self._layout, self._prepared, self._arrays = network, layout, prepared, arrays
        self.shape = (int(prepared.shape[0]), int(self._rows(slice(0, 1)).shape[1]))

    @property
    def device(self) -> torch.device:
        """The device of the rows."""
        return self._network.device

    @property
    def is_large(self) -> bool:
        """Whether there are so many that they are not computed at once."""
        return 4 * self.shape[0] * self.shape[1] > STREAMED_ABOVE

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> Tensor:
        start, stop, _ = rows.indices(len(self))
        blocks = [self._rows(slice(at, min(at + BLOCK, stop))) for at in range(start, max(stop, start + 1), BLOCK)]
        return torch.cat(blocks) if len(blocks) > 1 else blocks[0]

    def index_select(self, dim: int, ids: Tensor) -> Tensor:
        """Rows by number; each is computed once, however often it is asked for."""
        assert dim == 0
        distinct, places = torch.unique(ids, return_inverse=True)
        if len(distinct) == 0:
            return torch.empty(0, self.shape[1], device=self.device)
        numbers = distinct.cpu().numpy()
        parts = [self._rows(numbers[at : at + BLOCK]) for at in range(0, len(numbers), BLOCK)]
        return torch.cat(parts).index_select(0, places)

    @contextmanager
    def stored(self, scratch: Path | None = None) -> Iterator[NDArray[np.float32]]:
        """All rows as an array: in memory, or mapped from a temporary file in ``scratch`` where they are many."""
        if not self.is_large:
            yield self[:].cpu().numpy()
            return
        with tempfile.TemporaryDirectory(prefix="rows-", dir=scratch) as folder:
            yield Building(Path(folder)).store(self, np.float32)

    @abstractmethod
    def _rows(self, rows: slice | NDArray[np.int64]) -> Tensor:
        """These rows, at most a block of them."""


class LabelRows(ComputedRows):
    """The rows of labels as `Layout.rows` arranges them, of those that this network has.

    Args:
        network: encoder and classifiers.
        layout: the layout of the rows.
        prepared: prepared texts of the labels.
        frequencies: number of training texts per label.
        arrays: as above.
    """

    def __init__(
        self,
        network: Network,
        layout: Layout,
        prepared: Any,
        frequencies: NDArray[np.int64],
        arrays: ArrayNetwork | None = None,
    ) -> None:
        self._frequencies = frequencies
        super().__init__(network, layout, prepared, arrays)

    def _rows(self, rows: slice | NDArray[np.int64]) -> Tensor:
        prepared = self._prepared[rows]
        vectors = self._network.label_vectors(None if self._arrays else prepared, rows)
        if self._arrays is not None and self._arrays.dual is not None:
            dual = torch.from_numpy(self._arrays.text_vectors(prepared).dual).to(self.device)
            vectors = Vectors(dual, vectors.classifier)
        found: Tensor = self._layout.rows(vectors, self._frequencies[rows])
        return found


class TextRows(ComputedRows):
    """The vectors of train texts for the kNN part."""

    def _rows(self, rows: slice | NDArray[np.int64]) -> Tensor:
        encoder = self._arrays or self._network
        found = self._layout.knn_vectors(encoder.text_vectors(self._prepared[rows]))
        return torch.from_numpy(found) if isinstance(found, np.ndarray) else found
