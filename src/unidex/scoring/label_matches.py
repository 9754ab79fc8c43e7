"""Matches of labels whose words are in memory (`unidex.scoring.match_finder`).

The name of a label is the part of its text before a colon, as in "bzip2: compressor of files", where no other label has
the same: a further text of the label, if at least half of the labels have a name. Elsewhere a colon divides other
things, as in "Element: id". Where labels have names, those that are added or get another text have one too.

Shapes: L labels, R texts of labels, C names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unidex import native
from unidex.data.concepts import Concepts, further_texts
from unidex.errors import ModelError
from unidex.scoring.lexical_columns import READING, Reading
from unidex.scoring.match_finder import MatchFinder, smoothed_rates
from unidex.scoring.match_rows import MatchRows, all_keys, match_keys, sums_of_keys
from unidex.scoring.matches import MATCHES, Matches
from unidex.storage.small_numbers import has_numbers, load_numbers, save_numbers

# Share of the labels that have a name where names are read.
_LEAST_NAMED = 0.5

# Each word once, and its places; in earlier versions the words of all labels one after the other.
_WORDS, _PLACES, _STARTS, _LABELS, _TEXTS, _NAMES = (
    f"match_{name}" for name in ("words", "places", "starts", "labels", "texts", "names")
)


class LabelMatches(MatchFinder):
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
        names_C: NDArray[np.int64] | None = None,
    ) -> None:
        self._keys, self._starts_R, self._labels_R = keys, starts_R, labels_R
        self._names_C = np.empty(0, dtype=np.int64) if names_C is None else names_C  # rows that are names of labels
        self._texts_2L = texts_2L  # training texts that match a label, and those of them that have it
        self._reading = reading

    @classmethod
    def of(
        cls, label_texts: Sequence[str], concepts: Concepts | None = None, reading: Reading = READING
    ) -> LabelMatches:
        """The words of the texts of labels and of their further texts."""
        further, labels = further_texts(concepts or {})
        names, named = names_of(label_texts)
        keys, starts = all_keys(
            chain.from_iterable(match_keys(some, reading) for some in (label_texts, further, names))
        )
        labels_R = np.concatenate([np.arange(len(label_texts)), labels, named])
        names_C = np.arange(len(labels_R) - len(names), len(labels_R))
        return cls(keys, starts, labels_R, np.zeros((2, len(label_texts)), dtype=np.int64), reading, names_C)

    @property
    def num_labels(self) -> int:
        """Number of labels."""
        return int(self._texts_2L.shape[1])

    def find(self, texts: Sequence[str]) -> Matches:
        """The labels that match texts."""
        return self._rows.find(self._reading.analyser.texts(texts), self.num_labels)

    def num_words(self, rows: NDArray[Any]) -> NDArray[np.int64]:
        """The number of words of texts of labels."""
        found: NDArray[np.int64] = self._num_words[rows]
        return found

    def ambiguities(self, rows: NDArray[Any]) -> NDArray[np.int64]:
        """The number of labels that have a text of the same words."""
        found: NDArray[np.int64] = self._ambiguities[rows]
        return found

    def rates(self, labels: NDArray[Any]) -> NDArray[np.float32]:
        """How often a match of labels is right."""
        found: NDArray[np.float32] = self._rates[labels]
        return found

    def num_texts(self, labels: NDArray[Any]) -> NDArray[np.int64]:
        """The number of training texts that match labels."""
        found: NDArray[np.int64] = self._texts_2L[0][labels]
        return found

    def count(self, matched: NDArray[Any], right: NDArray[Any]) -> None:
        """Count training texts more: the label of each match, and those of the right ones."""
        for counts_L, labels in zip(self._texts_2L, (matched, right), strict=True):
            counts_L += np.bincount(labels, minlength=self.num_labels)
        self.__dict__.pop("_rates", None)

    @property
    def of_labels(self) -> tuple[NDArray[Any], ...]:
        """Words and ambiguity of each row, rate and matching training texts of each label, as kernels read them."""
        return self._num_words, self._ambiguities, self._rates, self._texts_2L[0]

    def features(
        self, matches: Matches, ids_NK: NDArray[np.int64], room: NDArray[np.float32] | None = None
    ) -> dict[str, NDArray[np.float32]]:
        """As in `MatchFinder`, by kernels where they are there."""
        places_NL = matches.places_NL
        if native.kernels is None or not ids_NK.size or places_NL.indices.dtype != np.int32:
            return super().features(matches, ids_NK, room)
        found_7NK = np.empty((len(MATCHES), *ids_NK.shape), dtype=np.float32) if room is None else room
        native.kernels.describe_matches(
            *(ids_NK, places_NL.indptr, places_NL.indices, places_NL.data, matches.counts_M, matches.firsts_M),
            *(matches.rows_M, *self.of_labels, found_7NK),
        )
        return dict(zip(MATCHES, found_7NK, strict=True))

    @cached_property
    def _rows(self) -> MatchRows:
        return MatchRows.of(self._keys, self._starts_R, self._labels_R)

    @cached_property
    def _rates(self) -> NDArray[np.float32]:
        return smoothed_rates(self._texts_2L, self._texts_2L.sum(axis=1))

    @cached_property
    def _num_words(self) -> NDArray[np.int64]:
        return np.diff(self._starts_R)

    @cached_property
    def _ambiguities(self) -> NDArray[np.int64]:
        _, words_R = np.unique(_sums_of_rows(self._keys, self._starts_R), return_inverse=True)
        labelled = np.unique(words_R.astype(np.int64) * self.num_labels + self._labels_R)
        return np.bincount(labelled // max(1, self.num_labels))[words_R]

    def add(self, label_texts: Sequence[str], concepts: Concepts | None = None) -> None:
        """Append labels, of which no training text is known."""
        new = LabelMatches.of(label_texts, concepts, self._reading)
        new._drop(new._names_C)
        first = self.num_labels
        self._append(new._keys, new._starts_R, first + new._labels_R)
        self._texts_2L = np.concatenate([self._texts_2L, new._texts_2L], axis=1)
        if len(self._names_C):
            self._name(label_texts, first)
        self._forget()

    def rename(self, label: int, text: str) -> None:
        """Give a label another text; its further texts stay, and its counts start anew."""
        # The own text of a label comes before its further ones.
        row = int(np.flatnonzero(self._labels_R == label)[0])
        start, end = self._starts_R[row : row + 2].tolist()
        keys, _ = all_keys(match_keys([text], self._reading))
        self._keys = np.concatenate([self._keys[:start], keys, self._keys[end:]])
        self._starts_R = np.append(self._starts_R[: row + 1], self._starts_R[row + 1 :] + len(keys) - (end - start))
        self._texts_2L[:, label] = 0
        has_names = bool(len(self._names_C))
        self._drop(self._names_C[self._labels_R[self._names_C] == label])
        if has_names:
            self._name([text], label)
            self._forget()

    def _append(self, keys: NDArray[np.uint64], starts: NDArray[np.int64], labels: NDArray[np.int64]) -> None:
        """Add texts of labels behind the others."""
        self._keys = np.concatenate([self._keys, keys])
        self._starts_R = np.concatenate([self._starts_R, self._starts_R[-1] + starts[1:]])
        self._labels_R = np.concatenate([self._labels_R, labels])

    def _name(self, label_texts: Sequence[str], first: int) -> None:
        """Give labels from a first one on their names, which no other label has."""
        names, named = names_of(label_texts, least_named=0.0)
        keys, starts = all_keys(match_keys(names, self._reading))
        known = _sums_of_rows(self._keys, self._starts_R)[self._names_C]
        is_new = ~np.isin(_sums_of_rows(keys, starts), known)
        counts = np.diff(starts)
        last = len(self._labels_R)
        self._append(keys[np.repeat(is_new, counts)], np.append(0, np.cumsum(counts[is_new])), first + named[is_new])
        self._names_C = np.append(self._names_C, np.arange(last, len(self._labels_R)))

    def _drop(self, rows: NDArray[np.int64]) -> None:
        """Remove the names in these rows."""
        stays_R = np.ones(len(self._labels_R), dtype=bool)
        stays_R[rows] = False
        counts_R = np.diff(self._starts_R)
        self._keys, self._labels_R = self._keys[np.repeat(stays_R, counts_R)], self._labels_R[stays_R]
        self._starts_R = np.append(0, np.cumsum(counts_R[stays_R]))
        self._names_C = (np.cumsum(stays_R) - 1)[np.setdiff1d(self._names_C, rows)]
        self._forget()

    def _forget(self) -> None:
        """Drop what was computed of the labels as they were."""
        for name in [name for name, value in vars(type(self)).items() if isinstance(value, cached_property)]:
            self.__dict__.pop(name, None)

    def save(self, folder: Path) -> None:
        """Write the words of all labels and the counts of training texts."""
        save_numbers(folder / _WORDS, self._rows.words_U)
        save_numbers(folder / _PLACES, self._rows.columns.astype(np.int64))
        rows = ((_STARTS, self._starts_R), (_LABELS, self._labels_R), (_NAMES, self._names_C))
        for name, values in (*rows, (_TEXTS, self._texts_2L)):
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
        names_C = load_numbers(folder / _NAMES, (None,), np.int64) if has_numbers(folder / _NAMES) else None
        if names_C is not None and ((names_C < 0) | (names_C >= len(labels_R))).any():
            raise ModelError(f"{folder / _NAMES}: names must be among {len(labels_R)} texts; copy the model again")
        # Labels may be added and renamed: files are not changed.
        return cls(np.array(keys), starts_R, labels_R, np.array(texts_2L), reading, names_C)


def _sums_of_rows(keys: NDArray[np.uint64], starts_R: NDArray[np.int64]) -> NDArray[np.uint64]:
    """One number per row that rows of the same words share; 0 for one without words."""
    sums_R = np.zeros(len(starts_R) - 1, dtype=np.uint64)
    with_words = np.flatnonzero(np.diff(starts_R))
    sums_R[with_words] = sums_of_keys(keys, starts_R[with_words])
    return sums_R


def names_of(label_texts: Sequence[str], least_named: float = _LEAST_NAMED) -> tuple[list[str], NDArray[np.int64]]:
    """The names of labels that no other label has, and the label of each; none where a smaller share of them has one.

    >>> names_of(["bzip2: compressor", "gajim: chat client", "Element: id", "Element: tag"])
    (['bzip2', 'gajim'], array([0, 1]))
    """
    parts = [text.partition(": ") for text in label_texts]
    counts = Counter(name for name, colon, _ in parts if colon)
    names = [(name, label) for label, (name, colon, _) in enumerate(parts) if colon and counts[name] == 1]
    if len(names) < least_named * len(label_texts):
        names = []
    return [name for name, _ in names], np.array([label for _, label in names], dtype=np.int64)
