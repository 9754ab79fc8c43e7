"""Rows of a table -> texts, label ids and relevance; whole blocks of rows at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex.data.dataset import Split
from unidex.data.files import single
from unidex.data.formats.cells import Cell
from unidex.data.formats.label_numbers import NO_LABEL, Numbering, RawLabel, UnknownLabelError, name_of
from unidex.data.formats.table_files import Table, row_error
from unidex.data.text_packer import Packer
from unidex.data.texts import Texts
from unidex.errors import quoted


class Rows:
    """The rows of one table of texts, all read.

    Label ids are known, but not yet how many labels there are: a later table may bring new ones.
    """

    def __init__(self, table: Table, columns: Mapping[str, str], cell: Cell, numbering: Numbering) -> None:
        packer = Packer()
        uids: list[str] | None = [] if "uid" in columns else None
        self._ids: list[NDArray[np.int64]] = []
        self._relevance: list[NDArray[np.float32]] = []
        self._counts: list[NDArray[np.int64]] = []
        self._num_rows = 0
        for block in table.blocks(columns):
            pack(packer, block)
            if uids is not None:
                uids.extend(uid_cells(block["uid"], table, self._num_rows))
            self._add_labels(block, table, cell, numbering)
        self.texts = Texts.packed(packer)
        self.uids = None if uids is None else distinct(uids, table)

    def __len__(self) -> int:
        return self._num_rows

    @property
    def num_pairs(self) -> int:
        """Number of pairs of a text and a label."""
        return sum(map(len, self._ids))

    def split(self, num_labels: int, filter_pairs: sparse.csr_array | None = None) -> Split:
        """The rows as a split over ``num_labels`` labels."""
        counts = np.concatenate([np.zeros(1, dtype=np.int64), *self._counts])
        ids = np.concatenate([np.empty(0, dtype=np.int64), *self._ids])
        relevance = np.concatenate([np.empty(0, dtype=np.float32), *self._relevance])
        positives = sparse.csr_array((relevance, ids, np.cumsum(counts)), shape=(len(self), num_labels))
        return Split.of(self.texts, positives, filter_pairs, self.uids)

    def _add_labels(self, block: Mapping[str, list[Any]], table: Table, cell: Cell, numbering: Numbering) -> None:
        lists, are_lists = _label_lists(block["labels"], cell, table, self._num_rows)
        counts = np.fromiter(map(len, lists), dtype=np.int64, count=len(lists))
        flat = list(chain.from_iterable(lists))
        rows = np.repeat(np.arange(self._num_rows, self._num_rows + len(lists)), counts)
        if None in flat:
            row = int(rows[flat.index(None)])  # type: ignore[arg-type]  # Parquet has nulls in lists
            raise row_error(table, row, "a label must be a string or a number, but is null; drop it")
        try:
            ids = numbering.ids(flat, listed=are_lists)
        except UnknownLabelError as error:
            row = int(rows[flat.index(error.raw)])
            raise row_error(table, row, numbering.unknown(error.name)) from None
        relevance = _relevance(block.get("relevance"), counts, cell, table, self._num_rows)
        kept = ids != NO_LABEL
        if not kept.all():
            ids, relevance, rows = ids[kept], relevance[kept], rows[kept]
        bad = ~((relevance >= 0) & np.isfinite(relevance))
        if bad.any():
            first = int(np.argmax(bad))
            rule = f"relevance must be a number >= 0, but is {relevance[first]:g}"
            raise row_error(table, int(rows[first]), f"{rule}; drop the pair or give it a weight")
        self._ids.append(ids)
        self._relevance.append(relevance)
        self._counts.append(np.bincount(rows - self._num_rows, minlength=len(lists)).astype(np.int64))
        self._num_rows += len(lists)


def string_cells(table: Table, column: str) -> Iterator[str]:
    """Cells of a column that are strings, up to the first block that holds lists: such a column needs no separator."""
    for block in table.blocks({"labels": column}):
        cells = block["labels"]
        yield from (cell for cell in cells if isinstance(cell, str))
        if list in set(map(type, cells)):
            return


def pack(packer: Packer, block: Mapping[str, list[Any]]) -> None:
    """Pack the texts of a block, or its titles and contents."""
    if "text" in block:
        packer.add(_filled(block["text"]))
    else:
        packer.add_pairs(_filled(block["title"]), _filled(block["content"]))


def _filled(cells: list[str | None]) -> list[str]:
    return [cell or "" for cell in cells] if None in cells else cells  # type: ignore[return-value]  # none is None


def uid_cells(cells: list[str | int | None], table: Table, first_row: int) -> Iterator[str]:
    """The uids of a block; every row must have one."""
    if None in cells:
        rule = "a row must have a uid where others have one, but this has none"
        row = first_row + cells.index(None)
        raise row_error(table, row, f"{rule}; give it one, or leave the uids out (--column uid=)")
    return map(name_of, cells) if int in set(map(type, cells)) else iter(cells)  # type: ignore[arg-type]


def distinct(uids: list[str], table: Table) -> Texts:
    """Uids of a table; none may come twice."""
    packed = Texts.of_uids(uids)
    row = packed.first_repeat()
    if row is not None:
        rule = f"uids must differ, but {quoted(uids[row])} comes again"
        raise row_error(table, row, f"{rule}; rename one, or leave them out (--column uid=)")
    return packed


def _label_lists(cells: list[Any], cell: Cell, table: Table, first_row: int) -> tuple[list[list[RawLabel]], bool]:
    """The labels of each row, and whether they stand in lists (as they are) or in separated strings."""
    types = set(map(type, cells)) - {type(None)}
    try:
        if types <= {list}:
            return [[] if entry is None else entry for entry in cells] if None in cells else cells, True
        if types == {str}:
            return cell.split(_filled(cells)), cell.as_list
        return [_mixed(entry, cell) for entry in cells], True
    except ValueError as error:
        why, row = error.args
        rule = f"labels must be lists, as those before are, but {quoted(cells[row])} is none: {why}"
        remedy = 'mend it, or say what separates labels (--separator "|")'
        raise row_error(table, first_row + row, f"{rule}; {remedy}") from None


def _mixed(entry: Any, cell: Cell) -> list[RawLabel]:
    if isinstance(entry, str):
        return [part for part in cell.split([entry])[0] if not isinstance(part, str) or part.strip()]
    if isinstance(entry, list):
        return entry
    return [] if entry is None else [entry]


def _relevance(
    cells: list[Any] | None, counts: NDArray[np.int64], cell: Cell, table: Table, first_row: int
) -> NDArray[np.float32]:
    """One number a label; 1 where a row has no relevance."""
    if cells is None:
        return np.ones(int(counts.sum()), dtype=np.float32)
    if set(map(type, cells)) != {list}:
        cells = [
            _relevance_list(entry, count, cell, table, first_row + row)
            for row, (entry, count) in enumerate(zip(cells, counts.tolist(), strict=True))
        ]
    lengths = np.fromiter(map(len, cells), dtype=np.int64, count=len(cells))
    if not np.array_equal(lengths, counts):
        row = int(np.argmax(lengths != counts))
        rule = f"relevance must have one number per label ({counts[row]}), but has {lengths[row]}"
        raise row_error(table, first_row + row, rule)
    return single(np.array(list(chain.from_iterable(cells)), dtype=np.float64))


def _relevance_list(entry: Any, count: int, cell: Cell, table: Table, row: int) -> list[float]:
    if entry is None or (isinstance(entry, str) and not entry.strip()):
        return [1.0] * count
    if not isinstance(entry, str):
        return entry if isinstance(entry, list) else [entry]
    try:
        parts = cell.split([entry])[0]
        # A blank part belongs to a blank label, which is left out, or else is refused as not a number.
        return [float(part) if name_of(part).strip() else np.nan for part in parts]
    except (ValueError, OverflowError):
        rule = f"relevance must be numbers written as the labels are, but is {quoted(entry)}"
        raise row_error(table, row, rule) from None
