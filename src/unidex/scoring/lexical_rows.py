"""Words and character n-grams of texts as hashed columns, and what texts share with rows of label texts.

Shapes: N texts, R rows of label texts, F columns, P pairs of a text and a row.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex.config import Features
from unidex.features.groups import groups_of
from unidex.features.word_strings import words_in
from unidex.sparse_rows import row_of_entries, unchecked_csr

HALF = 1 << 16
NUM_COLUMNS = 2 * HALF
_FEATURES = Features(parts=True, bigrams=False, chars=True, chars_min=4, chars_max=4)
_TEXTS_AT_ONCE = 8
_CHUNK = 2000
_MAX_WORDS = 100_000  # remembered

Columns = tuple[NDArray[np.int32], NDArray[np.int64]]  # of texts, and where those of a text start


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
    norms_N: NDArray[np.float64],
    label_rows: TextRows,
    texts_P: NDArray[np.int64],
    rows_P: NDArray[np.int64],
) -> NDArray[np.float64]:
    """What each text shares with a row of a label text: word overlap, n-gram overlap, word coverage; P x 3.

    ``texts_P`` ascends.
    """
    found = np.empty((len(rows_P), 3))
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
    np.multiply(found[:, 0], norms_N[texts_P] / label_rows.word_norms_R[rows_P], out=found[:, 2])
    return found


_rooms = threading.local()


def _dense_texts() -> NDArray[np.float64]:
    """Room of this thread for the rows of a few texts; all 0, and left so."""
    if not hasattr(_rooms, "texts"):
        _rooms.texts = np.zeros(_TEXTS_AT_ONCE * NUM_COLUMNS)
    texts: NDArray[np.float64] = _rooms.texts
    return texts


class WordMemory:
    """The columns of words seen before: a few texts need less time than by array operations."""

    def __init__(self) -> None:
        self._columns: dict[str, tuple[int, ...]] = {}

    def columns_of(self, texts: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """As `columns_of`: all features of a text are those of its words."""
        words_of_texts = [words_in(text) for text in texts]
        known = self._columns if len(self._columns) < _MAX_WORDS else {}
        if new := [word for word in set().union(*words_of_texts) if word not in known]:
            columns, starts = columns_of(new)
            parts = np.split(columns, starts[1:-1])
            known.update((word, tuple(part.tolist())) for word, part in zip(new, parts, strict=True))
            self._columns = known
        rows = [sorted(set().union(*(known[word] for word in words))) for words in words_of_texts]
        found = np.fromiter(chain.from_iterable(rows), dtype=np.int32)
        return found, np.cumsum([0, *(len(row) for row in rows)])


def columns_of(texts: Sequence[str]) -> Columns:
    """The columns of each text, ascending and each once, and where those of a text start."""
    columns_of_chunks, counts = [np.empty(0, dtype=np.int32)], [np.zeros(1, dtype=np.int64)]
    for start in range(0, len(texts), _CHUNK):
        found, chunk = [], texts[start : start + _CHUNK]
        for half, group in enumerate(groups_of(chunk, _FEATURES, None)):
            columns = (group.keys % np.uint64(HALF)).astype(np.int64) + half * HALF
            found += [part.rows * NUM_COLUMNS + columns[part.features] for part in group.occurrences()]
        ascending = np.sort(np.concatenate(found))
        keys = ascending[np.append(True, ascending[1:] != ascending[:-1])[: len(ascending)]]
        columns_of_chunks.append((keys % NUM_COLUMNS).astype(np.int32))
        counts.append(np.bincount(keys // NUM_COLUMNS, minlength=len(chunk)))
    return np.concatenate(columns_of_chunks), np.cumsum(np.concatenate(counts))
