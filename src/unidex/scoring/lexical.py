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
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError
from scipy import sparse

from unidex.data.concepts import Concepts, further_texts
from unidex.errors import ModelError
from unidex.scoring.column_weights import ColumnWeights
from unidex.scoring.label_words import LabelWords
from unidex.scoring.lexical_columns import HALF, NUM_COLUMNS, OLD_READING, READING, Columns, Reading
from unidex.scoring.lexical_rows import TextRows, shared_features
from unidex.scoring.mapped_matches import MAPPED_ABOVE, load_matches, matches_of
from unidex.scoring.mapped_words import MappedWords, ReadWords
from unidex.scoring.match_finder import MatchFinder
from unidex.sparse_rows import csr_from_counts, row_of_entries
from unidex.storage.small_numbers import has_numbers, load_numbers, save_numbers
from unidex.topk import TopK

# The rarest words of a text that find candidates: the time of a search does not grow with the length of a text.
_MAX_SEARCHED = 256
# A word that more labels have finds no candidates.
_MAX_LABELS, _MAX_SHARE = 100, 0.005
_FURTHER = "further_"  # files of further texts
_READING = "reading.json"
_NO_COLUMNS = np.empty(0, dtype=np.int32), np.zeros(1, dtype=np.int64)
_NO_LABELS = np.empty(0, dtype=np.int64)


