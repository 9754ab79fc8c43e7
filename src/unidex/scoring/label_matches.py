"""Matches: labels of which a text has every word, where and how often it has them, and how often that was right.

A label matches a text if all words of one of its texts occur there, in any order. A qualifier in brackets, as in
"mercury (planet)", need not occur. Of several texts of a label that match, the one with the most words counts, then the
one that occurs most often::

    count(x, l) = the smallest number of occurrences in x of a word of l
    first(x, l) = the largest share of x that stands before the first occurrence of a word of l
    rate(l)     = (right_l + c r) / (matched_l + c)       r = sum of right_l / sum of matched_l, c = 3

where matched_l training texts match l, and right_l of these have it.

Shapes: N texts, L labels, R texts of labels, U distinct words of them, M matches.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex import native
from unidex.data.concepts import Concepts, further_texts
from unidex.data.dataset import Split
from unidex.errors import ModelError
from unidex.features.codepoints import codes_of, read_texts
from unidex.features.hash_keys import keys_of_strings, mix, places, starts_of_keys
from unidex.features.word_strings import fold, words_in
from unidex.features.words import WORD_SEED, Words, normal_form
from unidex.scoring.lexical_columns import READING, Reading
from unidex.scoring.matches import MATCHES, Matches
from unidex.sparse_rows import csr_from_counts, find_entries, find_sorted, row_of_entries, unchecked_csr
from unidex.storage.small_numbers import has_numbers, load_numbers, save_numbers
from unidex.topk import TopK

MAX_LEARNED = 20_000  # training texts in which matches are counted
_SMOOTHING = 3.0
_TEXTS_AT_ONCE = 1000
_MAX_WORDS = 100_000  # remembered
_QUALIFIER = re.compile(r"\s*\([^()]*\)")


class LabelMatches:
    """Finds the labels that match texts.

    >>> labels = LabelMatches.of(["sea turtles", "mercury (planet)", "sea"])
    >>> matches = labels.find(["The sea: mercury, sea and turtles"])
    >>> matches.places_NL.indices.tolist(), matches.counts_M.tolist()
    ([0, 1, 2], [1.0, 1.0, 2.0])
    """

    def __init__(
        self,
        keys: NDArray[np.uint64],
        starts_R: NDArray[np.int64],
        labels_R: NDArray[np.int64],
        texts_2L: NDArray[np.int64],
        reading: Reading,
    ) -> None:
        self._keys, self._starts_R, self._labels_R = keys, starts_R, labels_R
        self._texts_2L = texts_2L  # training texts that match a label, and those of them that have it
        self._reading = reading
        self._known: dict[str, int] = {}

    @classmethod
    def of(
        cls, label_texts: Sequence[str], concepts: Concepts | None = None, reading: Reading = READING
    ) -> LabelMatches:
        """The words of the texts of labels and of their further texts."""
        further, labels = further_texts(concepts or {})
        keys, starts = _keys_of([*label_texts, *further], reading)
        labels_R = np.concatenate([np.arange(len(label_texts)), labels])
        return cls(keys, starts, labels_R, np.zeros((2, len(label_texts)), dtype=np.int64), reading)

    @property
    def num_labels(self) -> int:
        """Number of labels."""
        return int(self._texts_2L.shape[1])

    def learn(self, split: Split, rows: NDArray[np.int64]) -> None:
        """Count in how many more of the training texts at these rows each label matches, and in how many it is right.

        Of very many texts, evenly spread ones are read.
        """
        if len(rows) > MAX_LEARNED:
            rows = rows[np.linspace(0, len(rows) - 1, MAX_LEARNED).astype(np.int64)]
        for start in range(0, len(rows), _TEXTS_AT_ONCE):
            some = split.take(rows[start : start + _TEXTS_AT_ONCE])
            found, own = self.find(list(some.texts)).places_NL, some.positives
            keys, true_keys = (row_of_entries(rows, np.int64) * self.num_labels + rows.indices for rows in (found, own))
            is_right = find_sorted(np.sort(true_keys), keys)[1]
            for counts_L, labels in zip(self._texts_2L, (found.indices, found.indices[is_right]), strict=True):
                counts_L += np.bincount(labels, minlength=self.num_labels)
        self.__dict__.pop("_rates", None)

    @property
    def of_labels(self) -> tuple[NDArray[Any], ...]:
        """Words and ambiguity of each row, rate and matching training texts of each label, as kernels read them."""
        return self._num_words, self._ambiguities, self._rates, self._texts_2L[0]

    @cached_property
    def _rates(self) -> NDArray[np.float32]:
        matched_L, right_L = self._texts_2L
        mean = right_L.sum() / max(1, matched_L.sum())
        rates: NDArray[np.float32] = ((right_L + _SMOOTHING * mean) / (matched_L + _SMOOTHING)).astype(np.float32)
        return rates

    def find(self, texts: Sequence[str]) -> Matches:
        """The labels that match texts."""
        texts = self._reading.analyser.texts(texts)
        if native.kernels is not None:
            return self._find_by_kernel([normal_form(text) for text in texts])
        words_of_texts = [words_in(text) for text in texts]
        columns_of_words = self._columns_of(set().union(*words_of_texts))
        occurrences = [_occurrences(words, columns_of_words) for words in words_of_texts]
        counts_N = np.fromiter(map(len, occurrences), dtype=np.int64, count=len(texts))
        flat = np.array([entry for entries in occurrences for entry in entries], dtype=np.float64).reshape(-1, 3)
        columns, texts_E = flat[:, 0].astype(np.int64), np.repeat(np.arange(len(texts)), counts_N)
        rows, firsts_of_rows = self._rows_by_rarest
        lengths = firsts_of_rows[columns + 1] - firsts_of_rows[columns]
        pair_rows, pair_texts = rows[places(firsts_of_rows[columns], lengths)], np.repeat(texts_E, lengths)
        if not len(pair_rows):
            return self._matches(len(texts), pair_texts, pair_rows, flat[:0, 1], flat[:0, 2])
        # All words of each pair's row, looked up among those of its text.
        num_words = self._num_words[pair_rows]
        wanted = self._columns[places(self._starts_R[pair_rows], num_words)]
        num_columns = len(self._words)
        found, is_there = find_sorted(
            texts_E * num_columns + columns, np.repeat(pair_texts, num_words) * num_columns + wanted
        )
        starts = np.cumsum(num_words) - num_words
        whole = np.logical_and.reduceat(is_there, starts)
        counts = np.minimum.reduceat(flat[found, 1], starts)
        firsts = np.maximum.reduceat(flat[found, 2], starts)
        return self._matches(len(texts), pair_texts[whole], pair_rows[whole], counts[whole], firsts[whole])

    def _find_by_kernel(self, texts: list[str]) -> Matches:
        found = read_texts(native.kernels.find_matches, [texts], *self._of_kernel)
        starts, labels, rows = (np.frombuffer(part, np.int32) for part in found[:3])
        counts, firsts = (np.frombuffer(part, np.float32) for part in found[3:])
        places_NL = unchecked_csr(np.arange(len(labels)), labels, starts, (len(texts), self.num_labels))
        return Matches(places_NL, counts, firsts, rows)

    def _matches(
        self,
        num_texts: int,
        texts: NDArray[np.int64],
        rows: NDArray[np.int64],
        counts: NDArray[np.float64],
        firsts: NDArray[np.float64],
    ) -> Matches:
        """The best row of each text and label."""
        labels = self._labels_R[rows]
        order = np.lexsort((rows, -counts, -self._num_words[rows], labels, texts))
        texts, labels = texts[order], labels[order]
        best = np.append(True, (texts[1:] != texts[:-1]) | (labels[1:] != labels[:-1]))[: len(texts)]
        chosen = order[best]
        counts_N = np.bincount(texts[best], minlength=num_texts)
        places_NL = csr_from_counts(np.arange(len(chosen)), labels[best], counts_N, self.num_labels)
        return Matches(places_NL, counts[chosen].astype(np.float32), firsts[chosen].astype(np.float32), rows[chosen])

    def _columns_of(self, words: set[str]) -> dict[str, int]:
        """The column of each word, and perhaps of others; -1 where no label has it."""
        known = self._known if len(self._known) < _MAX_WORDS else {}
        if new := [word for word in words if word not in known]:
            letters = [fold(word) for word in new]
            lengths = np.fromiter(map(len, letters), dtype=np.int64, count=len(letters))
            keys = keys_of_strings(codes_of("".join(letters)), lengths, WORD_SEED)
            columns, is_there = find_sorted(self._words, keys)
            # A new one, never changed: other threads may still read the old one.
            known = self._known = known | dict(zip(new, np.where(is_there, columns, -1).tolist(), strict=True))
        return known

    @cached_property
    def _of_kernel(self) -> tuple[NDArray[Any], ...]:
        """What the kernel needs to know of labels."""
        words = self._words, starts_of_keys(self._words)
        return (*words, self._columns, self._starts_R, self._labels_R, *self._rows_by_rarest)

    @cached_property
    def _words(self) -> NDArray[np.uint64]:
        return np.unique(self._keys)

    @cached_property
    def _columns(self) -> NDArray[np.int64]:
        """The column of each word of each row."""
        return np.searchsorted(self._words, self._keys)

    @cached_property
    def _num_words(self) -> NDArray[np.int64]:
        return np.diff(self._starts_R)

    @cached_property
    def _rows_by_rarest(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows in the order of the column of their rarest word, and where those of a column start."""
        frequencies_U = np.bincount(self._columns, minlength=len(self._words))
        rows = np.repeat(np.arange(len(self._num_words)), self._num_words)
        order = np.lexsort((self._columns, frequencies_U[self._columns], rows))
        rarest = self._columns[order[self._starts_R[:-1][self._num_words > 0]]]
        with_words = np.flatnonzero(self._num_words)
        by_column = np.argsort(rarest, kind="stable")
        starts = np.searchsorted(rarest[by_column], np.arange(len(self._words) + 1))
        return with_words[by_column], starts

    @cached_property
    def _ambiguities(self) -> NDArray[np.int64]:
        """The number of labels that have a text of the same words."""
        rows = np.repeat(np.arange(len(self._num_words)), self._num_words)
        sums_R = np.zeros(len(self._num_words), dtype=np.uint64)
        np.add.at(sums_R, rows, mix(self._keys))
        _, words_R = np.unique(sums_R, return_inverse=True)
        labelled = np.unique(words_R.astype(np.int64) * self.num_labels + self._labels_R)
        return np.bincount(labelled // max(1, self.num_labels))[words_R]

    def scores(self, matches: Matches) -> sparse.csr_array:
        """How likely matches are right, N x L: by their rate, and more so the more often they occur."""
        labels = matches.places_NL.indices
        scores = self._rates[labels] * (1 + np.log1p(matches.counts_M[matches.places_NL.data]))
        return unchecked_csr(scores, labels, matches.places_NL.indptr, matches.places_NL.shape)

    def search(self, matches: Matches, k: int, hidden_L: NDArray[np.bool_] | None = None) -> TopK:
        """The k labels of each text whose matches have the highest scores."""
        found = self.scores(matches)
        if hidden_L is not None:
            found.data[hidden_L[found.indices]] = -np.inf
        return TopK.from_csr(found, k)

    def features(
        self, matches: Matches, ids_NK: NDArray[np.int64], room: NDArray[np.float32] | None = None
    ) -> dict[str, NDArray[np.float32]]:
        """The features of pairs of a text and a label, N x K each; 0, 1 or -1 for a label that does not match.

        Where kernels are there, they are written to ``room``, one array after the other.
        """
        places_NL = matches.places_NL
        if native.kernels is not None and ids_NK.size and places_NL.indices.dtype == np.int32:
            found_7NK = np.empty((len(MATCHES), *ids_NK.shape), dtype=np.float32) if room is None else room
            native.kernels.describe_matches(
                *(ids_NK, places_NL.indptr, places_NL.indices, places_NL.data, matches.counts_M, matches.firsts_M),
                *(matches.rows_M, *self.of_labels, found_7NK),
            )
            return dict(zip(MATCHES, found_7NK, strict=True))
        found, is_there = find_entries(places_NL, ids_NK)
        at = places_NL.data[found] if places_NL.nnz else found

        def of(values: NDArray[Any], without: float) -> NDArray[np.float32]:
            if not len(values):
                return np.full(ids_NK.shape, without, dtype=np.float32)
            return np.where(is_there, values[at], without).astype(np.float32)

        per_text = np.diff(places_NL.indptr).astype(np.float32)
        return {
            "match_count": of(matches.counts_M, 0),
            "match_first": of(matches.firsts_M, 1),
            "match_rate": np.where(is_there, self._rates[ids_NK], 0).astype(np.float32),
            "match_texts": np.where(is_there, self._texts_2L[0][ids_NK], -1).astype(np.float32),
            "match_words": of(self._num_words[matches.rows_M], 0),
            "match_ambiguity": of(self._ambiguities[matches.rows_M], 0),
            "num_matches": np.broadcast_to(per_text[:, None], ids_NK.shape),
        }

    def add(self, label_texts: Sequence[str], concepts: Concepts | None = None) -> None:
        """Append labels, of which no training text is known."""
        new = LabelMatches.of(label_texts, concepts, self._reading)
        self._keys = np.concatenate([self._keys, new._keys])
        self._starts_R = np.concatenate([self._starts_R, self._starts_R[-1] + new._starts_R[1:]])
        self._labels_R = np.concatenate([self._labels_R, self.num_labels + new._labels_R])
        self._texts_2L = np.concatenate([self._texts_2L, new._texts_2L], axis=1)
        self._forget()

    def rename(self, label: int, text: str) -> None:
        """Give a label another text; its further texts stay, and its counts start anew."""
        # The own text of a label comes before its further ones.
        row = int(np.flatnonzero(self._labels_R == label)[0])
        start, end = self._starts_R[row : row + 2].tolist()
        keys, _ = _keys_of([text], self._reading)
        self._keys = np.concatenate([self._keys[:start], keys, self._keys[end:]])
        self._starts_R = np.append(self._starts_R[: row + 1], self._starts_R[row + 1 :] + len(keys) - (end - start))
        self._texts_2L[:, label] = 0
        self._forget()

    def _forget(self) -> None:
        """Drop what was computed of the labels as they were."""
        for name in [name for name, value in vars(type(self)).items() if isinstance(value, cached_property)]:
            self.__dict__.pop(name, None)
        self._known = {}

    def save(self, folder: Path) -> None:
        """Write the words of all labels and the counts of training texts."""
        save_numbers(folder / _WORDS, self._words)
        save_numbers(folder / _PLACES, self._columns.astype(np.int64, copy=False))
        for name, values in ((_STARTS, self._starts_R), (_LABELS, self._labels_R), (_TEXTS, self._texts_2L)):
            save_numbers(folder / name, values)

    @classmethod
    def load(cls, folder: Path, num_labels: int, reading: Reading) -> LabelMatches | None:
        """Read what ``save`` wrote; None where a model of an earlier version has no matches."""
        file = folder / _WORDS
        if not has_numbers(file):
            return None
        labels_R = load_numbers(folder / _LABELS, (None,), np.int64)
        starts_R = load_numbers(folder / _STARTS, (len(labels_R) + 1,), np.int64)
        if starts_R[0] or (np.diff(starts_R) < 0).any() or ((labels_R < 0) | (labels_R >= num_labels)).any():
            raise ModelError(f"{folder}: words must be those of {num_labels} labels, but are not; copy the model again")
        keys = load_numbers(file, (None,), np.uint64)
        if has_numbers(folder / _PLACES):
            places = load_numbers(folder / _PLACES, (int(starts_R[-1]),), np.int64)
            if len(places) and not 0 <= places.min() <= places.max() < len(keys):
                raise ModelError(f"{folder / _PLACES}: places must be those of {len(keys)} words; copy the model again")
            keys = keys[places]
        elif len(keys) != starts_R[-1]:
            raise ModelError(f"{file}: there must be {starts_R[-1]} words, but are {len(keys)}; copy the model again")
        texts_2L = load_numbers(folder / _TEXTS, (2, num_labels), np.int64)
        # Labels may be added and renamed: files are not changed.
        return cls(np.array(keys), starts_R, labels_R, np.array(texts_2L), reading)


# Each word once, and its places; in earlier versions the words of all labels one after the other.
_WORDS, _PLACES, _STARTS, _LABELS, _TEXTS = (
    f"match_{name}" for name in ("words", "places", "starts", "labels", "texts")
)


def _occurrences(words: list[str], columns_of_words: dict[str, int]) -> list[tuple[int, int, float]]:
    """Of each word that a label has, by column: its occurrences, and the share of the text before its first one."""
    counts: dict[int, int] = {}
    firsts: dict[int, int] = {}
    for place, word in enumerate(words):
        column = columns_of_words[word]
        if column >= 0:
            counts[column] = counts.get(column, 0) + 1
            firsts.setdefault(column, place)
    return [(column, counts[column], firsts[column] / len(words)) for column in sorted(counts)]


def _keys_of(label_texts: Sequence[str], reading: Reading) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """The distinct words of each text of a label, without qualifiers, and where those of a text start."""
    texts = [_QUALIFIER.sub("", text) or text for text in label_texts]
    words = Words.of(reading.analyser.of_labels.texts(texts))
    keys = words.keys[words.ids]
    order = np.lexsort((keys, words.rows))
    rows, keys = words.rows[order], keys[order]
    is_new = np.append(True, (rows[1:] != rows[:-1]) | (keys[1:] != keys[:-1]))[: len(rows)]
    counts = np.bincount(rows[is_new], minlength=len(texts))
    return keys[is_new], np.append(0, np.cumsum(counts))
