"""What texts share with rows of label texts.

Shapes: N texts, R rows of label texts, F columns, P pairs of a text and a row.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex import native
from unidex.scoring.lexical_columns import HALF, NUM_COLUMNS
from unidex.sparse_rows import row_of_entries, unchecked_csr

_TEXTS_AT_ONCE = 8


@dataclass(frozen=True, eq=False)
class TextRows:
    """Rows of label texts."""

    rows_RF: sparse.csr_array
    num_words_R: NDArray[np.integer[Any]]  # words per row; they come before its n-grams
    word_norms_R: NDArray[np.float64]  # the norm of the words; 1 without any

    def halves(self, texts_P: NDArray[np.int64], rows_P: NDArray[np.int64]) -> sparse.csr_array:
        """The words of each row and, in the next row, its n-grams; the columns of a text follow the last one's.

        Numbers of 64 bits, so that sums do not depend on their order at the sixth digit.
        """
        rows = self.rows_RF
        firsts = rows.indptr[rows_P]
        lengths = rows.indptr[rows_P + 1] - firsts
        starts = np.zeros(2 * len(rows_P) + 1, dtype=firsts.dtype)
        np.cumsum(lengths, out=starts[2::2])
        starts[1::2] = starts[:-1:2] + self.num_words_R[rows_P]
        entries = np.repeat(firsts - starts[:-1:2], lengths)
        entries += np.arange(len(entries), dtype=entries.dtype)
        columns = rows.indices.take(entries)
        columns += np.repeat((texts_P * NUM_COLUMNS).astype(columns.dtype), lengths)
        values = rows.data.take(entries).astype(np.float64)
        return unchecked_csr(values, columns, starts, (2 * len(rows_P), _TEXTS_AT_ONCE * NUM_COLUMNS))


def shared_features(
    rows_NF: sparse.csr_array,
    idf_F: NDArray[np.float64],
    label_rows: TextRows,
    texts_P: NDArray[np.int64],
    rows_P: NDArray[np.int64],
) -> NDArray[np.float64]:
    """What each text shares with a row of a label text: word overlap, n-gram overlap, word coverage; P x 3.

    ``texts_P`` ascends.
    """
    found = np.empty((len(rows_P), 3))
    if native.is_plain(rows_NF, label_rows.rows_RF):
        of_labels = native.arrays_of(label_rows.rows_RF), (label_rows.num_words_R, label_rows.word_norms_R)
        native.kernels.share_columns(*native.arrays_of(rows_NF), idf_F, *chain(*of_labels), texts_P, rows_P, found)
        return found
    dense = _dense_texts()
    at = rows_NF.indices + row_of_entries(rows_NF, np.int64) % _TEXTS_AT_ONCE * NUM_COLUMNS
    bounds = np.searchsorted(texts_P, np.arange(0, rows_NF.shape[0] + _TEXTS_AT_ONCE, _TEXTS_AT_ONCE))
    for block, (start, end) in enumerate(pairwise(bounds.tolist())):
        if start == end:
            continue
        first = block * _TEXTS_AT_ONCE
        own = slice(rows_NF.indptr[first], rows_NF.indptr[min(first + _TEXTS_AT_ONCE, rows_NF.shape[0])])
        dense[at[own]] = rows_NF.data[own]
        try:
            halves = label_rows.halves(texts_P[start:end] - first, rows_P[start:end])
            found[start:end, :2] = (halves @ dense).reshape(-1, 2)
        finally:
            dense[at[own]] = 0
    # As idf^2 / |l|^2 = idf^2 / (|x| |l|) * |x| / |l|.
    np.multiply(found[:, 0], word_norms(rows_NF, idf_F)[texts_P] / label_rows.word_norms_R[rows_P], out=found[:, 2])
    return found


def word_norms(rows_NF: sparse.csr_array, idf_F: NDArray[np.float64]) -> NDArray[np.float64]:
    """The norm of the idf values of words, from rows that were divided by it."""
    idf = idf_F[rows_NF.indices] * (rows_NF.indices < HALF)
    norms = np.bincount(row_of_entries(rows_NF), weights=idf * rows_NF.data, minlength=rows_NF.shape[0])
    return norms.astype(np.float64)


_rooms = threading.local()


def _dense_texts() -> NDArray[np.float64]:
    """Room of this thread for the rows of a few texts; all 0, and left so."""
    if not hasattr(_rooms, "texts"):
        _rooms.texts = np.zeros(_TEXTS_AT_ONCE * NUM_COLUMNS)
    texts: NDArray[np.float64] = _rooms.texts
    return texts
