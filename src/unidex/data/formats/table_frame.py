"""Tables in memory: a pandas or polars data frame, a dict of columns, or pairs of a text and its labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from unidex.data.read_options import ROLES
from unidex.errors import DataError, quoted

_BLOCK = 10_000
_TEXTS = ("text", "title", "content")


class FrameTable:
    """A data frame as a table; its rows are counted from 1.

    >>> table = FrameTable([("red shoe", ["Shoe"]), ("straw hat", "Hat")])
    >>> table.names, list(table.blocks({"labels": "labels"}))
    (['text', 'labels'], [{'labels': [['Shoe'], 'Hat']}])
    """

    def __init__(self, data: Any) -> None:
        self.file = Path("data frame")
        self._columns = _columns_of(data)
        self.names: list[str] = list(self._columns)

    def blocks(self, columns: Mapping[str, str]) -> Iterator[dict[str, list[Any]]]:
        """Some thousand rows at a time, as role -> cells."""
        cells = {role: _as_list(self._columns[name]) for role, name in columns.items()}
        num_rows = max(map(len, cells.values()), default=0)
        for start in range(0, num_rows, _BLOCK):
            rows = slice(start, start + _BLOCK)
            yield {role: [self._cell(role, cell) for cell in values[rows]] for role, values in cells.items()}

    def line(self, row: int) -> int:
        """The number of a row."""
        return row + 1

    def _cell(self, role: str, cell: Any) -> Any:
        if hasattr(cell, "tolist"):
            cell = cell.tolist()
        if cell is None or (isinstance(cell, float) and cell != cell) or type(cell).__name__ in ("NAType", "NaTType"):
            return None
        if isinstance(cell, tuple | set | frozenset):
            cell = sorted(cell, key=str) if isinstance(cell, set | frozenset) else list(cell)
        if role in _TEXTS and not isinstance(cell, str):
            raise DataError(f"a {role} must be a string, but one is {quoted(cell)}; convert the column", file=self.file)
        if role in ROLES and not isinstance(cell, str | int | float | list):
            raise DataError(f"{role} must be strings, numbers or lists, but one is {quoted(cell)}", file=self.file)
        return cell


def is_frame(data: Any) -> bool:
    """Whether data is a table in memory rather than the name of a file."""
    return hasattr(data, "columns") or isinstance(data, Mapping) or (isinstance(data, Sequence) and not _is_name(data))


def _is_name(data: Any) -> bool:
    return isinstance(data, str | bytes)


def _columns_of(data: Any) -> dict[str, Any]:
    if isinstance(data, Mapping):
        columns = dict(data)
    elif hasattr(data, "columns"):
        columns = {name: data[name] for name in data.columns}
    else:
        for row in data:
            if _is_name(row) or not isinstance(row, Sequence) or len(row) != 2:
                raise DataError(f"pairs must be a text and its labels each, but one is {quoted(row)}")
        columns = {"text": [text for text, _ in data], "labels": [labels for _, labels in data]}
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1:
        raise DataError(f"columns must be of one length, but have {sorted(lengths)}")
    return {str(name): column for name, column in columns.items()}


def _as_list(column: Any) -> list[Any]:
    for name in ("to_list", "tolist"):
        if hasattr(column, name):
            return list(getattr(column, name)())
    return list(column)
