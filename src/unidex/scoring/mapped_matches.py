"""Matches of very many labels, whose words are mapped from files (`unidex.scoring.match_files`).

Labels that are added or get another text are in memory, with all their texts; files do not change. How many labels have
a text of the same words is known of all labels of the files, and corrected for those that changed.

Shapes: L labels, R texts of labels, C labels that training texts match.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unidex.data.concepts import Concepts, further_texts
from unidex.errors import ModelError
from unidex.scoring.label_matches import LabelMatches
from unidex.scoring.lexical_columns import READING, Reading
from unidex.scoring.match_files import MatchFiles, write_match_files
from unidex.scoring.match_finder import MatchFinder, smoothed_rates
from unidex.scoring.match_rows import Keys, MatchRows, all_keys, match_keys, sums_of_keys
from unidex.scoring.matches import Matches
from unidex.sparse_rows import csr_from_counts, find_sorted, row_of_entries
from unidex.storage.small_numbers import load_numbers, save_numbers

# Labels up to which their words are in memory.
MAPPED_ABOVE = 1 << 18
_COUNTED, _COUNTS = "match_counted", "match_counts"
_ROWS_AT_ONCE = 1 << 18


def matches_of(
    label_texts: Sequence[str],
    concepts: Concepts | None = None,
    reading: Reading = READING,
    *,
    scratch: Path | None = None,
) -> MatchFinder:
    """The words of the texts of labels and of their further texts; of very many labels, in files in ``scratch``."""
    if len(label_texts) <= MAPPED_ABOVE:
        return LabelMatches.of(label_texts, concepts, reading)
    return MappedMatches.of(label_texts, concepts, reading, scratch)


def load_matches(folder: Path, num_labels: int, reading: Reading) -> MatchFinder | None:
    """Read what was saved; None where a model of an earlier version has no matches."""
    if MatchFiles.are_in(folder):
        return MappedMatches.load(folder, num_labels, reading)
    return LabelMatches.load(folder, num_labels, reading)


class MappedMatches(MatchFinder):
    """Finds the labels that match texts, by files."""

    def __init__(self, files: MatchFiles, num_labels: int, reading: Reading, owned: Any = None) -> None:
        self._files, self._num_stored, self._num_labels, self._reading = files, num_labels, num_labels, reading
        self._owned = owned  # a temporary folder that lives as long as the part
        # Labels that training texts match, ascending; the number of these texts, and of those of them that have it.
        self._counted_C, self._texts_2C = np.empty(0, dtype=np.int64), np.zeros((2, 0), dtype=np.int64)
        # Of labels that changed: the keys of their own text and of their further ones.
        self._changed: dict[int, list[NDArray[np.uint64]]] = {}
        # The number of labels that have a text of these words, by the sum of the words, where a label changed.
        self._ambiguities: dict[int, int] = {}

    @classmethod
    def of(
        cls,
        label_texts: Sequence[str],
        concepts: Concepts | None = None,
        reading: Reading = READING,
        scratch: Path | None = None,
    ) -> MappedMatches:
        """The words of the texts of labels and of their further texts, in a temporary folder in ``scratch``."""
        owned = tempfile.TemporaryDirectory(prefix="unidex-matches-", dir=scratch)
        folder, number = Path(owned.name), len(label_texts)
        further, labels = further_texts(concepts or {})
        blocks = chain(match_keys(label_texts, reading), match_keys(further, reading))
        write_match_files(folder, blocks, _labels_of_rows(number, labels))
        return cls(MatchFiles(folder, number), number, reading, owned)

    @classmethod
    def load(cls, folder: Path, num_labels: int, reading: Reading) -> MappedMatches:
        """Read what ``save`` wrote."""
        found = cls(MatchFiles(folder, num_labels), num_labels, reading)
        counted = load_numbers(folder / _COUNTED, (None,), np.int64)
        if len(counted) and not (counted[0] >= 0 and counted[-1] < num_labels and (np.diff(counted) > 0).all()):
            raise ModelError(f"{folder / _COUNTED}: labels must ascend and be below {num_labels}; copy the model again")
        found._counted_C, found._texts_2C = counted, load_numbers(folder / _COUNTS, (2, len(counted)), np.int64)
        return found

    def save(self, folder: Path) -> None:
        """Write the words of all labels, anew where some have changed, and the counts of training texts."""
        if self._changed:
            labels_R, blocks = self._all_rows()
            write_match_files(folder, blocks, labels_R)
        else:
            self._files.link(folder)
        save_numbers(folder / _COUNTED, self._counted_C)
        save_numbers(folder / _COUNTS, self._texts_2C)

    @property
    def num_labels(self) -> int:
        """Number of labels."""
        return self._num_labels

    def find(self, texts: Sequence[str]) -> Matches:
        """The labels that match texts."""
        texts = self._reading.analyser.texts(texts)
        stored = self._files.rows.find(texts, self._num_labels)
        if not self._changed:
            return stored
        new = self._new.find(texts, self._num_labels)
        is_old = np.isin(stored.places_NL.indices, np.fromiter(self._changed, dtype=np.int64))
        kept = np.flatnonzero(~is_old)
        parts = (stored, kept, 0), (new, np.arange(len(new.places_NL.indices)), len(self._files.rows))
        of_texts, labels, counts, firsts, rows, names = (
            np.concatenate(columns)
            for columns in zip(*(_columns(found, entries, first) for found, entries, first in parts), strict=True)
        )
        order = np.lexsort((labels, of_texts))
        counts_N = np.bincount(of_texts, minlength=len(texts))
        places_NL = csr_from_counts(np.arange(len(order)), labels[order], counts_N, self._num_labels)
        return Matches(places_NL, counts[order], firsts[order], rows[order], names[order])

    @cached_property
    def _new(self) -> MatchRows:
        """The rows of labels that changed."""
        keys = [row for rows in self._changed.values() for row in rows]
        starts = np.append(0, np.cumsum([len(row) for row in keys])).astype(np.int64)
        labels = np.repeat(list(self._changed), [len(rows) for rows in self._changed.values()])
        return MatchRows.of(np.concatenate([np.empty(0, dtype=np.uint64), *keys]), starts, labels)

    def num_words(self, rows: NDArray[Any]) -> NDArray[np.int64]:
        """The number of words of texts of labels."""
        stored = self._files.rows
        if not self._changed:
            return stored.num_words(rows)
        is_new = rows >= len(stored)
        found = stored.num_words(np.where(is_new, 0, rows))
        found[is_new] = self._new.num_words(rows[is_new] - len(stored))
        return found

    def ambiguities(self, rows: NDArray[Any]) -> NDArray[np.integer[Any]]:
        """The number of labels that have a text of the same words."""
        if not self._changed or not len(rows):
            found: NDArray[np.integer[Any]] = self._files.ambiguities_R[rows]
            return found
        stored, is_new = self._files.rows, rows >= len(self._files.rows)
        found = self._files.ambiguities_R[np.where(is_new, 0, rows)].astype(np.int64)
        for part, own in ((stored, ~is_new), (self._new, is_new)):
            # Rows that match have words.
            keys, starts = part.keys_of(rows[own] - (0 if part is stored else len(stored)))
            sums = sums_of_keys(keys, starts[:-1]).tolist()
            found[own] = [self._ambiguities.get(a, b) for a, b in zip(sums, found[own].tolist(), strict=True)]
        return found

    def rates(self, labels: NDArray[Any]) -> NDArray[np.float32]:
        """How often a match of labels is right."""
        return smoothed_rates(self._counts(labels), self._texts_2C.sum(axis=1))

    def num_texts(self, labels: NDArray[Any]) -> NDArray[np.int64]:
        """The number of training texts that match labels."""
        found: NDArray[np.int64] = self._counts(labels)[0]
        return found

    def _counts(self, labels: NDArray[Any]) -> NDArray[np.int64]:
        if not len(self._counted_C):
            return np.zeros((2, *labels.shape), dtype=np.int64)
        places, is_there = find_sorted(self._counted_C, labels)
        return np.where(is_there, self._texts_2C[:, places], 0)

    def count(self, matched: NDArray[Any], right: NDArray[Any]) -> None:
        """Count training texts more: the label of each match, and those of the right ones."""
        counted = np.union1d(self._counted_C, matched).astype(np.int64)
        texts_2C = np.zeros((2, len(counted)), dtype=np.int64)
        texts_2C[:, np.searchsorted(counted, self._counted_C)] = self._texts_2C
        for counts_C, labels in zip(texts_2C, (matched, right), strict=True):
            np.add.at(counts_C, np.searchsorted(counted, labels), 1)
        self._counted_C, self._texts_2C = counted, texts_2C

    def add(self, label_texts: Sequence[str], concepts: Concepts | None = None) -> None:
        """Append labels, of which no training text is known."""
        own = _separate(all_keys(match_keys(label_texts, self._reading)))
        further, labels = further_texts(concepts or {})
        more: dict[int, list[NDArray[np.uint64]]] = {}
        for label, keys in zip(labels.tolist(), _separate(all_keys(match_keys(further, self._reading))), strict=True):
            more.setdefault(label, []).append(keys)
        for place, keys in enumerate(own):
            self._change(self._num_labels + place, [keys, *more.get(place, ())])
        self._num_labels += len(label_texts)

    def rename(self, label: int, text: str) -> None:
        """Give a label another text; its further texts stay, and its counts start anew."""
        (keys,) = _separate(all_keys(match_keys([text], self._reading)))
        self._change(label, [keys, *self._texts_of(label)[1:]])
        is_other = self._counted_C != label
        self._counted_C, self._texts_2C = self._counted_C[is_other], self._texts_2C[:, is_other]

    def _texts_of(self, label: int) -> list[NDArray[np.uint64]]:
        """The keys of the texts of a label: of its own one, and of its further ones."""
        if label in self._changed:
            return self._changed[label]
        if label >= self._num_stored:
            return []
        stored = self._files.rows
        first, end = np.searchsorted(stored.labels_R[self._num_stored :], [label, label + 1]) + self._num_stored
        return _separate(stored.keys_of(np.append(label, np.arange(first, end))))

    def _change(self, label: int, texts: list[NDArray[np.uint64]]) -> None:
        """Give a label other texts."""
        before, after = _sums(self._texts_of(label)), _sums(texts)
        for sums, change in ((before, -1), (after, 1)):
            for total, keys in sums.items():
                if total not in self._ambiguities:
                    self._ambiguities[total] = self._num_stored_with(total, keys)
                self._ambiguities[total] += change
        self._changed[label] = texts
        self.__dict__.pop("_new", None)

    def _num_stored_with(self, total: int, keys: NDArray[np.uint64]) -> int:
        """The number of labels of the files that have a text of these words."""
        stored = self._files.rows
        columns, are_there = find_sorted(stored.words_U, keys)
        if not are_there.all():
            return 0
        for column in columns.tolist():
            rows = stored.rows[stored.firsts_U[column] : stored.firsts_U[column + 1]].astype(np.int64)
            own, starts = stored.keys_of(rows)
            same = rows[sums_of_keys(own, starts[:-1]) == np.uint64(total)]
            if len(same):
                return int(self._files.ambiguities_R[same[0]])
        return 0

    def _all_rows(self) -> tuple[NDArray[np.int32], Iterator[Keys]]:
        """The labels of all rows, own texts before further ones, and the words of the rows in blocks."""
        stored = self._files.rows
        further = [
            (int(label), keys)
            for first in range(self._num_stored, len(stored), _ROWS_AT_ONCE)
            for label, keys in zip(
                stored.labels_R[first : first + _ROWS_AT_ONCE].tolist(),
                _separate(stored.keys_of(np.arange(first, min(first + _ROWS_AT_ONCE, len(stored))))),
                strict=True,
            )
            if label not in self._changed
        ]
        further += [(label, keys) for label, texts in self._changed.items() for keys in texts[1:]]
        further.sort(key=lambda pair: pair[0])
        labels = np.array([label for label, _ in further], dtype=np.int64)
        return _labels_of_rows(self._num_labels, labels), self._blocks([keys for _, keys in further])

    def _blocks(self, further: list[NDArray[np.uint64]]) -> Iterator[Keys]:
        for first in range(0, self._num_labels, _ROWS_AT_ONCE):
            stop = min(first + _ROWS_AT_ONCE, self._num_labels)
            rows = _separate(self._files.rows.keys_of(np.arange(first, min(stop, self._num_stored))))
            rows += [np.empty(0, dtype=np.uint64)] * (stop - first - len(rows))
            for label in self._changed.keys() & set(range(first, stop)):
                rows[label - first] = self._changed[label][0]
            yield _joined(rows)
        yield _joined(further)


def _columns(found: Matches, entries: NDArray[np.int64], first_row: int) -> tuple[NDArray[Any], ...]:
    """Text, label, count, first, row and whether it is a name, of matches."""
    places = found.places_NL.data[entries]
    of_texts, labels = row_of_entries(found.places_NL)[entries], found.places_NL.indices[entries]
    rows = found.rows_M[places] + np.int32(first_row)
    return of_texts, labels, found.counts_M[places], found.firsts_M[places], rows, found.names_M[places]


def _labels_of_rows(num_labels: int, further: NDArray[np.int64]) -> NDArray[np.int32]:
    """The label of each row: own texts of labels, then further ones."""
    found = np.empty(num_labels + len(further), dtype=np.int32)
    found[:num_labels], found[num_labels:] = np.arange(num_labels, dtype=np.int32), further
    return found


def _separate(keys: Keys) -> list[NDArray[np.uint64]]:
    """The keys of each row."""
    return [keys[0][start:end] for start, end in zip(keys[1][:-1].tolist(), keys[1][1:].tolist(), strict=True)]


def _joined(rows: list[NDArray[np.uint64]]) -> Keys:
    """The keys of rows, and where those of a row start."""
    starts = np.append(0, np.cumsum([len(row) for row in rows])).astype(np.int64)
    return np.concatenate([np.empty(0, dtype=np.uint64), *rows]), starts


def _sums(texts: list[NDArray[np.uint64]]) -> dict[int, NDArray[np.uint64]]:
    """The sums of the words of the texts of a label, with the words."""
    return {int(sums_of_keys(keys, np.zeros(1, dtype=np.int64))[0]): keys for keys in texts if len(keys)}
