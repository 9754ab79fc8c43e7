"""The words and n-grams of label texts, in memory.

Shapes: N texts, R label texts, F columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex.errors import ModelError
from unidex.scoring.column_weights import ColumnWeights
from unidex.scoring.lexical_columns import HALF, NUM_COLUMNS, Columns
from unidex.scoring.lexical_rows import TextRows
from unidex.sparse_rows import sparse_product
from unidex.storage.small_numbers import load_numbers, save_numbers


class LabelWords:
    """One row per label text, with its words before its n-grams."""

    def __init__(self, columns: Columns, weights: ColumnWeights) -> None:
        self._weights = weights
        self.rows_RF = weights.weighted(*columns)
        self._most = -1
        self._by_word = self.rows_RF

    def __len__(self) -> int:
        return int(self.rows_RF.shape[0])

    @cached_property
    def described(self) -> TextRows:
        """All rows, with the number of their words and their norms."""
        return self._weights.described(self.rows_RF)

    def rows_of(self, ids: NDArray[np.int64]) -> tuple[TextRows, NDArray[np.int64]]:
        """Rows among which those of these ids are, and their places."""
        return self.described, ids

    def sizes(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """The number of words and n-grams of label texts."""
        starts = self.rows_RF.indptr
        sizes: NDArray[np.float32] = (starts[ids + 1] - starts[ids]).astype(np.float32)
        return sizes

    def by_word(self, most: int) -> sparse.csr_array:
        """Words that at most so many labels have x label texts, F x R."""
        if self._most != most:
            labels = self.rows_RF.tocoo()
            rare = (labels.col < HALF) & (self._weights.frequencies_F[labels.col] <= most)
            entries = (labels.data[rare], (labels.col[rare], labels.row[rare]))
            self._by_word, self._most = sparse.csr_array(entries, shape=(NUM_COLUMNS, len(self))), most
        return self._by_word

    def text_blocks(self, searched_NF: sparse.csr_array, most: int) -> list[slice]:
        """Texts whose scores are computed at once."""
        return [slice(0, searched_NF.shape[0])]

    def scores(self, searched_NF: sparse.csr_array, most: int) -> sparse.csr_array:
        """The overlap of rare words, N x R."""
        return sparse_product(searched_NF, self.by_word(most))

    def add(self, texts: Sequence[str]) -> None:
        """Append label texts."""
        self._weights.know(own := self._weights.reading.columns_of(texts))
        self._set(sparse.vstack([self.rows_RF, self._weights.weighted(*own)], format="csr"))

    def rename(self, row: int, text: str) -> None:
        """Replace a label text."""
        self._weights.know(own := self._weights.reading.columns_of([text]))
        rows = np.arange(len(self))
        rows[row] = len(rows)
        self._set(sparse.vstack([self.rows_RF, self._weights.weighted(*own)], format="csr")[rows])

    def _set(self, rows_RF: sparse.csr_array) -> None:
        self.rows_RF, self._most = rows_RF, -1
        self.__dict__.pop("described", None)

    def save(self, folder: Path, prefix: str = "") -> None:
        """Write the columns of all rows; weights follow from them."""
        save_numbers(folder / f"{prefix}columns", self.rows_RF.indices.astype(np.int32))
        save_numbers(folder / f"{prefix}starts", self.rows_RF.indptr.astype(np.int64))

    @classmethod
    def load(cls, folder: Path, num_rows: int, weights: ColumnWeights, prefix: str = "") -> LabelWords:
        """Read what ``save`` wrote."""
        starts = load_numbers(folder / f"{prefix}starts", (num_rows + 1,), np.int64)
        columns = load_numbers(folder / f"{prefix}columns", (int(starts[-1]),), np.int32)
        if (np.diff(starts) < 0).any() or (len(columns) and not 0 <= columns.min() <= columns.max() < NUM_COLUMNS):
            raise ModelError(f"{folder}: the columns of labels must be below {NUM_COLUMNS}, but are not; copy it again")
        return cls((columns, starts), weights)
