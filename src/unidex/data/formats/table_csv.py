"""CSV and TSV tables: a header line, then one row a record; a quoted cell may hold line ends."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

from unidex.data.files import chunks, decoded
from unidex.errors import DataError, listed, quoted

_ROWS = 8192
# The largest limit that every platform takes; the csv module refuses cells above 128 KB of itself.
_CELL_BYTES = 2**31 - 1


class CsvTable:
    """A CSV or TSV file."""

    def __init__(self, file: Path, *, tabs: bool) -> None:
        self.file = file
        self._delimiter = "\t" if tabs else self._guess_delimiter()
        self._width = 0  # not known before the header
        header = next(self._numbered(), None)
        if header is None:
            raise DataError(
                "the first line must name the columns (such as text and labels), but the file has only blank lines",
                file=file,
                line=1,
            )
        self.names: list[str] = header[1]
        self._width = len(self.names)

    def blocks(self, columns: Mapping[str, str]) -> Iterator[dict[str, list[Any]]]:
        """Some thousand rows at a time, as role -> cells."""
        places = {role: self.names.index(name) for role, name in columns.items()}
        records = self._records()
        first_row = -1  # the header
        while batch := self._take(records):
            rows = [row for row in batch if not self._is_blank(row)]
            self._check_width(rows, first_row)
            start = 1 if first_row == -1 and rows else 0
            first_row += len(rows)
            if len(rows) > start:
                yield {role: list(map(itemgetter(place), rows[start:])) for role, place in places.items()}

    def line(self, row: int) -> int:
        """The line in which a row begins."""
        return next(islice(self._numbered(), row + 1, None))[0]

    def _guess_delimiter(self) -> str:
        """The mark in the header: spreadsheets of many countries write a semicolon, and some a tab."""
        _, block = next(chunks(self.file))
        # A header in another encoding gets its error, with the line, from the reading of the rows.
        header = block[: block.find(b"\n") + 1 or len(block)].decode(errors="replace")
        return next((mark for mark in ",;\t" if mark in header), ",")

    def _records(self) -> Any:
        # newline="\n": a line ends there alone, so that U+2028 and lone returns stay in their cells.
        pieces = (io.StringIO(decoded(block, self.file, line), newline="\n") for line, block in chunks(self.file))
        # strict: a quote that never closes would swallow the rest of the file as one cell.
        return csv.reader(chain.from_iterable(pieces), delimiter=self._delimiter, strict=True)

    def _take(self, records: Any) -> list[list[str]]:
        try:
            return _next_rows(records, _ROWS)
        except csv.Error:
            # The batch is lost, so the bad record is found by going through the file one by one.
            for _ in self._numbered():
                pass
            raise

    def _numbered(self) -> Iterator[tuple[int, list[str]]]:
        """Every record with the line in which it begins, the header first, blank lines left out."""
        records = self._records()
        while True:
            line = records.line_num + 1
            try:
                batch = _next_rows(records, 1)
            except csv.Error as error:
                raise DataError(
                    f"the row breaks the rules of CSV ({error}); a cell that holds quotes, separators or line ends "
                    "must stand in quotes, with quotes inside doubled",
                    file=self.file,
                    line=line,
                ) from None
            if not batch:
                return
            if not self._is_blank(batch[0]):
                yield line, batch[0]

    def _is_blank(self, row: list[str]) -> bool:
        """Whether a line is no row: blank, unless the table has one column, whose cells may be."""
        return not row or (len(row) == 1 and self._width != 1 and not row[0].strip())

    def _check_width(self, rows: list[list[str]], first_row: int) -> None:
        width = len(self.names)
        if set(map(len, rows)) <= {width}:
            return
        row = next(number for number, cells in enumerate(rows) if len(cells) != width)
        raise DataError(
            f"a row must have {width} cells, as the header has ({listed(map(quoted, self.names))}), "
            f"but has {len(rows[row])}; quote cells that hold the separator {quoted(self._delimiter)}",
            file=self.file,
            line=self.line(first_row + row),
        )


def _next_rows(records: Any, count: int) -> list[list[str]]:
    # The limit belongs to the whole process, so that it is lifted only while our rows are parsed.
    limit = csv.field_size_limit(_CELL_BYTES)
    try:
        return list(islice(records, count))
    finally:
        csv.field_size_limit(limit)
