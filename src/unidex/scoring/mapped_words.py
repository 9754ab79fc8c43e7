"""The words of very many label texts: mapped lists of the labels of each word, and rows that are read where asked for.

A list has the labels of a word, ascending, and the weight of the word in each. Files of a folder:

- ``word_starts.npy``: where the list of each column starts, and the last one ends.
- ``word_labels.npy`` and ``word_weights.npy``: the lists, one after the other.

All else of a label follows from its text, which a model has mapped anyway. Labels that are added or get another text
are in memory.

Shapes: N texts, L labels, F columns.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex import native
from unidex.data.growing_texts import GrowingTexts
from unidex.errors import ModelError
from unidex.features.hash_keys import places
from unidex.scoring.column_weights import ColumnWeights
from unidex.scoring.label_words import LabelWords
from unidex.scoring.lexical_columns import HALF, NUM_COLUMNS, Reading
from unidex.scoring.lexical_rows import TextRows
from unidex.sparse_rows import csr_from_counts, row_of_entries, sparse_product, unchecked_csr
from unidex.storage.disk_errors import writing
from unidex.storage.mapped import link_file, map_array, new_array
from unidex.storage.spilled_array import SpilledArray

_STARTS, _LABELS, _WEIGHTS = FILES = ("word_starts.npy", "word_labels.npy", "word_weights.npy")
_TEXTS_AT_ONCE = 1 << 16
_LISTED_AT_ONCE = 1 << 19  # label texts whose words are put into lists at once
_TERMS_AT_ONCE = 1 << 22  # entries of lists that are added up at once, unless one text needs more
_FEW_TEXTS = 8  # that are scored at once without kernels: more of them need an array of all labels


class ReadWords:
    """The columns of label texts, read once: how many texts have each, and the words of every text, out of memory."""

    def __init__(self, texts: Sequence[str], reading: Reading, folder: Path | None = None) -> None:
        self.frequencies_F = np.zeros(NUM_COLUMNS, dtype=np.int64)
        words, counts = SpilledArray(np.uint16, folder), SpilledArray(np.int32, folder)
        for first in range(0, len(texts), _TEXTS_AT_ONCE):
            columns, starts = reading.columns_of(texts[first : first + _TEXTS_AT_ONCE])
            self.frequencies_F += np.bincount(columns, minlength=NUM_COLUMNS)
            is_word = columns < HALF
            words.append(columns[is_word])
            counts.append(np.diff(np.append(0, np.cumsum(is_word))[starts]))
        self._words, self._counts_L = words.array(), counts.array()

    def write_lists(self, folder: Path, idf_F: NDArray[np.float64]) -> None:
        """Write the lists of words."""
        starts_F = np.append(0, np.cumsum(np.where(np.arange(NUM_COLUMNS) < HALF, self.frequencies_F, 0)))
        number = int(starts_F[-1])
        with writing(folder / _LABELS):
            np.save(folder / _STARTS, starts_F.astype(np.int32 if number < 2**31 else np.int64))
            labels = new_array(folder / _LABELS, (number,), np.int32)
            weights = new_array(folder / _WEIGHTS, (number,), np.float32)
            next_F, done = starts_F[:-1].copy(), 0
            for first in range(0, len(self._counts_L), _LISTED_AT_ONCE):
                counts = self._counts_L[first : first + _LISTED_AT_ONCE]
                columns = self._words[done : done + int(counts.sum(dtype=np.int64))]
                done += len(columns)
                rows, idf = np.repeat(np.arange(len(counts), dtype=np.int32), counts), idf_F[columns]
                norms = np.sqrt(np.bincount(rows, weights=idf * idf, minlength=len(counts)))
                order = np.argsort(columns, kind="stable")
                own_F = np.bincount(columns, minlength=NUM_COLUMNS)
                at = places(next_F, own_F)
                labels[at] = first + rows[order]
                weights[at] = (idf / norms[rows])[order]
                next_F += own_F


class MappedWords:
    """The words of label texts in files; as `unidex.scoring.label_words.LabelWords`."""

    def __init__(self, folder: Path, texts: Sequence[str], weights: ColumnWeights, owned: Any = None) -> None:
        self._folder, self._weights = folder, weights
        self._owned = owned  # a temporary folder that lives as long as the part
        # Own ones: the labels of a model may change before this part or after it.
        self._texts = GrowingTexts(texts)
        self._num_stored = len(self._texts)
        file = folder / _STARTS
        starts_F = map_array(file, (NUM_COLUMNS + 1,))
        number = int(starts_F[-1])
        if starts_F.dtype not in (np.int32, np.int64) or starts_F[0] or (np.diff(starts_F) < 0).any():
            raise ModelError(f"{file}: the lists of words must follow one another, but do not; copy the model again")
        labels = map_array(folder / _LABELS, (number,), np.int32)
        values = map_array(folder / _WEIGHTS, (number,), np.float32)
        self._lists_FL = unchecked_csr(values, labels, starts_F, (NUM_COLUMNS, self._num_stored))
        self._new = LabelWords((np.empty(0, dtype=np.int32), np.zeros(1, dtype=np.int64)), weights)
        self._new_labels = np.empty(0, dtype=np.int32)

    @classmethod
    def of(
        cls, words: ReadWords, texts: Sequence[str], weights: ColumnWeights, scratch: Path | None = None
    ) -> MappedWords:
        """The words of texts as they were read, in a temporary folder in ``scratch``."""
        owned = tempfile.TemporaryDirectory(prefix="unidex-words-", dir=scratch)
        words.write_lists(Path(owned.name), weights.idf)
        return cls(Path(owned.name), texts, weights, owned)

    @staticmethod
    def is_in(folder: Path) -> bool:
        """Whether a folder has the files."""
        return (folder / _STARTS).exists()

    def __len__(self) -> int:
        return len(self._texts)

    def rows_of(self, ids: NDArray[np.int64]) -> tuple[TextRows, NDArray[np.int64]]:
        """Rows among which those of these ids are, and their places."""
        distinct, found = np.unique(ids, return_inverse=True)
        return self.rows_at(distinct), found.reshape(ids.shape)

    def rows_at(self, ids: NDArray[np.int64]) -> TextRows:
        """The rows of these ids, in their order."""
        return self._weights.described(self._weights.rows(self._texts.take(ids)))

    def sizes(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """The number of words and n-grams of label texts."""
        rows, found = self.rows_of(ids)
        sizes: NDArray[np.float32] = np.diff(rows.rows_RF.indptr)[found].astype(np.float32)
        return sizes

    def text_blocks(self, searched_NF: sparse.csr_array, most: int) -> list[slice]:
        """Texts whose scores are computed at once: so many that memory does not grow with their number."""
        if searched_NF.shape[0] == 1:
            return [slice(0, 1)]
        kept = self._kept(searched_NF, most)
        lengths = self._lists_FL.indptr[kept.indices + 1] - self._lists_FL.indptr[kept.indices]
        terms = np.bincount(row_of_entries(kept), weights=lengths, minlength=kept.shape[0])
        most_texts = _FEW_TEXTS if native.kernels is None else len(terms)
        blocks, first, total = [], 0, 0.0
        for text, own in enumerate(terms.tolist()):
            if text > first and (total + own > _TERMS_AT_ONCE or text - first >= most_texts):
                blocks.append(slice(first, text))
                first, total = text, 0.0
            total += own
        return [*blocks, slice(first, len(terms))]

    def scores(self, searched_NF: sparse.csr_array, most: int) -> sparse.csr_array:
        """The overlap of rare words, N x L."""
        left, right = self._kept(searched_NF, most), self._lists_FL
        if right.indptr.dtype != np.int32:
            left, right = _taken(left, right)
        found = sparse_product(left, right)
        if not len(self._new):
            return found
        more = self._new.scores(searched_NF, most)
        is_old = ~np.isin(found.indices, self._new_labels)
        texts = np.concatenate([row_of_entries(found)[is_old], row_of_entries(more)])
        labels = np.concatenate([found.indices[is_old], self._new_labels[more.indices]])
        data = np.concatenate([found.data[is_old], more.data])
        order = np.lexsort((labels, texts))
        return csr_from_counts(data[order], labels[order], np.bincount(texts, minlength=found.shape[0]), len(self))

    def _kept(self, searched_NF: sparse.csr_array, most: int) -> sparse.csr_array:
        """The words that at most so many labels have."""
        columns = searched_NF.indices
        rare = (columns < HALF) & (self._weights.frequencies_F[columns] <= most)
        counts = np.bincount(row_of_entries(searched_NF)[rare], minlength=searched_NF.shape[0])
        return csr_from_counts(searched_NF.data[rare], columns[rare], counts, NUM_COLUMNS)

    def add(self, texts: Sequence[str]) -> None:
        """Append label texts."""
        self._new.add(texts)
        first = len(self._texts)
        self._new_labels = np.append(self._new_labels, np.arange(first, first + len(texts), dtype=np.int32))
        self._texts.extend(texts)

    def rename(self, row: int, text: str) -> None:
        """Replace a label text."""
        renamed = np.flatnonzero(self._new_labels == row)
        if len(renamed):
            self._new.rename(int(renamed[0]), text)
        else:
            self._new.add([text])
            self._new_labels = np.append(self._new_labels, np.int32(row))
        self._texts[row] = text

    def save(self, folder: Path) -> None:
        """Write the lists: as they are, or of all texts anew where some have changed."""
        if len(self._new):
            ReadWords(self._texts, self._weights.reading, folder).write_lists(folder, self._weights.idf)
            return
        for name in FILES:
            link_file(self._folder / name, folder / name)


def _taken(left_NF: sparse.csr_array, right_FL: sparse.csr_array) -> tuple[sparse.csr_array, sparse.csr_array]:
    """The same factors with those rows of the right one that the left one asks for, and starts of 32 bits."""
    rows, columns = np.unique(left_NF.indices, return_inverse=True)
    lengths = right_FL.indptr[rows + 1] - right_FL.indptr[rows]
    entries = places(right_FL.indptr[rows], lengths)
    starts = np.append(0, np.cumsum(lengths)).astype(np.int32)
    shape = (len(rows), right_FL.shape[1])
    right = unchecked_csr(right_FL.data[entries], right_FL.indices[entries], starts, shape)
    arrays = left_NF.data, columns.astype(np.int32), left_NF.indptr
    return unchecked_csr(*arrays, (left_NF.shape[0], len(rows))), right
