"""The raw form of the Extreme Classification Repository: trn.json, tst.json and lbl.json, one JSON object per line.

A text has uid, title, content, target_ind (label numbers) and target_rel (their relevance); a label has uid, title and
content, and its line is its number. ``filter_labels_train.txt`` and ``filter_labels_test.txt`` hold the filter pairs.
Where lbl.json is missing, Yf.txt gives one label text per line (what stands behind its last "->").
"""

from __future__ import annotations

import gzip
import logging
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex.data.dataset import Dataset, Labels, Split
from unidex.data.files import (
    MAX_COLUMNS,
    chunks,
    count_lines,
    decoded,
    lines,
    read_filter_pairs,
    single,
    write_filter_pairs,
    write_json_lines,
)
from unidex.data.read_options import ReadOptions
from unidex.data.text_packer import Packer, UidPacker
from unidex.data.texts import Texts
from unidex.errors import DataError, quoted

_logger = logging.getLogger(__name__)
_TRAIN, _TEST, _LABELS = ("trn", "train"), ("tst", "test"), ("lbl", "labels")
_ENDINGS = (".json.gz", ".json", ".raw.json.gz", ".raw.json")
_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Label(msgspec.Struct, gc=False):
    """One line of lbl.json."""

    uid: str | int | None = None
    title: str | None = None
    content: str | None = None


class _Text(msgspec.Struct, gc=False):
    """One line of trn.json or tst.json."""

    target_ind: list[int]
    target_rel: list[float] | None = None
    uid: str | int | None = None
    title: str | None = None
    content: str | None = None


def detects(path: Path) -> bool:
    """A folder whose train file holds target_ind, or is called trn and damaged: reading it then reports the damage."""
    train = _find(path, _TRAIN)
    if train is None:
        return False
    try:
        _, first = next(lines(train))
        msgspec.json.decode(first)
    except (DataError, *_ERRORS):
        return train.name.startswith("trn")
    return '"target_ind"' in first


def read(path: Path, options: ReadOptions) -> Dataset:
    """Read a folder of this form."""
    train_file = _find(path, _TRAIN)
    if train_file is None:
        raise DataError("a raw XC folder must hold trn.json.gz or trn.json, but has neither", file=path)
    labels = _read_labels(path, options)
    max_labels = MAX_COLUMNS if labels is None else len(labels)
    train = _Targets(train_file, max_labels, options)
    test_file = _find(path, _TEST)
    test = None if test_file is None else _Targets(test_file, max_labels, options)
    if labels is None:
        # Without a file of labels there are as many as the largest number says, be it of a test text.
        labels = Labels(Texts.blank(max(targets.num_labels for targets in (train, test) if targets is not None)))
    return Dataset(
        path.resolve().name,
        labels,
        train.split(path / "filter_labels_train.txt", len(labels)),
        Split.empty(len(labels)) if test is None else test.split(path / "filter_labels_test.txt", len(labels)),
    )


def write(dataset: Dataset, folder: Path) -> None:
    """Write trn.json.gz, tst.json.gz, lbl.json.gz and the filter files."""
    if any(len(split) and split.features is not None and not split.texts.num_bytes for split in dataset.splits):
        raise DataError("raw XC files hold texts, but this data set has features and no texts; convert it to pecos")
    label_uids = dataset.labels.uids
    _write_lines(
        folder / "lbl.json.gz",
        (
            {"uid": str(number) if label_uids is None else label_uids[number], "title": title, "content": content}
            for number, (title, content) in enumerate(dataset.labels.texts.fields())
        ),
    )
    for split, short, long in ((dataset.train, "trn", "train"), (dataset.test, "tst", "test")):
        if len(split) == 0:
            continue
        _write_lines(folder / f"{short}.json.gz", _split_rows(split))
        write_filter_pairs(folder / f"filter_labels_{long}.txt", split.filter_pairs)


def _find(folder: Path, stems: tuple[str, ...]) -> Path | None:
    if not folder.is_dir():
        return None
    candidates = (folder / f"{stem}{ending}" for stem in stems for ending in _ENDINGS)
    return next((file for file in candidates if file.is_file()), None)


def _read_labels(folder: Path, options: ReadOptions) -> Labels | None:
    file = _find(folder, _LABELS)
    if file is not None:
        collected = _Collector(options)
        for _, rows in _decoded_rows(file, _Label):
            collected.add(rows)
        return Labels(Texts.packed(collected.texts), collected.uids(file, must_differ=True))
    names = folder / "Yf.txt"
    if names.is_file():
        return Labels(Texts.of(line.rpartition("->")[2] for _, line in lines(names)))
    return None


