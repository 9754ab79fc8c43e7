"""The lexical part of a score: words and character n-grams that a text shares with the text of a label.

It reads nothing but the texts, so it also finds labels without training texts. A feature is a hashed column. Words have
the first half of the columns, n-grams the second.

Formula, for words (and likewise for n-grams), with idf_f = 1 + ln((1 + L) / (1 + n_f)) and n_f labels that have f::

    overlap(x, l)  = sum over f in both of idf_f^2 / (|x| |l|)       |.| the norm of the idf values
    coverage(x, l) = sum over f in both of idf_f^2 / |l|^2           the share of the label that the text has

Shapes: N texts, K candidates, L labels, F columns.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex.config import Features
from unidex.errors import ModelError
from unidex.features.groups import groups_of
from unidex.features.single_text import words_in
from unidex.sparse_rows import row_of_entries, sparse_product, unchecked_csr
from unidex.storage.mapped import load_array
from unidex.topk import TopK

_HALF = 1 << 16
_COLUMNS = 2 * _HALF
_FEATURES = Features(parts=True, bigrams=False, chars=True, chars_min=4, chars_max=4)
# Characters of a text that are read, and texts at a time.
_MAX_CHARACTERS = 2000
_TEXTS_AT_ONCE = 8
_CHUNK = 2000
_ROWS_AT_ONCE = 1 << 15  # of labels
# Up to so many texts are read word by word; so many words are remembered.
_FEW, _MAX_WORDS = 16, 100_000
# A word that more labels have finds no candidates.
_MAX_LABELS, _MAX_SHARE = 100, 0.005


class LexicalPart:
    """The words and n-grams of all label texts.

    >>> part = LexicalPart.of(["sea turtles", "turtle soup", "mountains"])
    >>> rows = part.rows(["A sea turtle at sea"])
    >>> part.overlaps(rows, np.array([[0, 1, 2]]))["word_coverage"].round(2).tolist()
    [[0.5, 0.5, 0.0]]
    >>> part.search(rows, 2).ids.tolist()
    [[0, 1]]
    """

    def __init__(
        self, frequencies_F: NDArray[np.int32], num_counted: int, columns: NDArray[np.int32], starts: NDArray[np.int64]
    ) -> None:
        self._frequencies_F, self._num_counted = frequencies_F, num_counted
        self._labels_LF = self._weighted(columns, starts)
        self._memory = _WordMemory()

    @classmethod
    def of(cls, label_texts: Sequence[str]) -> LexicalPart:
        """The part over the texts of labels."""
        columns, starts = _columns_of(label_texts)
        frequencies = np.bincount(columns, minlength=_COLUMNS).astype(np.int32)
        return cls(frequencies, len(label_texts), columns, starts)

    @property
    def num_labels(self) -> int:
        """Number of labels."""
        return int(self._labels_LF.shape[0])

    def rows(self, texts: Sequence[str]) -> sparse.csr_array:
        """The rows of texts, N x F; features that no label has are left out."""
        texts = [text[:_MAX_CHARACTERS] for text in texts]
        columns, starts = self._memory.columns_of(texts) if len(texts) <= _FEW else _columns_of(texts)
        known = self._frequencies_F[columns] > 0
        num_known = np.append(0, np.cumsum(known))
        return self._weighted(columns[known], num_known[starts])

    def overlaps(self, rows_NF: sparse.csr_array, ids_NK: NDArray[np.int64]) -> dict[str, NDArray[np.float32]]:
        """What texts share with their candidates: ``word_overlap``, ``char_overlap`` and ``word_coverage``, N x K."""
        num_texts, num_candidates = ids_NK.shape
        found = np.empty((num_texts, num_candidates, 3))
        dense = _dense_texts()
        at = rows_NF.indices + row_of_entries(rows_NF, np.int64) % _TEXTS_AT_ONCE * _COLUMNS
        for start in range(0, num_texts if num_candidates else 0, _TEXTS_AT_ONCE):
            ids = ids_NK[start : start + _TEXTS_AT_ONCE]
            own = slice(rows_NF.indptr[start], rows_NF.indptr[start + len(ids)])
            dense[at[own]] = rows_NF.data[own]
            try:
                found[start : start + len(ids), :, :2] = (self._halves_of(ids) @ dense).reshape(*ids.shape, 2)
            finally:
                dense[at[own]] = 0
        # As idf^2 / |l|^2 = idf^2 / (|x| |l|) * |x| / |l|.
        norms = self._word_norms_of(rows_NF)[:, None] / self._word_norms[ids_NK]
        np.multiply(found[:, :, 0], norms, out=found[:, :, 2])
        # Trees tell a gap of 1e-7 from one of 0: labels that a text covers equally must have equal numbers.
        rounded = found.round(6).astype(np.float32)
        return {name: rounded[:, :, at] for at, name in enumerate(("word_overlap", "char_overlap", "word_coverage"))}

    def _halves_of(self, ids_BK: NDArray[np.int64]) -> sparse.csr_array:
        """The words of each candidate and, in the next row, its n-grams; the columns of a text follow the last one's.

        Numbers of 64 bits, so that sums do not depend on their order at the sixth digit.
        """
        labels, ids = self._labels_LF, ids_BK.ravel()
        firsts = labels.indptr[ids]
        lengths = labels.indptr[ids + 1] - firsts
        starts = np.zeros(2 * len(ids) + 1, dtype=firsts.dtype)
        np.cumsum(lengths, out=starts[2::2])
        starts[1::2] = starts[:-1:2] + self._num_words[ids]
        entries = np.repeat(firsts - starts[:-1:2], lengths)
        entries += np.arange(len(entries), dtype=entries.dtype)
        columns = labels.indices.take(entries)
        texts = np.arange(len(ids_BK), dtype=columns.dtype) * _COLUMNS
        columns += np.repeat(texts, np.diff(starts[:: 2 * ids_BK.shape[1]]))
        values = labels.data.take(entries).astype(np.float64)
        return unchecked_csr(values, columns, starts, (2 * len(ids), _TEXTS_AT_ONCE * _COLUMNS))

    @cached_property
    def _num_words(self) -> NDArray[np.integer[Any]]:
        """The number of words of each label; they come before its n-grams."""
        labels, found = self._labels_LF, []
        for first in range(0, self.num_labels, _ROWS_AT_ONCE):
            own = labels.indptr[first : first + _ROWS_AT_ONCE + 1]
            words_so_far = np.append(0, np.cumsum(labels.indices[own[0] : own[-1]] < _HALF))
            found.append(np.diff(words_so_far[own - own[0]]))
        counts: NDArray[np.integer[Any]] = np.concatenate([np.empty(0, dtype=np.int64), *found])
        return counts

    @cached_property
    def _word_norms(self) -> NDArray[np.float64]:
        """The norm of the words of each label; 1 without any."""
        starts = range(0, self.num_labels, _ROWS_AT_ONCE)
        found = [self._word_norms_of(self._labels_LF[first : first + _ROWS_AT_ONCE]) for first in starts]
        norms = np.concatenate([np.empty(0), *found])
        return np.where(norms > 0, norms, 1)

    def _word_norms_of(self, rows_NF: sparse.csr_array) -> NDArray[np.float64]:
        """The norm of the idf values of words, from rows that were divided by it."""
        idf = self._idf(rows_NF.indices) * (rows_NF.indices < _HALF)
        norms = np.bincount(row_of_entries(rows_NF), weights=idf * rows_NF.data, minlength=rows_NF.shape[0])
        return norms.astype(np.float64)

    def _idf(self, columns: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
        frequencies = np.minimum(self._frequencies_F[columns], self._num_counted)
        idf: NDArray[np.float64] = 1 + np.log((1 + self._num_counted) / (1 + frequencies))
        return idf

    def sizes(self, ids_NK: NDArray[np.int64]) -> NDArray[np.float32]:
        """The number of words and n-grams of labels."""
        starts = self._labels_LF.indptr
        sizes: NDArray[np.float32] = (starts[ids_NK + 1] - starts[ids_NK]).astype(np.float32)
        return sizes

    def search(self, rows_NF: sparse.csr_array, k: int, hidden_L: NDArray[np.bool_] | None = None) -> TopK:
        """The k labels of each text with the highest overlap of rare words; fewer where fewer share one.

        Args:
            rows_NF: rows of texts.
            k: number of places.
            hidden_L: labels that must not be returned; None where all may be.
        """
        scores = sparse_product(rows_NF, self._labels_by_word)
        if hidden_L is not None:
            scores.data[hidden_L[scores.indices]] = 0
            scores.eliminate_zeros()
        return TopK.from_csr(scores, k)

    @cached_property
    def _labels_by_word(self) -> sparse.csr_array:
        most = max(_MAX_LABELS, int(_MAX_SHARE * self.num_labels))
        is_rare_F = self._frequencies_F <= most
        is_rare_F[_HALF:] = False
        values, columns, rows = [np.empty(0, dtype=np.float32)], [np.empty(0, np.int32)], [np.empty(0, np.int32)]
        for first in range(0, self.num_labels, _ROWS_AT_ONCE):
            labels = self._labels_LF[first : first + _ROWS_AT_ONCE]
            rare = is_rare_F[labels.indices]
            values.append(labels.data[rare])
            columns.append(labels.indices[rare])
            rows.append((first + row_of_entries(labels)[rare]).astype(np.int32))
        entries = (np.concatenate(values), (np.concatenate(columns), np.concatenate(rows)))
        return sparse.csr_array(entries, shape=(_COLUMNS, self.num_labels))

    def add(self, label_texts: Sequence[str]) -> None:
        """Append labels. The weights of the others do not change: only features that no label had become known."""
        columns, starts = _columns_of(label_texts)
        self._frequencies_F = self._frequencies_F.copy()
        new = np.unique(columns)
        self._frequencies_F[new] = np.maximum(self._frequencies_F[new], 1)
        self._set(sparse.vstack([self._labels_LF, self._weighted(columns, starts)], format="csr"))

    def rename(self, label: int, text: str) -> None:
        """Give a label another text."""
        self.add([text])
        rows = np.arange(self.num_labels - 1)
        rows[label] = len(rows)
        self._set(self._labels_LF[rows])

    def _set(self, labels_LF: sparse.csr_array) -> None:
        self._labels_LF = labels_LF
        for name in ("_labels_by_word", "_num_words", "_word_norms"):
            self.__dict__.pop(name, None)

    def save(self, folder: Path) -> None:
        """Write the columns of all labels; weights follow from them."""
        folder.mkdir(parents=True)
        np.save(folder / "frequencies.npy", self._frequencies_F)
        np.save(folder / "columns.npy", self._labels_LF.indices.astype(np.int32))
        np.save(folder / "starts.npy", self._labels_LF.indptr.astype(np.int64))
        np.save(folder / "num_counted.npy", np.array([self._num_counted]))

    @classmethod
    def load(cls, folder: Path, num_labels: int) -> LexicalPart:
        """Read what ``save`` wrote."""
        starts = load_array(folder / "starts.npy", (num_labels + 1,), np.int64)
        columns = load_array(folder / "columns.npy", (int(starts[-1]),), np.int32)
        frequencies = load_array(folder / "frequencies.npy", (_COLUMNS,), np.int32)
        if (np.diff(starts) < 0).any() or (len(columns) and not 0 <= columns.min() <= columns.max() < _COLUMNS):
            raise ModelError(f"{folder}: the columns of labels must be below {_COLUMNS}, but are not; copy it again")
        return cls(frequencies, int(load_array(folder / "num_counted.npy", (1,), np.int64)[0]), columns, starts)

    def _weighted(self, columns: NDArray[np.int32], starts: NDArray[np.int64]) -> sparse.csr_array:
        """Rows of norm 1 for words and of norm 1 for n-grams."""
        num_rows, weights = len(starts) - 1, np.empty(len(columns), dtype=np.float32)
        for first in range(0, num_rows, _ROWS_AT_ONCE):
            own = starts[first : first + _ROWS_AT_ONCE + 1]
            entries = slice(own[0], own[-1])
            idf = self._idf(columns[entries])
            part = 2 * np.repeat(np.arange(len(own) - 1), np.diff(own)) + (columns[entries] >= _HALF)
            norms = np.sqrt(np.bincount(part, weights=idf * idf, minlength=2 * len(own) - 2))
            weights[entries] = idf / norms[part]
        index = np.int32 if len(columns) < 2**31 else np.int64
        arrays = (weights, columns.astype(index, copy=False), starts.astype(index, copy=False))
        return unchecked_csr(*arrays, (num_rows, _COLUMNS))


_rooms = threading.local()


def _dense_texts() -> NDArray[np.float64]:
    """Room of this thread for the rows of a few texts; all 0, and left so."""
    if not hasattr(_rooms, "texts"):
        _rooms.texts = np.zeros(_TEXTS_AT_ONCE * _COLUMNS)
    texts: NDArray[np.float64] = _rooms.texts
    return texts


class _WordMemory:
    """The columns of words seen before: a few texts need less time than by array operations."""

    def __init__(self) -> None:
        self._columns: dict[str, tuple[int, ...]] = {}

    def columns_of(self, texts: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """As `_columns_of`: all features of a text are those of its words."""
        words_of_texts = [words_in(text) for text in texts]
        known = self._columns if len(self._columns) < _MAX_WORDS else {}
        if new := [word for word in set().union(*words_of_texts) if word not in known]:
            columns, starts = _columns_of(new)
            parts = np.split(columns, starts[1:-1])
            known.update((word, tuple(part.tolist())) for word, part in zip(new, parts, strict=True))
            self._columns = known
        rows = [sorted(set().union(*(known[word] for word in words))) for words in words_of_texts]
        found = np.fromiter(chain.from_iterable(rows), dtype=np.int32)
        return found, np.cumsum([0, *(len(row) for row in rows)])


def _columns_of(texts: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The columns of each text, ascending and each once, and where those of a text start."""
    columns_of, counts = [np.empty(0, dtype=np.int32)], [np.zeros(1, dtype=np.int64)]
    for start in range(0, len(texts), _CHUNK):
        found, chunk = [], texts[start : start + _CHUNK]
        for half, group in enumerate(groups_of(chunk, _FEATURES, None)):
            columns = (group.keys % np.uint64(_HALF)).astype(np.int64) + half * _HALF
            found += [part.rows * _COLUMNS + columns[part.features] for part in group.occurrences()]
        ascending = np.sort(np.concatenate(found))
        keys = ascending[np.append(True, ascending[1:] != ascending[:-1])[: len(ascending)]]
        columns_of.append((keys % _COLUMNS).astype(np.int32))
        counts.append(np.bincount(keys // _COLUMNS, minlength=len(chunk)))
    return np.concatenate(columns_of), np.cumsum(np.concatenate(counts))
