"""The words of texts of labels, and the search for those of which a text has every word.

Shapes: N texts, R texts of labels (rows), U distinct words of them, E words of texts, M matches.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unidex import native
from unidex.features.codepoints import codes_of, read_texts
from unidex.features.hash_keys import keys_of_strings, mix, places, starts_of_keys
from unidex.features.word_strings import fold, words_in
from unidex.features.words import WORD_SEED, Words, normal_form
from unidex.scoring.lexical_columns import Reading
from unidex.scoring.matches import Matches
from unidex.sparse_rows import csr_from_counts, find_sorted, unchecked_csr

_MAX_WORDS = 100_000  # remembered
_TEXTS_AT_ONCE = 1 << 16
_QUALIFIER = re.compile(r"\s*\([^()]*\)")
Keys = tuple[NDArray[np.uint64], NDArray[np.int64]]  # of the words of rows, and where those of a row start


class MatchRows:
    """Rows by their words.

    Args:
        words_U: keys of words, ascending.
        starts_of_words: where the keys with the same first bits start (`starts_of_keys`).
        columns: the place among ``words_U`` of each word of each row.
        starts_R: where the words of a row start.
        labels_R: the label of each row.
        rows: those with words, in the order of the column of their rarest word.
        firsts_U: where the rows of a column start.
    """

    def __init__(
        self,
        words_U: NDArray[np.uint64],
        starts_of_words: NDArray[np.uint32],
        columns: NDArray[np.int32],
        starts_R: NDArray[np.int64],
        labels_R: NDArray[np.int32],
        rows: NDArray[np.int32],
        firsts_U: NDArray[np.int64],
    ) -> None:
        self.words_U, self.columns, self.starts_R, self.labels_R = words_U, columns, starts_R, labels_R
        self.rows, self.firsts_U, self._starts_of_words = rows, firsts_U, starts_of_words
        self._known: dict[str, int] = {}

    @classmethod
    def of(cls, keys: NDArray[np.uint64], starts_R: NDArray[np.int64], labels_R: NDArray[np.integer[Any]]) -> MatchRows:
        """The rows with these words."""
        words_U, columns = np.unique(keys, return_inverse=True)
        columns = columns.reshape(-1)
        num_words = np.diff(starts_R)
        frequencies_U = np.bincount(columns, minlength=len(words_U))
        with_words = np.flatnonzero(num_words)
        rarest = rarest_columns(columns, frequencies_U[columns], starts_R[:-1][with_words])
        order = np.argsort(rarest, kind="stable")
        firsts_U = np.searchsorted(rarest[order], np.arange(len(words_U) + 1))
        arrays = columns.astype(np.int32), starts_R, labels_R.astype(np.int32), with_words[order].astype(np.int32)
        return cls(words_U, starts_of_keys(words_U), *arrays, firsts_U)

    def __len__(self) -> int:
        return len(self.labels_R)

    def num_words(self, rows: NDArray[Any]) -> NDArray[np.int64]:
        """The number of words of rows."""
        rows = rows.astype(np.int64)
        found: NDArray[np.int64] = self.starts_R[rows + 1] - self.starts_R[rows]
        return found

    def keys_of(self, rows: NDArray[Any]) -> Keys:
        """The keys of the words of rows."""
        counts = self.num_words(rows)
        at = places(self.starts_R[rows], counts)
        return self.words_U[self.columns[at]], np.append(0, np.cumsum(counts))

    def find(self, texts: Sequence[str], num_labels: int) -> Matches:
        """The labels that match texts, as they are analysed."""
        if native.kernels is not None:
            return self._find_by_kernel([normal_form(text) for text in texts], num_labels)
        words_of_texts = [words_in(text) for text in texts]
        columns_of_words = self._columns_of(set().union(*words_of_texts))
        occurrences = [_occurrences(words, columns_of_words) for words in words_of_texts]
        counts_N = np.fromiter(map(len, occurrences), dtype=np.int64, count=len(texts))
        flat = np.array([entry for entries in occurrences for entry in entries], dtype=np.float64).reshape(-1, 3)
        columns, texts_E = flat[:, 0].astype(np.int64), np.repeat(np.arange(len(texts)), counts_N)
        lengths = self.firsts_U[columns + 1] - self.firsts_U[columns]
        pair_rows, pair_texts = self.rows[places(self.firsts_U[columns], lengths)], np.repeat(texts_E, lengths)
        sizes_N = np.fromiter(map(len, words_of_texts), dtype=np.int64, count=len(texts))
        if not len(pair_rows):
            return self._best(sizes_N, num_labels, pair_texts, pair_rows, flat[:0, 1], flat[:0, 2])
        # All words of each pair's row, looked up among those of its text.
        num_words = self.num_words(pair_rows)
        wanted = self.columns[places(self.starts_R[pair_rows], num_words)]
        num_columns = len(self.words_U)
        found, is_there = find_sorted(
            texts_E * num_columns + columns, np.repeat(pair_texts, num_words) * num_columns + wanted
        )
        starts = np.cumsum(num_words) - num_words
        whole = np.logical_and.reduceat(is_there, starts)
        counts = np.minimum.reduceat(flat[found, 1], starts)
        firsts = np.maximum.reduceat(flat[found, 2], starts)
        chosen = pair_texts[whole], pair_rows[whole], counts[whole], firsts[whole]
        return self._best(sizes_N, num_labels, *chosen)

    def _find_by_kernel(self, texts: list[str], num_labels: int) -> Matches:
        of_labels = self.columns, self.starts_R, self.labels_R, self.rows, self.firsts_U
        found = read_texts(native.kernels.find_matches, [texts], self.words_U, self._starts_of_words, *of_labels)
        starts, labels, rows = (np.frombuffer(part, np.int32) for part in found[:3])
        counts, firsts = (np.frombuffer(part, np.float32) for part in found[3:5])
        places_NL = unchecked_csr(np.arange(len(labels)), labels, starts, (len(texts), num_labels))
        return Matches(places_NL, counts, firsts, rows, np.frombuffer(found[5], np.bool_))

    def _best(
        self,
        sizes_N: NDArray[np.int64],
        num_labels: int,
        texts: NDArray[np.int64],
        rows: NDArray[np.int32],
        counts: NDArray[np.float64],
        firsts: NDArray[np.float64],
    ) -> Matches:
        """The best row of each text and label, from its occurrences and the place of its last first one."""
        labels = self.labels_R[rows]
        order = np.lexsort((rows, -counts, -self.num_words(rows), labels, texts))
        texts, labels = texts[order], labels[order]
        best = np.append(True, (texts[1:] != texts[:-1]) | (labels[1:] != labels[:-1]))[: len(texts)]
        chosen = order[best]
        counts_N = np.bincount(texts[best], minlength=len(sizes_N))
        places_NL = csr_from_counts(np.arange(len(chosen)), labels[best], counts_N, num_labels)
        # A name has as many words as stand up to its last one.
        names = firsts[chosen] + 1 == self.num_words(rows[chosen])
        shares = (firsts[chosen] / sizes_N[texts[best]]).astype(np.float32)
        return Matches(places_NL, counts[chosen].astype(np.float32), shares, rows[chosen], names)

    def _columns_of(self, words: set[str]) -> dict[str, int]:
        """The column of each word, and perhaps of others; -1 where no label has it."""
        known = self._known if len(self._known) < _MAX_WORDS else {}
        if new := [word for word in words if word not in known]:
            letters = [fold(word) for word in new]
            lengths = np.fromiter(map(len, letters), dtype=np.int64, count=len(letters))
            keys = keys_of_strings(codes_of("".join(letters)), lengths, WORD_SEED)
            columns, is_there = find_sorted(self.words_U, keys)
            # A new one, never changed: other threads may still read the old one.
            known = self._known = known | dict(zip(new, np.where(is_there, columns, -1).tolist(), strict=True))
        return known


def rarest_columns(
    columns: NDArray[np.integer[Any]], frequencies: NDArray[np.integer[Any]], starts: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The column of the least frequent word of each row, the lowest of several; all rows have words.

    >>> rarest_columns(np.array([4, 7, 9, 4]), np.array([5, 2, 2, 5]), np.array([0, 3])).tolist()
    [7, 4]
    """
    if not len(starts):
        return np.empty(0, dtype=np.int64)
    ordered = frequencies.astype(np.int64) << 32 | columns
    found: NDArray[np.int64] = np.minimum.reduceat(ordered, starts) & 0xFFFFFFFF
    return found


