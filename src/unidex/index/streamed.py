"""Exact search over label vectors that are computed where they are read: for a network in training.

Shapes: L labels, D dimensions, B texts, K places.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from unidex.index.base import Index
from unidex.index.checks import Vectors
from unidex.index.exact import RowSource, search_exact
from unidex.topk import TopK


class StreamedIndex(Index):
    """The labels of a row source, searched exactly. It changes with its source, and is neither saved nor added to."""

    kind = "streamed"

    def __init__(self, rows: RowSource) -> None:
        super().__init__()
        self._rows = rows

    @classmethod
    def build(cls, vectors_LD: Vectors, **settings: Any) -> Self:
        """An index over vectors that are there already."""
        raise _not_stored()

    @property
    def num_ids(self) -> int:
        """Rows of the source."""
        return len(self._rows)

    @property
    def dim(self) -> int:
        """Numbers per row."""
        return self._rows.shape[1]

    def vectors(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """The vectors of labels, one per row."""
        found: NDArray[np.float32] = self._rows.index_select(0, torch.from_numpy(ids)).cpu().numpy()
        return found

    def _search(self, queries_BD: Vectors, k: int, hidden: NDArray[np.bool_] | None, num_visible: int) -> TopK:
        forbidden = None if hidden is None else np.flatnonzero(hidden)
        return search_exact(queries_BD, self._rows, k, forbidden=forbidden)

    @classmethod
    def _read(cls, folder: Path, manifest: dict[str, Any]) -> Self:
        raise _not_stored()

    def _write(self, folder: Path) -> None:
        raise _not_stored()

    def _append(self, vectors: Vectors) -> None:
        raise _not_stored()

    def _move(self, ids: NDArray[np.int64], vectors: Vectors) -> None:
        raise _not_stored()


def _not_stored() -> TypeError:
    return TypeError("a streamed index stores no vectors; build one of another kind from its rows")
