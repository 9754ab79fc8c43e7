"""XLSX tables, by openpyxl: the first sheet, whose first row that is not blank names the columns."""

from __future__ import annotations

import datetime
import logging
import zipfile
from collections.abc import Generator, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from unidex import progress
from unidex.data.formats.label_numbers import name_of
from unidex.data.read_options import ROLES
from unidex.errors import DataError, MissingExtraError, listed, quoted

_logger = logging.getLogger(__name__)
_ROWS = 8192
_NUMBERS = ("labels", "relevance")  # roles in which a number stays a number


def load_openpyxl() -> Any:
    """Import openpyxl, which is optional."""
    try:
        import openpyxl
    except ImportError:
        raise MissingExtraError("XLSX files", "xlsx") from None
    return openpyxl


class XlsxTable:
    """The first sheet of a workbook. A message gives the number of a row as the spreadsheet shows it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._openpyxl = load_openpyxl()
        if not file.exists():
            raise DataError("the file must exist, but does not", file=file)
        self._sheets: list[str] = []
        numbered = self._numbered()
        header = next(numbered, None)
        numbered.close()
        if header is None:
            raise DataError(
                "the first row must name the columns (such as text and labels), but the first sheet is empty", file=file
            )
        if len(self._sheets) > 1:
            message = "%s: the first of %d sheets is read, %s"
            _logger.info(message, file, len(self._sheets), quoted(self._sheets[0]))
        cells = list(header[1])
        while cells and cells[-1] is None:
            cells.pop()
        self.names: list[str] = [_text(cell) for cell in cells]

    def blocks(self, columns: Mapping[str, str]) -> Iterator[dict[str, list[Any]]]:
        """Some thousand rows at a time, as role -> cells."""
        places = {role: self.names.index(name) for role, name in columns.items()}
        numbered = islice(self._numbered(), 1, None)
        while rows := list(islice(numbered, _ROWS)):
            for line, row in rows:
                self._check_width(line, row)
            yield {role: [_cell(role, row, place) for _, row in rows] for role, place in places.items()}

    def line(self, row: int) -> int:
        """The number of a row in the sheet."""
        return next(islice(self._numbered(), row + 1, None))[0]

    def _check_width(self, line: int, row: tuple[Any, ...]) -> None:
        beyond = [cell for cell in row[len(self.names) :] if cell is not None]
        if beyond:
            raise DataError(
                f"every column must have a name in the first row ({listed(map(quoted, self.names))}), but this row has "
                f"{quoted(beyond[0])} beyond them; name the column or clear the cell",
                file=self.file,
                line=line,
            )

    def _numbered(self) -> Generator[tuple[int, tuple[Any, ...]]]:
        """Every row that is not blank, with its number in the sheet, the header first."""
        try:
            book = self._openpyxl.load_workbook(self.file, read_only=True, data_only=True)
        # A damaged workbook fails in many ways inside the zip and its XML; all mean the same to the user.
        except Exception as error:
            raise self._damaged(error) from None
        try:
            sheet, self._sheets = book.worksheets[0], book.sheetnames
            total = sheet.max_row or 0
            # The size that some programs write is wrong: one row.
            sheet.reset_dimensions()
            with progress.task(f"reading {self.file.name}", total if total > 1 else None, unit="rows") as advance:
                for number, row in enumerate(sheet.iter_rows(values_only=True), start=1):
                    advance(1)
                    if any(cell is not None and cell != "" for cell in row):
                        yield number, row
        except (zipfile.BadZipFile, KeyError, IndexError, SyntaxError, ValueError, TypeError, OSError) as error:
            raise self._damaged(error) from None
        finally:
            book.close()

    def _damaged(self, error: Exception) -> DataError:
        return DataError(
            f"the file must be an XLSX workbook, but cannot be read ({error}); save it again as .xlsx or .csv",
            file=self.file,
        )


def _cell(role: str, row: tuple[Any, ...], place: int) -> Any:
    value = row[place] if place < len(row) else None
    if role not in ROLES:
        return value
    if role in _NUMBERS and isinstance(value, int | float) and not isinstance(value, bool):
        return value
    return _text(value)


def _text(value: Any) -> str:
    """A cell as a spreadsheet shows it, more or less: whole numbers without a point, days without hours.

    >>> _text(None), _text(3.0), _text(datetime.datetime(2026, 5, 1))
    ('', '3', '2026-05-01')
    """
    if value is None:
        return ""
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        return value.date().isoformat()
    return name_of(value)