def sums_of_keys(keys: NDArray[np.uint64], starts: NDArray[np.int64]) -> NDArray[np.uint64]:
    """One number per row that rows of the same words share; all rows have words."""
    if not len(starts):
        return np.empty(0, dtype=np.uint64)
    found: NDArray[np.uint64] = np.add.reduceat(mix(keys), starts)
    return found


def match_keys(label_texts: Sequence[str], reading: Reading) -> Iterator[Keys]:
    """The distinct words of each text of a label, without qualifiers, a block of texts at a time."""
    for first in range(0, len(label_texts), _TEXTS_AT_ONCE):
        texts = [_QUALIFIER.sub("", text) or text for text in label_texts[first : first + _TEXTS_AT_ONCE]]
        words = Words.of(reading.analyser.of_labels.texts(texts))
        keys = words.keys[words.ids]
        order = np.lexsort((keys, words.rows))
        rows, keys = words.rows[order], keys[order]
        is_new = np.append(True, (rows[1:] != rows[:-1]) | (keys[1:] != keys[:-1]))[: len(rows)]
        counts = np.bincount(rows[is_new], minlength=len(texts))
        yield keys[is_new], np.append(0, np.cumsum(counts))


def all_keys(blocks: Iterator[Keys]) -> Keys:
    """The keys of all blocks."""
    keys, counts = [np.empty(0, dtype=np.uint64)], [np.zeros(1, dtype=np.int64)]
    for own, starts in blocks:
        keys.append(own)
        counts.append(np.diff(starts))
    return np.concatenate(keys), np.cumsum(np.concatenate(counts))


def _occurrences(words: list[str], columns_of_words: dict[str, int]) -> list[tuple[int, int, int]]:
    """Of each word that a label has, by column: its occurrences, and the place of the first one."""
    counts: dict[int, int] = {}
    firsts: dict[int, int] = {}
    for place, word in enumerate(words):
        column = columns_of_words[word]
        if column >= 0:
            counts[column] = counts.get(column, 0) + 1
            firsts.setdefault(column, place)
    return [(column, counts[column], firsts[column]) for column in sorted(counts)]
