"""The vectors of an index as a row source: an index on disk is built from them again, or from some of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from unidex.index.base import Index

if TYPE_CHECKING:
    import torch


class IndexRows:
    """The vectors of some ids of an index, in their order; of all unless they are given."""

    def __init__(self, index: Index, ids: NDArray[np.int64] | None = None) -> None:
        self._index, self._ids = index, ids
        self.shape = (index.num_ids if ids is None else len(ids), index.dim)

    @property
    def device(self) -> torch.device:
        """Main memory."""
        import torch

        return torch.device("cpu")

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> torch.Tensor:
        return self._tensor(np.arange(*rows.indices(self.shape[0])))

    def index_select(self, dim: int, ids: torch.Tensor) -> torch.Tensor:
        """Rows by number."""
        assert dim == 0
        return self._tensor(ids.numpy())

    def _tensor(self, rows: NDArray[np.int64]) -> torch.Tensor:
        import torch

        return torch.from_numpy(self._index.vectors(rows if self._ids is None else self._ids[rows]))
