"""The words of texts of very many labels in files, written in blocks, and mapped.

Files of a folder, with the names of `unidex.scoring.match_rows.MatchRows`: ``match_keys.npy`` (U),
``match_key_starts.npy``, ``match_columns.npy``, ``match_row_starts.npy`` (R + 1), ``match_row_labels.npy`` (R),
``match_rows.npy``, ``match_first_rows.npy`` (U + 1), and ``match_ambiguities.npy`` (R), the number of labels that have
a text of the same words.

Distinct words are found in sorted runs of a few million words, which are merged one range of keys after the other. So
no step holds the words of all labels.

Shapes: R texts of labels (rows), U distinct words of them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unidex.errors import ModelError
from unidex.features.hash_keys import num_first_bits
from unidex.scoring.match_rows import Keys, MatchRows, rarest_columns, sums_of_keys
from unidex.storage.disk_errors import writing
from unidex.storage.mapped import link_file, map_array, new_array
from unidex.storage.spilled_array import SpilledArray

_KEYS, _KEY_STARTS, _COLUMNS, _ROW_STARTS, _ROW_LABELS, _ROWS, _FIRST_ROWS, _AMBIGUITIES = FILES = tuple(
    f"match_{name}.npy"
    for name in ("keys", "key_starts", "columns", "row_starts", "row_labels", "rows", "first_rows", "ambiguities")
)
_AT_ONCE = 1 << 22  # words of a run, or of a range of keys; rows of a range of sums
_ROWS_AT_ONCE = 1 << 18


class MatchFiles:
    """A folder with the files; ``rows`` and ``ambiguities_R`` are mapped."""

    def __init__(self, folder: Path, num_labels: int) -> None:
        self._folder = folder
        labels_R = map_array(folder / _ROW_LABELS, (None,), np.int32)
        starts_R = map_array(folder / _ROW_STARTS, (len(labels_R) + 1,), np.int64)
        words_U = map_array(folder / _KEYS, (None,), np.uint64)
        firsts_U = map_array(folder / _FIRST_ROWS, (len(words_U) + 1,), np.int64)
        num_key_starts = (1 << num_first_bits(len(words_U))) + 1
        arrays = {
            "starts_of_words": map_array(folder / _KEY_STARTS, (num_key_starts,), np.uint32),
            "columns": map_array(folder / _COLUMNS, (int(starts_R[-1]),), np.int32),
            "rows": map_array(folder / _ROWS, (int(firsts_U[-1]),), np.int32),
        }
        if len(labels_R) < num_labels or starts_R[0] or firsts_U[0]:
            raise ModelError(f"{folder}: words must be those of {num_labels} labels, but are not; copy the model again")
        self.rows = MatchRows(words_U, starts_R=starts_R, labels_R=labels_R, firsts_U=firsts_U, **arrays)
        self.ambiguities_R = map_array(folder / _AMBIGUITIES, (len(labels_R),), np.int32)

    @staticmethod
    def are_in(folder: Path) -> bool:
        """Whether a folder has the files."""
        return (folder / _ROWS).exists()

    def link(self, folder: Path) -> None:
        """The same files in another folder."""
        for name in FILES:
            link_file(self._folder / name, folder / name)


def write_match_files(folder: Path, blocks: Iterable[Keys], labels_R: NDArray[np.integer[Any]]) -> None:
    """Write the files of rows.

    Args:
        folder: where they are written.
        blocks: the words of rows, a block of rows at a time.
        labels_R: the label of each row; own texts of labels come before further ones.
    """
    with writing(folder / _ROWS), tempfile.TemporaryDirectory(prefix=".words-", dir=folder) as scratch:
        new_array(folder / _ROW_LABELS, (len(labels_R),), np.int32)[...] = labels_R
        keys, runs = _store_keys(folder, Path(scratch), blocks, len(labels_R))
        frequencies_U = _write_words(folder, Path(scratch), runs)
        rarest_R, sums_R = _write_columns(folder, Path(scratch), keys, frequencies_U)
        _write_rows(folder, Path(scratch), rarest_R, len(frequencies_U))
        _write_ambiguities(folder, sums_R)


class _Runs:
    """Sorted runs of distinct keys with their counts, one after the other."""

    def __init__(self, scratch: Path) -> None:
        self._keys, self._counts = SpilledArray(np.uint64, scratch), SpilledArray(np.int64, scratch)
        self._ends, self._waiting, self._size = [0], [np.empty(0, dtype=np.uint64)], 0

    def add(self, keys: NDArray[np.uint64]) -> None:
        self._waiting.append(keys)
        self._size += len(keys)
        if self._size >= _AT_ONCE:
            self.close()

    def close(self) -> None:
        keys, counts = np.unique(np.concatenate(self._waiting), return_counts=True)
        self._keys.append(keys)
        self._counts.append(counts)
        self._ends.append(self._ends[-1] + len(keys))
        self._waiting, self._size = [np.empty(0, dtype=np.uint64)], 0

    def merged(self) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.int64]]]:
        """Distinct keys, ascending, and how often each occurs, a range of keys at a time."""
        keys, counts = self._keys.array(), self._counts.array()
        bits = max(0, (self._ends[-1] // _AT_ONCE).bit_length())
        bounds = np.arange(1, 1 << bits, dtype=np.uint64) << np.uint64(64 - bits) if bits else keys[:0]
        runs = [slice(first, end) for first, end in zip(self._ends, self._ends[1:], strict=False)]
        cuts = [np.concatenate([[0], np.searchsorted(keys[run], bounds), [run.stop - run.start]]) for run in runs]
        for at in range(1 << bits):
            parts = [slice(run.start + cut[at], run.start + cut[at + 1]) for run, cut in zip(runs, cuts, strict=True)]
            own = np.concatenate([keys[:0], *(keys[part] for part in parts)])
            distinct, places = np.unique(own, return_inverse=True)
            sums = np.zeros(len(distinct), dtype=np.int64)
            np.add.at(sums, places.reshape(-1), np.concatenate([counts[:0], *(counts[part] for part in parts)]))
            yield distinct, sums


def _store_keys(folder: Path, scratch: Path, blocks: Iterable[Keys], num_rows: int) -> tuple[NDArray[np.uint64], _Runs]:
    """Write where the words of each row start; all words of rows, and the runs of distinct ones."""
    keys, runs = SpilledArray(np.uint64, scratch), _Runs(scratch)
    starts_R = new_array(folder / _ROW_STARTS, (num_rows + 1,), np.int64)
    row = total = 0
    for own, starts in blocks:
        keys.append(own)
        runs.add(own)
        starts_R[row + 1 : row + len(starts)] = total + starts[1:]
        row, total = row + len(starts) - 1, total + len(own)
    runs.close()
    return keys.array(), runs


def _write_words(folder: Path, scratch: Path, runs: _Runs) -> NDArray[np.int64]:
    """Write the distinct words; the number of rows that have each."""
    words, frequencies = SpilledArray(np.uint64, scratch), SpilledArray(np.int64, scratch)
    for distinct, counts in runs.merged():
        words.append(distinct)
        frequencies.append(counts)
    np.save(folder / _KEYS, words.array())
    _write_key_starts(folder)
    return frequencies.array()


def _write_key_starts(folder: Path) -> None:
    """Write what `starts_of_keys` gives, in blocks."""
    words_U = map_array(folder / _KEYS, (None,), np.uint64)
    bits = num_first_bits(len(words_U))
    starts = new_array(folder / _KEY_STARTS, ((1 << bits) + 1,), np.uint32)
    for first in range(0, 1 << bits, _AT_ONCE):
        prefixes = np.arange(first, min(first + _AT_ONCE, 1 << bits), dtype=np.uint64) << np.uint64(64 - bits)
        starts[first : first + len(prefixes)] = np.searchsorted(words_U, prefixes)
    starts[-1] = len(words_U)


def _write_columns(
    folder: Path, scratch: Path, keys: NDArray[np.uint64], frequencies_U: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.uint64]]:
    """Write the columns of the words of rows; the rarest one of each row (-1 for none), and a sum of its words."""
    words_U = map_array(folder / _KEYS, (None,), np.uint64)
    starts_R = map_array(folder / _ROW_STARTS, (None,), np.int64)
    columns = new_array(folder / _COLUMNS, (len(keys),), np.int32)
    rarest_R, sums_R = SpilledArray(np.int32, scratch), SpilledArray(np.uint64, scratch)
    for first in range(0, len(starts_R) - 1, _ROWS_AT_ONCE):
        starts = starts_R[first : first + _ROWS_AT_ONCE + 1]
        own = keys[starts[0] : starts[-1]]
        distinct, places = np.unique(own, return_inverse=True)
        found = np.searchsorted(words_U, distinct)[places.reshape(-1)]
        columns[starts[0] : starts[-1]] = found
        with_words = np.flatnonzero(np.diff(starts))
        firsts = starts[with_words] - starts[0]
        rarest, sums = np.full(len(starts) - 1, -1), np.zeros(len(starts) - 1, dtype=np.uint64)
        rarest[with_words] = rarest_columns(found, frequencies_U[found], firsts)
        sums[with_words] = sums_of_keys(own, firsts)
        rarest_R.append(rarest)
        sums_R.append(sums)
    return rarest_R.array(), sums_R.array()


def _write_rows(folder: Path, scratch: Path, rarest_R: NDArray[np.int32], num_words: int) -> None:
    """Write the rows in the order of their rarest words."""
    firsts_U = new_array(folder / _FIRST_ROWS, (num_words + 1,), np.int64)
    num_rows = 0
    for first in range(0, len(rarest_R), _ROWS_AT_ONCE):
        own = rarest_R[first : first + _ROWS_AT_ONCE]
        distinct, counts = np.unique(own[own >= 0], return_counts=True)
        firsts_U[distinct + 1] += counts
        num_rows += int(counts.sum())
    np.cumsum(firsts_U, out=firsts_U)
    next_U = new_array(scratch / "next.npy", (num_words + 1,), np.int64)
    next_U[...] = firsts_U
    rows = new_array(folder / _ROWS, (num_rows,), np.int32)
    for first in range(0, len(rarest_R), _ROWS_AT_ONCE):
        own = rarest_R[first : first + _ROWS_AT_ONCE]
        order = np.argsort(own, kind="stable")
        order = order[np.count_nonzero(own < 0) :]
        distinct, firsts, counts = np.unique(own[order], return_index=True, return_counts=True)
        rows[np.repeat(next_U[distinct] - firsts, counts) + np.arange(len(order))] = first + order
        next_U[distinct] += counts


def _write_ambiguities(folder: Path, sums_R: NDArray[np.uint64]) -> None:
    """Write how many labels have a text of the words of each row; rows without words match nothing, and have 0."""
    labels_R = map_array(folder / _ROW_LABELS, (len(sums_R),), np.int32)
    ambiguities_R = new_array(folder / _AMBIGUITIES, (len(sums_R),), np.int32)
    bits = (len(sums_R) // _AT_ONCE).bit_length()
    for at in range(1 << bits):
        parts = [np.empty(0, dtype=np.int64)]
        for first in range(0, len(sums_R), _AT_ONCE):
            own = sums_R[first : first + _AT_ONCE]
            is_own = own != 0
            if bits:
                is_own &= own >> np.uint64(64 - bits) == at
            parts.append(first + np.flatnonzero(is_own))
        rows = np.concatenate(parts)
        distinct, groups = np.unique(sums_R[rows], return_inverse=True)
        groups, labels = groups.reshape(-1), labels_R[rows]
        order = np.lexsort((labels, groups))
        groups_first, labels = groups[order], labels[order]
        is_new = np.append(True, (groups_first[1:] != groups_first[:-1]) | (labels[1:] != labels[:-1]))[: len(order)]
        ambiguities_R[rows] = np.bincount(groups_first[is_new], minlength=len(distinct))[groups]
