"""JSON lines tables: one object per line, its keys are the columns."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec

from unidex.data.files import chunks, decoded
from unidex.data.read_options import ROLES
from unidex.errors import DataError, quoted

_logger = logging.getLogger(__name__)
_SAMPLE = 1000
_BOM = b"\xef\xbb\xbf"
_Number = int | float
# Missing keys are refused where a typing mistake in a key would else lose texts or labels without a word.
_TYPES: dict[str, tuple[Any, ...]] = {
    "text": (str | None,),
    "title": (str | None, None),
    "content": (str | None, None),
    "labels": (str | _Number | list[str | _Number] | None,),
    "relevance": (list[float] | float | str | None, None),
    "uid": (str | int | None, None),
}
_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class JsonTable:
    """A JSON lines file; its columns are the keys of its first 1000 objects."""

    def __init__(self, file: Path) -> None:
        self.file = file
        names: dict[str, None] = {}
        decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
        for line, row in islice(self._lines(), _SAMPLE):
            names.update(dict.fromkeys(self._decode(decoder, row, line)))
        self.names: list[str] = list(names)
        self._warned = set(names)

    def blocks(self, columns: Mapping[str, str]) -> Iterator[dict[str, list[Any]]]:
        """Some thousand rows at a time, as role -> cells."""
        typed = {role: name for role, name in columns.items() if role in ROLES}
        kept = {role: name for role, name in columns.items() if role not in ROLES}
        fields = [(role, *_TYPES[role]) for role in sorted(typed, key=lambda role: len(_TYPES[role]))]
        row_type = msgspec.defstruct("Row", fields, rename=typed, gc=False)
        decoder, plain = msgspec.json.Decoder(row_type), msgspec.json.Decoder(dict[str, Any])
        for first_line, block in self._chunks():
            rows = self._rows(decoder, block, first_line)
            if not rows:
                continue
            cells = {role: list(map(attrgetter(role), rows)) for role in typed}
            if kept:
                # A type has one field per key, so that a column in two roles is decoded a second time.
                rows = self._rows(plain, block, first_line)
                self._look_for_late_keys(rows)
                cells |= {role: [row.get(name) for row in rows] for role, name in kept.items()}
            yield cells

    def _rows(self, decoder: Any, block: bytes, first_line: int) -> list[Any]:
        try:
            rows: list[Any] = decoder.decode_lines(block)
        except _ERRORS:
            rows = []
        # The decoder takes blank lines, two objects on a line and one object on two; a table has only the first.
        if len(rows) != block.count(b"\n") + (not block.endswith(b"\n")):
            rows = [self._decode(decoder, row, line) for line, row in _numbered(block, first_line)]
        return rows

    def _look_for_late_keys(self, rows: list[dict[str, Any]]) -> None:
        for key in {key for row in rows for key in row} - self._warned:
            self._warned.add(key)
            message = "%s: the key %s is in none of the first %s rows; it is left out"
            _logger.warning(message, self.file, quoted(key), f"{_SAMPLE:,}")

    def line(self, row: int) -> int:
        """The line of a row."""
        return next(islice(self._lines(), row, None))[0]

    def _chunks(self) -> Iterator[tuple[int, bytes]]:
        for first_line, block in chunks(self.file):
            yield first_line, block.removeprefix(_BOM) if first_line == 1 else block

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        for first_line, block in self._chunks():
            yield from _numbered(block, first_line)

    def _decode(self, decoder: Any, row: bytes, line: int) -> Any:
        try:
            return decoder.decode(row)
        except _ERRORS as error:
            decoded(row, self.file, line)
            why = "the line is a list" if row.lstrip().startswith(b"[") else str(error)
            remedy = "write one object per line, as pandas does with to_json(orient='records', lines=True)"
            if isinstance(error, msgspec.ValidationError) and row.lstrip().startswith(b"{"):
                remedy = 'a text is a string, labels are ["a", "b"] (or [] for none), relevance is [1, 0.5]'
            raise DataError(
                f"a line must be a JSON object with the columns of the table, but: {why}; {remedy}",
                file=self.file,
                line=line,
            ) from None


def _numbered(block: bytes, first_line: int) -> Iterator[tuple[int, bytes]]:
    """Lines that are not blank, with their numbers."""
    for line, row in enumerate(block.split(b"\n"), first_line):
        if row.strip():
            yield line, row
