"""The lexical part of a score: words and character n-grams that a text shares with the texts of a label.

It reads nothing but the texts, so it also finds labels without training texts. A feature is a hashed column. Words have
the first half of the columns, n-grams the second. Of several texts of a label, in any language, the one that shares
most counts.

Formula, for words (and likewise for n-grams), with idf_f = 1 + ln((1 + L) / (1 + n_f)) and n_f labels that have f::

    overlap(x, l)  = sum over f in both of idf_f^2 / (|x| |l|)       |.| the norm of the idf values
    coverage(x, l) = sum over f in both of idf_f^2 / |l|^2           the share of the label that the text has

Shapes: N texts, K candidates, L labels, T further texts of labels, F columns, P pairs of a text and a row.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError
from scipy import sparse

from unidex import native
from unidex.data.concepts import Concepts, further_texts
from unidex.errors import ModelError
from unidex.features.codepoints import read_texts
from unidex.features.words import normal_form
from unidex.scoring.label_matches import LabelMatches
from unidex.scoring.lexical_columns import HALF, NUM_COLUMNS, OLD_READING, READING, Columns, Reading, WordMemory
from unidex.scoring.lexical_rows import TextRows, shared_features, word_norms
from unidex.sparse_rows import csr_from_counts, row_of_entries, sparse_product, unchecked_csr
from unidex.storage.small_numbers import has_numbers, load_numbers, save_numbers
from unidex.topk import TopK

# The rarest words of a text that find candidates: the time of a search does not grow with the length of a text.
_MAX_SEARCHED = 256
# Up to so many texts are read word by word.
_FEW = 64
_ROWS_AT_ONCE = 1 << 15  # of labels, so that what a step needs does not grow with their number
# A word that more labels have finds no candidates.
_MAX_LABELS, _MAX_SHARE = 100, 0.005
_FURTHER = "further_"  # files of further texts
_READING = "reading.json"

_NO_FURTHER = (np.empty(0, dtype=np.int32), np.zeros(1, dtype=np.int64)), np.empty(0, dtype=np.int64)


class LexicalPart:
    """The words and n-grams of all label texts.

    >>> part = LexicalPart.of(["sea turtles", "turtle soup", "mountains"])
    >>> rows = part.rows(["A sea turtle at sea"])
    >>> part.overlaps(rows, np.array([[0, 1, 2]]))["word_coverage"].astype(float).round(2).tolist()
    [[0.61, 0.37, 0.0]]
    >>> part.search(rows, 2).ids.tolist()
    [[0, 1]]
    >>> from unidex.data.concepts import Concept, Term
    >>> part = LexicalPart.of(["fish", "mountains"], {0: Concept(texts=(Term("sea food"), Term("Fisch", "de")))})
    >>> part.overlaps(part.rows(["Frischer Fisch"]), np.array([[0, 1]]))["word_coverage"].tolist()
    [[1.0, 0.0]]
    """

    def __init__(
        self,
        frequencies_F: NDArray[np.int32],
        num_counted: int,
        label_columns: Columns,
        further_columns: Columns,
        further_labels: NDArray[np.int64],
        reading: Reading,
        matches: LabelMatches | None = None,
    ) -> None:
        self._reading = reading
        self.matches = matches  # None in models of earlier versions
        self._frequencies_F, self._num_counted = frequencies_F, num_counted
        self._labels_LF = self._weighted(*label_columns)
        self._further_TF = self._weighted(*further_columns)
        self._further_labels = further_labels  # the label of each further text, ascending
        self._memory = WordMemory(reading)

    @classmethod
    def of(
        cls, label_texts: Sequence[str], concepts: Concepts | None = None, reading: Reading = READING
    ) -> LexicalPart:
        """The part over the texts of labels, and their further texts."""
        own = reading.columns_of(label_texts)
        texts, labels = further_texts(concepts or {})
        further = reading.columns_of(texts)
        frequencies = np.bincount(own[0], minlength=NUM_COLUMNS)
        if texts:
            # A label has a feature once, in however many of its texts.
            pairs = [_label_features(own, np.arange(len(label_texts))), _label_features(further, labels)]
            frequencies = np.bincount(np.unique(np.concatenate(pairs)) % NUM_COLUMNS, minlength=NUM_COLUMNS)
        matches = LabelMatches.of(label_texts, concepts, reading)
        return cls(frequencies.astype(np.int32), len(label_texts), own, further, labels, reading, matches)

    @property
    def num_labels(self) -> int:
        """Number of labels."""
        return int(self._labels_LF.shape[0])

    def rows(self, texts: Sequence[str]) -> sparse.csr_array:
        """The rows of texts, N x F; features that no label has are left out."""
        if native.kernels is not None:
            read = self._reading.analysed(texts)
            of_columns = self.idf_of_columns, self._frequencies_F, self._reading.beginning
            found = read_texts(native.kernels.lexical_rows, [[normal_form(text) for text in read]], *of_columns)
            starts, columns, weights = map(np.frombuffer, found, (np.int32, np.int32, np.float32))
            return unchecked_csr(weights, columns, starts, (len(texts), NUM_COLUMNS))
        if len(texts) <= _FEW:
            columns, counts = self._memory.occurrences(texts)
        else:
            columns, ends = self._reading.columns_of(texts)
            counts = np.diff(ends)
        keys = np.unique(np.repeat(np.arange(len(texts)), counts) * NUM_COLUMNS + columns)
        keys = keys[self._frequencies_F[keys % NUM_COLUMNS] > 0]
        firsts = np.searchsorted(keys, np.arange(len(texts) + 1) * NUM_COLUMNS)
        return self._weighted((keys % NUM_COLUMNS).astype(np.int32), firsts)

    def overlaps(self, rows_NF: sparse.csr_array, ids_NK: NDArray[np.int64]) -> dict[str, NDArray[np.float32]]:
        """What texts share with their candidates: ``word_overlap``, ``char_overlap`` and ``word_coverage``, N x K."""
        num_texts, num_candidates = ids_NK.shape
        pairs = np.repeat(np.arange(num_texts), num_candidates), ids_NK.ravel()
        found = shared_features(rows_NF, self.idf_of_columns, self._label_rows, *pairs)
        if len(self._further_labels):
            self._add_further(found, rows_NF, *pairs)
        # Trees tell a gap of 1e-7 from one of 0: labels that a text covers equally must have equal numbers.
        rounded = found.round(6).astype(np.float32).reshape(num_texts, num_candidates, 3)
        return {name: rounded[:, :, at] for at, name in enumerate(("word_overlap", "char_overlap", "word_coverage"))}

    def _add_further(
        self,
        found_P3: NDArray[np.float64],
        rows_NF: sparse.csr_array,
        texts_P: NDArray[np.int64],
        labels_P: NDArray[np.int64],
    ) -> None:
        """Raise what texts share with labels to what they share with the best of the further texts."""
        starts, ends = (np.searchsorted(self._further_labels, labels_P, side=side) for side in ("left", "right"))
        pairs = np.flatnonzero(ends > starts)
        counts = (ends - starts)[pairs]
        firsts = np.cumsum(counts) - counts
        rows = np.repeat(starts[pairs] - firsts, counts) + np.arange(int(counts.sum()))
        found = shared_features(
            rows_NF, self.idf_of_columns, self._further_rows, np.repeat(texts_P[pairs], counts), rows
        )
        if len(pairs):
            found_P3[pairs] = np.maximum(found_P3[pairs], np.maximum.reduceat(found, firsts))

    @property
    def only_texts(self) -> TextRows | None:
        """The one text of each label; None where a label has further ones."""
        return None if len(self._further_labels) else self._label_rows

    @cached_property
    def _label_rows(self) -> TextRows:
        return self._described(self._labels_LF)

    @cached_property
    def _further_rows(self) -> TextRows:
        return self._described(self._further_TF)

    def _described(self, rows: sparse.csr_array) -> TextRows:
        counts, norms = [np.empty(0, dtype=np.int64)], [np.empty(0)]
        for first in range(0, rows.shape[0], _ROWS_AT_ONCE):
            own = rows[first : first + _ROWS_AT_ONCE]
            words_so_far = np.append(0, np.cumsum(own.indices < HALF))
            counts.append(np.diff(words_so_far[own.indptr]))
            norms.append(word_norms(own, self.idf_of_columns))
        joined = np.concatenate(norms)
        return TextRows(rows, np.concatenate(counts), np.where(joined > 0, joined, 1))

    @cached_property
    def idf_of_columns(self) -> NDArray[np.float64]:
        """The idf of each column."""
        frequencies_F = np.minimum(self._frequencies_F, self._num_counted)
        idf: NDArray[np.float64] = 1 + np.log((1 + self._num_counted) / (1 + frequencies_F))
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
        scores = sparse_product(self.searched_words(rows_NF), self.labels_by_word)
        if len(self._further_labels):
            scores = self._by_label(scores)
        if hidden_L is not None:
            scores.data[hidden_L[scores.indices]] = 0
            scores.eliminate_zeros()
        return TopK.from_csr(scores, k)

    @staticmethod
    def searched_words(rows_NF: sparse.csr_array) -> sparse.csr_array:
        """The words of texts that find candidates."""
        return _rarest_words(rows_NF, _MAX_SEARCHED)

    @cached_property
    def labels_by_word(self) -> sparse.csr_array:
        """Rare words x labels, and then further texts."""
        rows = self._labels_LF
        if len(self._further_labels):
            rows = sparse.vstack([rows, self._further_TF], format="csr")
        labels = rows.tocoo()
        most = max(_MAX_LABELS, int(_MAX_SHARE * self.num_labels))
        rare = (labels.col < HALF) & (self._frequencies_F[labels.col] <= most)
        entries = (labels.data[rare], (labels.col[rare], labels.row[rare]))
        return sparse.csr_array(entries, shape=(NUM_COLUMNS, rows.shape[0]))

    def _by_label(self, scores: sparse.csr_array) -> sparse.csr_array:
        """The highest score of the texts of each label, from the scores of labels and further texts."""
        labels = np.concatenate([np.arange(self.num_labels), self._further_labels])[scores.indices]
        texts = row_of_entries(scores)
        order = np.lexsort((-scores.data, labels, texts))
        texts, labels, data = texts[order], labels[order], scores.data[order]
        best = np.append(True, (texts[1:] != texts[:-1]) | (labels[1:] != labels[:-1]))[: len(data)]
        counts = np.bincount(texts[best], minlength=scores.shape[0])
        return csr_from_counts(data[best], labels[best], counts, self.num_labels)

    def add(self, label_texts: Sequence[str], concepts: Concepts | None = None) -> None:
        """Append labels. The weights of the others do not change: only features that no label had become known.

        Args:
            label_texts: their texts.
            concepts: place among these labels -> its concept.
        """
        texts, labels = further_texts(concepts or {})
        self._know(own := self._reading.columns_of(label_texts))
        self._know(further := self._reading.columns_of(texts))
        self._further_labels = np.concatenate([self._further_labels, self.num_labels + labels])
        self._further_TF = sparse.vstack([self._further_TF, self._weighted(*further)], format="csr")
        self._set(sparse.vstack([self._labels_LF, self._weighted(*own)], format="csr"))
        if self.matches is not None:
            self.matches.add(label_texts, concepts)

    def _know(self, columns: Columns) -> None:
        new = np.unique(columns[0])
        self._frequencies_F = self._frequencies_F.copy()
        self._frequencies_F[new] = np.maximum(self._frequencies_F[new], 1)
        self.__dict__.pop("idf_of_columns", None)

    def rename(self, label: int, text: str) -> None:
        """Give a label another text; its further texts stay."""
        self._know(own := self._reading.columns_of([text]))
        rows = np.arange(self.num_labels)
        rows[label] = len(rows)
        self._set(sparse.vstack([self._labels_LF, self._weighted(*own)], format="csr")[rows])
        if self.matches is not None:
            self.matches.rename(label, text)

    def _set(self, labels_LF: sparse.csr_array) -> None:
        self._labels_LF = labels_LF
        for name in ("labels_by_word", "_label_rows", "_further_rows"):
            self.__dict__.pop(name, None)

    def save(self, folder: Path) -> None:
        """Write the columns of all labels; weights follow from them."""
        folder.mkdir(parents=True)
        save_numbers(folder / "frequencies", self._frequencies_F)
        save_numbers(folder / "num_counted", np.array([self._num_counted]))
        (folder / _READING).write_text(json.dumps(self._reading.as_dict()) + "\n", encoding="utf-8")
        for prefix, rows in (("", self._labels_LF), (_FURTHER, self._further_TF)):
            if not prefix or rows.shape[0]:
                save_numbers(folder / f"{prefix}columns", rows.indices.astype(np.int32))
                save_numbers(folder / f"{prefix}starts", rows.indptr.astype(np.int64))
        if len(self._further_labels):
            save_numbers(folder / f"{_FURTHER}labels", self._further_labels)
        if self.matches is not None:
            self.matches.save(folder)

    @classmethod
    def load(cls, folder: Path, num_labels: int) -> LexicalPart:
        """Read what ``save`` wrote."""
        frequencies = load_numbers(folder / "frequencies", (NUM_COLUMNS,), np.int32)
        num_counted = int(load_numbers(folder / "num_counted", (1,), np.int64)[0])
        if not 0 <= num_counted < 2**31 or (frequencies < 0).any():
            raise ModelError(f"{folder}: texts must be counted from 0, but are not; copy the model again")
        reading = _read_reading(folder / _READING)
        matches = LabelMatches.load(folder, num_labels, reading)
        file = folder / f"{_FURTHER}labels"
        if not has_numbers(file):
            return cls(frequencies, num_counted, _loaded(folder, "", num_labels), *_NO_FURTHER, reading, matches)
        labels = load_numbers(file, (None,), np.int64)
        if (np.diff(labels, prepend=0) < 0).any() or labels[-1] >= num_labels:
            raise ModelError(f"{file}: labels must ascend and be below {num_labels}, but do not; copy it again")
        further = _loaded(folder, _FURTHER, len(labels))
        return cls(frequencies, num_counted, _loaded(folder, "", num_labels), further, labels, reading, matches)

    def _weighted(self, columns: NDArray[np.int32], starts: NDArray[np.int64]) -> sparse.csr_array:
        """Rows of norm 1 for words and of norm 1 for n-grams."""
        num_rows, weights = len(starts) - 1, np.empty(len(columns), dtype=np.float32)
        for first in range(0, num_rows, _ROWS_AT_ONCE):
            own = starts[first : first + _ROWS_AT_ONCE + 1]
            entries = slice(own[0], own[-1])
            idf = self.idf_of_columns[columns[entries]]
            part = 2 * np.repeat(np.arange(len(own) - 1), np.diff(own)) + (columns[entries] >= HALF)
            norms = np.sqrt(np.bincount(part, weights=idf * idf, minlength=2 * len(own) - 2))
            weights[entries] = idf / norms[part]
        index = np.int32 if len(columns) < 2**31 else np.int64
        arrays = (weights, columns.astype(index, copy=False), starts.astype(index, copy=False))
        return unchecked_csr(*arrays, (num_rows, NUM_COLUMNS))


def _rarest_words(rows_NF: sparse.csr_array, max_words: int) -> sparse.csr_array:
    """The rows as they are; of texts with more words, the words of highest idf, those of lower columns first.

    >>> rows = sparse.csr_array(np.array([[0.25, 0.5, 0.5, 0.375], [0.0, 0.25, 0.0, 0.0]], dtype=np.float32))
    >>> _rarest_words(rows, 2).toarray().tolist()
    [[0.0, 0.5, 0.5, 0.0], [0.0, 0.25, 0.0, 0.0]]
    """
    if len(rows_NF.indices) <= max_words or np.diff(rows_NF.indptr).max(initial=0) <= max_words:
        return rows_NF
    words = np.flatnonzero(rows_NF.indices < HALF)
    rows = row_of_entries(rows_NF)[words]
    counts = np.minimum(np.bincount(rows, minlength=rows_NF.shape[0]), max_words)
    order = np.lexsort((-rows_NF.data[words], rows))
    ranks = np.arange(len(rows)) - np.searchsorted(rows, rows)
    kept = np.sort(words[order[ranks < max_words]])
    return csr_from_counts(rows_NF.data[kept], rows_NF.indices[kept], counts, rows_NF.shape[1])


def _label_features(columns: Columns, labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """One number per label and feature of its texts."""
    features: NDArray[np.int64] = np.repeat(labels, np.diff(columns[1])) * NUM_COLUMNS + columns[0]
    return features


def _read_reading(file: Path) -> Reading:
    if not file.exists():
        return OLD_READING
    try:
        return Reading.read(json.loads(file.read_bytes()))
    except ValueError as error:
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
        raise ModelError(f"{file}: it must say what is read of texts, but {reason}; copy it again") from None


def _loaded(folder: Path, prefix: str, num_rows: int) -> Columns:
    starts = load_numbers(folder / f"{prefix}starts", (num_rows + 1,), np.int64)
    columns = load_numbers(folder / f"{prefix}columns", (int(starts[-1]),), np.int32)
    if (np.diff(starts) < 0).any() or (len(columns) and not 0 <= columns.min() <= columns.max() < NUM_COLUMNS):
        raise ModelError(f"{folder}: the columns of labels must be below {NUM_COLUMNS}, but are not; copy it again")
    return columns, starts