class _Targets:
    """The contents of a file of texts; the number of labels is not yet known."""

    def __init__(self, file: Path, max_labels: int, options: ReadOptions) -> None:
        self._file = file
        self._collected = _Collector(options)
        columns: list[NDArray[np.int64]] = []
        values: list[NDArray[np.float32]] = []
        counts: list[NDArray[np.int64]] = []
        for first_line, rows in _decoded_rows(file, _Text):
            self._collected.add(rows)
            targets = [row.target_ind for row in rows]
            count = np.fromiter(map(len, targets), dtype=np.int64, count=len(targets))
            total = int(count.sum())
            try:
                column = np.fromiter(chain.from_iterable(targets), dtype=np.int64, count=total)
            except OverflowError:
                column = np.array([min(max(label, -1), 2**62) for target in targets for label in target])
            relevance = _relevance(rows, count, file, first_line)
            _check_targets(column, relevance, count, max_labels, file, first_line)
            columns.append(column)
            values.append(relevance)
            counts.append(count)
        self._column, self._relevance = np.concatenate(columns), np.concatenate(values)
        self._indptr = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(np.concatenate(counts))])

    @property
    def num_labels(self) -> int:
        """The fewest labels that there can be."""
        return int(self._column.max(initial=-1)) + 1

    def split(self, filter_file: Path, num_labels: int) -> Split:
        """The texts with their positives over ``num_labels`` labels."""
        shape = (len(self._indptr) - 1, num_labels)
        positives = sparse.csr_array((self._relevance, self._column, self._indptr), shape=shape)
        pairs = read_filter_pairs(filter_file, *shape)
        uids = self._collected.uids(self._file, must_differ=False)
        return Split.of(Texts.packed(self._collected.texts), positives, pairs, uids)


class _Collector:
    """Packs the texts and uids of rows as they come."""

    def __init__(self, options: ReadOptions) -> None:
        self.texts = Packer()
        self._fields = options.text
        self._uids: UidPacker | None = UidPacker()

    def add(self, rows: list[Any]) -> None:
        titles = [row.title or "" for row in rows]
        if self._fields == "title":
            self.texts.add(titles)
        else:
            contents = [row.content or "" for row in rows]
            if self._fields == "content":
                self.texts.add(contents)
            else:
                self.texts.add_pairs(titles, contents)
        uids = [row.uid for row in rows]
        if self._uids is None or None in uids:
            self._uids = None
        else:
            self._uids.add(list(map(str, uids)))

    def uids(self, file: Path, *, must_differ: bool) -> Texts | None:
        """The uids, where every row has one of its own.

        Labels are called by their uids, so that these must differ. Texts are not: published sets repeat their uids
        (one book under each of its authors), and such uids are left out with a warning.
        """
        if self._uids is None:
            return None
        uids = Texts.packed(self._uids)
        row = uids.first_repeat()
        if row is None:
            return uids
        found = f"uids must differ, but {quoted(uids[row])} comes again"
        if must_differ:
            raise DataError(f"{found}; rename it", file=file, line=row + 1)
        _logger.warning("%s:%d: %s; the texts are read without uids", file, row + 1, found)
        return None


def _decoded_rows(file: Path, row_type: type[Any]) -> Iterator[tuple[int, list[Any]]]:
    decoder = msgspec.json.Decoder(row_type)
    for first_line, block in chunks(file):
        if first_line == 1:
            block = block.removeprefix(b"\xef\xbb\xbf")
        try:
            rows = decoder.decode_lines(block)
        except _ERRORS:
            rows = []
        # Blank lines are skipped by the decoder, but the line is the number of the row.
        if len(rows) != count_lines(block):
            _explain(decoder.decode, block, file, first_line)
        yield first_line, rows


def _explain(decode: Callable[[bytes], Any], block: bytes, file: Path, first_line: int) -> None:
    """Find the line that could not be decoded, and say why."""
    for line, row in enumerate(block.split(b"\n"), first_line):
        try:
            decode(row)
        except _ERRORS as error:
            decoded(row, file, line)
            why = "the line is blank" if not row.strip() else str(error)
            raise DataError(
                f"a line must be a JSON object of this format, but: {why}; mend or drop the line", file=file, line=line
            ) from None


def _relevance(rows: list[Any], count: NDArray[np.int64], file: Path, first_line: int) -> NDArray[np.float32]:
    given = [[1.0] * len(row.target_ind) if row.target_rel is None else row.target_rel for row in rows]
    lengths = np.fromiter(map(len, given), dtype=np.int64, count=len(given))
    if not np.array_equal(lengths, count):
        row = int(np.argmax(lengths != count))
        rule = f"target_rel must have one number per target_ind ({count[row]}), but has {lengths[row]}"
        raise DataError(rule, file=file, line=first_line + row)
    return single(list(chain.from_iterable(given)))


def _check_targets(
    column: NDArray[np.int64],
    relevance: NDArray[np.float32],
    count: NDArray[np.int64],
    limit: int,
    file: Path,
    first_line: int,
) -> None:
    bad = (column < 0) | (column >= limit) | ~(relevance >= 0) | np.isinf(relevance)
    if not bad.any():
        return
    entry = int(np.argmax(bad))
    row = int(np.searchsorted(np.cumsum(count), entry, side="right"))
    if not 0 <= column[entry] < limit:
        rule = f"target_ind must be from 0 to {limit - 1} (the labels), but one is {column[entry]}"
    else:
        rule = f"target_rel must be a number >= 0, but one is {relevance[entry]}"
    raise DataError(f"{rule}; mend or drop this pair", file=file, line=first_line + row)


def _split_rows(split: Split) -> Iterator[dict[str, Any]]:
    starts = split.positives.indptr.tolist()
    for row, (title, content) in enumerate(split.texts.fields()):
        pairs = slice(starts[row], starts[row + 1])
        yield {
            "uid": str(row) if split.uids is None else split.uids[row],
            "title": title,
            "content": content,
            "target_ind": split.positives.indices[pairs].tolist(),
            "target_rel": split.positives.data[pairs].tolist(),
        }


def _write_lines(file: Path, rows: Iterator[dict[str, Any]]) -> None:
    # mtime 0: the same data set gives the same file.
    with file.open("wb") as raw, gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0) as out:
        write_json_lines(out, rows)
