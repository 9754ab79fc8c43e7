"""Weights of columns, the rarer the higher, and rows of texts by them.

Shapes: N texts, F columns, R rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex import native
from unidex.features.codepoints import read_texts
from unidex.features.words import normal_form
from unidex.scoring.lexical_columns import HALF, NUM_COLUMNS, Columns, Reading, WordMemory
from unidex.scoring.lexical_rows import TextRows, word_norms
from unidex.sparse_rows import unchecked_csr

# Up to so many texts are read word by word.
_FEW = 64
_ROWS_AT_ONCE = 1 << 15  # of labels, so that what a step needs does not grow with their number


class ColumnWeights:
    """The idf of columns: how rare they are among the labels that were there at first.

    Args:
        frequencies_F: number of labels that have a column.
        num_counted: number of labels.
        reading: what is read of texts.
    """

    def __init__(self, frequencies_F: NDArray[np.int32], num_counted: int, reading: Reading) -> None:
        self.frequencies_F, self.num_counted, self.reading = frequencies_F, num_counted, reading
        self._memory = WordMemory(reading)

    @cached_property
    def idf(self) -> NDArray[np.float64]:
        """The idf of each column."""
        frequencies_F = np.minimum(self.frequencies_F, self.num_counted)
        idf: NDArray[np.float64] = 1 + np.log((1 + self.num_counted) / (1 + frequencies_F))
        return idf

    def know(self, columns: Columns) -> None:
        """Make columns that no label had known; the weights of the others do not change."""
        new = np.unique(columns[0])
        self.frequencies_F = self.frequencies_F.copy()
        self.frequencies_F[new] = np.maximum(self.frequencies_F[new], 1)
        self.__dict__.pop("idf", None)

    def rows(self, texts: Sequence[str]) -> sparse.csr_array:
        """The rows of texts, N x F; features that no label has are left out."""
        if native.kernels is not None:
            read = self.reading.analysed(texts)
            of_columns = self.idf, self.frequencies_F, self.reading.beginning
            found = read_texts(native.kernels.lexical_rows, [[normal_form(text) for text in read]], *of_columns)
            starts, columns, weights = map(np.frombuffer, found, (np.int32, np.int32, np.float32))
            return unchecked_csr(weights, columns, starts, (len(texts), NUM_COLUMNS))
        if len(texts) <= _FEW:
            columns, counts = self._memory.occurrences(texts)
        else:
            columns, ends = self.reading.columns_of(texts)
            counts = np.diff(ends)
        keys = np.unique(np.repeat(np.arange(len(texts)), counts) * NUM_COLUMNS + columns)
        keys = keys[self.frequencies_F[keys % NUM_COLUMNS] > 0]
        firsts = np.searchsorted(keys, np.arange(len(texts) + 1) * NUM_COLUMNS)
        return self.weighted((keys % NUM_COLUMNS).astype(np.int32), firsts)

    def weighted(self, columns: NDArray[np.int32], starts: NDArray[np.int64]) -> sparse.csr_array:
        """Rows of norm 1 for words and of norm 1 for n-grams."""
        num_rows, weights = len(starts) - 1, np.empty(len(columns), dtype=np.float32)
        for first in range(0, num_rows, _ROWS_AT_ONCE):
            own = starts[first : first + _ROWS_AT_ONCE + 1]
            entries = slice(own[0], own[-1])
            idf = self.idf[columns[entries]]
            part = 2 * np.repeat(np.arange(len(own) - 1), np.diff(own)) + (columns[entries] >= HALF)
            norms = np.sqrt(np.bincount(part, weights=idf * idf, minlength=2 * len(own) - 2))
            weights[entries] = idf / norms[part]
        index = np.int32 if len(columns) < 2**31 else np.int64
        arrays = (weights, columns.astype(index, copy=False), starts.astype(index, copy=False))
        return unchecked_csr(*arrays, (num_rows, NUM_COLUMNS))

    def described(self, rows_RF: sparse.csr_array) -> TextRows:
        """Rows with the number of their words and their norms."""
        counts, norms = [np.empty(0, dtype=np.int64)], [np.empty(0)]
        for first in range(0, rows_RF.shape[0], _ROWS_AT_ONCE):
            own = rows_RF if rows_RF.shape[0] <= _ROWS_AT_ONCE else rows_RF[first : first + _ROWS_AT_ONCE]
            words_so_far = np.append(0, np.cumsum(own.indices < HALF))
            counts.append(np.diff(words_so_far[own.indptr]))
            norms.append(word_norms(own, self.idf))
        joined = np.concatenate(norms)
        return TextRows(rows_RF, np.concatenate(counts), np.where(joined > 0, joined, 1))