class LexicalPart:
    """The words and n-grams of all label texts.

    Args:
        weights: of columns.
        labels: the words of the own texts of labels, in memory or, of very many labels, in files.
        further: the words of further texts.
        further_labels: the label of each further text, ascending.
        matches: finds labels of which a text has every word; None in models of earlier versions.

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
        weights: ColumnWeights,
        labels: LabelWords | MappedWords,
        further: LabelWords,
        further_labels: NDArray[np.int64],
        matches: MatchFinder | None = None,
    ) -> None:
        self._weights, self._labels, self.matches = weights, labels, matches
        self._further, self._further_labels = further, further_labels

    @classmethod
    def of(
        cls,
        label_texts: Sequence[str],
        concepts: Concepts | None = None,
        reading: Reading = READING,
        *,
        scratch: Path | None = None,
    ) -> LexicalPart:
        """The part over the texts of labels, and their further texts.

        Of very many labels, it is in files in ``scratch`` until it is saved.
        """
        texts, labels = further_texts(concepts or {})
        further, number = reading.columns_of(texts), len(label_texts)
        words = ReadWords(label_texts, reading, scratch) if number > MAPPED_ABOVE else None
        own = _NO_COLUMNS if words is not None else reading.columns_of(label_texts)
        frequencies = np.bincount(own[0], minlength=NUM_COLUMNS) if words is None else words.frequencies_F.copy()
        if texts:
            # A label has a feature once, in however many of its texts.
            with_more = np.unique(labels)
            of_own = reading.columns_of([label_texts[label] for label in with_more.tolist()])
            features = np.unique(_label_features(further, labels))
            new = np.setdiff1d(features, _label_features(of_own, with_more), assume_unique=True)
            frequencies += np.bincount(new % NUM_COLUMNS, minlength=NUM_COLUMNS)
        weights = ColumnWeights(frequencies.astype(np.int32), number, reading)
        matches = matches_of(label_texts, concepts, reading, scratch=scratch)
        label_words = (
            LabelWords(own, weights) if words is None else MappedWords.of(words, label_texts, weights, scratch)
        )
        return cls(weights, label_words, LabelWords(further, weights), labels, matches)

    @property
    def num_labels(self) -> int:
        """Number of labels."""
        return len(self._labels)

    @property
    def idf_of_columns(self) -> NDArray[np.float64]:
        """The idf of each column."""
        return self._weights.idf

    def rows(self, texts: Sequence[str]) -> sparse.csr_array:
        """The rows of texts, N x F; features that no label has are left out."""
        return self._weights.rows(texts)

    def overlaps(self, rows_NF: sparse.csr_array, ids_NK: NDArray[np.int64]) -> dict[str, NDArray[np.float32]]:
        """What texts share with their candidates: ``word_overlap``, ``char_overlap`` and ``word_coverage``, N x K."""
        num_texts, num_candidates = ids_NK.shape
        pairs = np.repeat(np.arange(num_texts), num_candidates), ids_NK.ravel()
        label_rows, places = self._labels.rows_of(pairs[1])
        found = shared_features(rows_NF, self.idf_of_columns, label_rows, pairs[0], places)
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
        texts = np.repeat(texts_P[pairs], counts)
        found = shared_features(rows_NF, self.idf_of_columns, self._further.described, texts, rows)
        if len(pairs):
            found_P3[pairs] = np.maximum(found_P3[pairs], np.maximum.reduceat(found, firsts))

    @property
    def only_texts(self) -> TextRows | None:
        """The one text of each label; None where a label has further ones, or where they are not in memory."""
        if len(self._further_labels) or not isinstance(self._labels, LabelWords):
            return None
        return self._labels.described

    @property
    def has_further_texts(self) -> bool:
        """Whether a label has several texts."""
        return bool(len(self._further_labels))

    def rows_of(self, labels: NDArray[np.int64]) -> TextRows:
        """The own texts of labels."""
        assert isinstance(self._labels, MappedWords)
        return self._labels.rows_at(labels)

    def sizes(self, ids_NK: NDArray[np.int64]) -> NDArray[np.float32]:
        """The number of words and n-grams of labels."""
        return self._labels.sizes(ids_NK)

    def search(self, rows_NF: sparse.csr_array, k: int, hidden_L: NDArray[np.bool_] | None = None) -> TopK:
        """The k labels of each text with the highest overlap of rare words; fewer where fewer share one.

        Args:
            rows_NF: rows of texts.
            k: number of places.
            hidden_L: labels that must not be returned; None where all may be.
        """
        searched, found = self.searched_words(rows_NF), []
        for texts in self._labels.text_blocks(searched, self._most_labels):
            some = searched if texts.stop - texts.start == searched.shape[0] else searched[texts]
            scores = self._labels.scores(some, self._most_labels)
            if len(self._further_labels):
                scores = self._by_label(scores, self._further.scores(some, self._most_labels))
            if hidden_L is not None:
                scores.data[hidden_L[scores.indices]] = 0
                scores.eliminate_zeros()
            found.append(TopK.from_csr(scores, k))
        return found[0] if len(found) == 1 else TopK.concatenate(found)

    @property
    def _most_labels(self) -> int:
        """Labels that a word may have which finds candidates."""
        return max(_MAX_LABELS, int(_MAX_SHARE * self.num_labels))

    @property
    def labels_by_word(self) -> sparse.csr_array | None:
        """Rare words x labels; None where they are not in memory."""
        return self._labels.by_word(self._most_labels) if isinstance(self._labels, LabelWords) else None

    @staticmethod
    def searched_words(rows_NF: sparse.csr_array) -> sparse.csr_array:
        """The words of texts that find candidates."""
        return _rarest_words(rows_NF, _MAX_SEARCHED)

    def _by_label(self, own_NL: sparse.csr_array, further_NT: sparse.csr_array) -> sparse.csr_array:
        """The highest score of the texts of each label, from the scores of own and further texts."""
        labels = np.concatenate([own_NL.indices, self._further_labels[further_NT.indices]])
        texts = np.concatenate([row_of_entries(own_NL), row_of_entries(further_NT)])
        data = np.concatenate([own_NL.data, further_NT.data])
        order = np.lexsort((-data, labels, texts))
        texts, labels, data = texts[order], labels[order], data[order]
        best = np.append(True, (texts[1:] != texts[:-1]) | (labels[1:] != labels[:-1]))[: len(data)]
        counts = np.bincount(texts[best], minlength=own_NL.shape[0])
        return csr_from_counts(data[best], labels[best], counts, self.num_labels)

    def add(self, label_texts: Sequence[str], concepts: Concepts | None = None) -> None:
        """Append labels. The weights of the others do not change: only features that no label had become known.

        Args:
            label_texts: their texts.
            concepts: place among these labels -> its concept.
        """
        texts, labels = further_texts(concepts or {})
        self._further_labels = np.concatenate([self._further_labels, self.num_labels + labels])
        self._labels.add(label_texts)
        self._further.add(texts)
        if self.matches is not None:
            self.matches.add(label_texts, concepts)

    def rename(self, label: int, text: str) -> None:
        """Give a label another text; its further texts stay."""
        self._labels.rename(label, text)
        if self.matches is not None:
            self.matches.rename(label, text)

    def save(self, folder: Path) -> None:
        """Write the words of all labels; weights follow from them."""
        folder.mkdir(parents=True)
        save_numbers(folder / "frequencies", self._weights.frequencies_F)
        save_numbers(folder / "num_counted", np.array([self._weights.num_counted]))
        (folder / _READING).write_text(json.dumps(self._weights.reading.as_dict()) + "\n", encoding="utf-8")
        self._labels.save(folder)
        if len(self._further_labels):
            self._further.save(folder, _FURTHER)
            save_numbers(folder / f"{_FURTHER}labels", self._further_labels)
        if self.matches is not None:
            self.matches.save(folder)

    @classmethod
    def load(cls, folder: Path, label_texts: Sequence[str]) -> LexicalPart:
        """Read what ``save`` wrote, of the labels with these texts."""
        num_labels = len(label_texts)
        frequencies = load_numbers(folder / "frequencies", (NUM_COLUMNS,), np.int32)
        num_counted = int(load_numbers(folder / "num_counted", (1,), np.int64)[0])
        if not 0 <= num_counted < 2**31 or (frequencies < 0).any():
            raise ModelError(f"{folder}: texts must be counted from 0, but are not; copy the model again")
        reading = _read_reading(folder / _READING)
        weights = ColumnWeights(frequencies, num_counted, reading)
        matches = load_matches(folder, num_labels, reading)
        words: LabelWords | MappedWords
        if MappedWords.is_in(folder):
            words = MappedWords(folder, label_texts, weights)
        else:
            words = LabelWords.load(folder, num_labels, weights)
        file = folder / f"{_FURTHER}labels"
        if not has_numbers(file):
            return cls(weights, words, LabelWords(_NO_COLUMNS, weights), _NO_LABELS, matches)
        labels = load_numbers(file, (None,), np.int64)
        if (np.diff(labels, prepend=0) < 0).any() or labels[-1] >= num_labels:
            raise ModelError(f"{file}: labels must ascend and be below {num_labels}, but do not; copy it again")
        return cls(weights, words, LabelWords.load(folder, len(labels), weights, _FURTHER), labels, matches)


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
