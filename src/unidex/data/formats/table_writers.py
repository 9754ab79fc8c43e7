"""Tables that are written block by block, complete or not at all: CSV, TSV, JSON lines, Parquet, XLSX."""

from __future__ import annotations

import csv
import gzip
import io
import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from unidex.data.formats.table_files import kind_of
from unidex.data.formats.table_xlsx import load_openpyxl
from unidex.errors import DataError, MissingExtraError, listed, quoted
from unidex.storage.atomic import unfinished_file
from unidex.storage.disk_errors import writing

_logger = logging.getLogger(__name__)
Write = Callable[[list[list[Any]]], None]  # takes the cells of some rows, column by column
# The limits of a sheet. A row more, or a longer cell, makes a workbook that spreadsheets call damaged.
_XLSX_ROWS = 1_048_576
_XLSX_CELL = 32_767
_NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def check_target(file: Path) -> None:
    """Refuse a file that cannot be written, before the work of predicting."""
    kind = kind_of(file)
    if kind is None or (kind == "json" and ".json" in file.suffixes):
        raise DataError(
            "a table to write must end in .csv, .tsv or .jsonl (all also with .gz), .parquet or .xlsx; name it so",
            file=file,
        )
    folder = file.resolve().parent
    if not folder.is_dir():
        raise DataError("the folder of the file to write must exist, but does not; make it first", file=file)
    if not os.access(folder, os.W_OK):
        raise DataError("the file cannot be written: permission denied in its folder; name another", file=file)
    if file.is_dir():
        raise DataError("the table to write must be a file, but this is a folder; name another", file=file)
    if kind == "xlsx":
        load_openpyxl()
    elif kind == "parquet":
        _arrow()


@contextmanager
def table_writer(file: Path, names: Sequence[str], types: Mapping[str, Any]) -> Iterator[Write]:
    """Write a table; the file appears under its name when all is written.

    Args:
        file: its ending tells the kind of table.
        names: the columns.
        types: types of columns, for Parquet: str, int, float or of Arrow; others have the type of their first cells.
    """
    check_target(file)
    kind = kind_of(file)
    with writing(file), unfinished_file(file) as unfinished:
        if kind == "parquet":
            writer: AbstractContextManager[Write] = _parquet(unfinished, names, types, file)
        elif kind == "xlsx":
            writer = _xlsx(unfinished, names, file)
        else:
            is_zipped = file.suffix.lower() == ".gz"
            writer = _lines(unfinished, names, is_zipped, {"csv": ",", "tsv": "\t"}.get(kind or ""))
        with writer as write:
            yield write


@contextmanager
def _lines(file: Path, names: Sequence[str], is_zipped: bool, delimiter: str | None) -> Iterator[Write]:
    """CSV or TSV, or with no delimiter JSON lines."""
    with gzip.open(file, "wb") if is_zipped else file.open("wb") as out:
        if delimiter is None:
            encode = msgspec.json.Encoder().encode_lines

            def write(columns: list[list[Any]]) -> None:
                out.write(encode([dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]))

            yield write
            return
        text = io.TextIOWrapper(out, encoding="utf-8", newline="", write_through=False)
        table = csv.writer(text, delimiter=delimiter, lineterminator="\n")
        table.writerow(names)

        def write_rows(columns: list[list[Any]]) -> None:
            table.writerows([map(_text, row) for row in zip(*columns, strict=True)])

        yield write_rows
        text.flush()
        text.detach()


def _text(cell: Any) -> Any:
    """A cell of CSV: lists and objects as JSON, which `train` reads as a list of labels.

    >>> _text(["a", "b"]), _text(None), _text(0.5)
    ('["a", "b"]', None, 0.5)
    """
    return json.dumps(cell, ensure_ascii=False, default=str) if isinstance(cell, list | dict | tuple) else cell


def _arrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError("Parquet files", "parquet") from None
    return pyarrow


@contextmanager
def _parquet(file: Path, names: Sequence[str], types: Mapping[str, Any], shown: Path) -> Iterator[Write]:
    arrow = _arrow()
    plain = {str: arrow.string(), int: arrow.int64(), float: arrow.float64()}
    known = {name: plain.get(kind, kind) for name, kind in types.items()}
    writer: Any = None
    schema: Any = None

    def write(columns: list[list[Any]]) -> None:
        nonlocal writer, schema
        if schema is None:
            found = [known.get(name) or _type(arrow, cells) for name, cells in zip(names, columns, strict=True)]
            schema = arrow.schema(list(zip(names, found, strict=True)))
            writer = arrow.parquet.ParquetWriter(file, schema)
        try:
            arrays = [arrow.array(cells, kind.type) for cells, kind in zip(columns, schema, strict=True)]
        except (arrow.ArrowInvalid, arrow.ArrowTypeError) as error:
            raise DataError(
                f"the cells of a Parquet column must have one type, but one differs from those above it ({error}); "
                "write .csv or .jsonl instead",
                file=shown,
            ) from None
        writer.write_table(arrow.table(arrays, schema=schema))

    try:
        yield write
        if writer is None:
            write([[] for _ in names])
    finally:
        if writer is not None:
            writer.close()


def _type(arrow: Any, cells: list[Any]) -> Any:
    try:
        found = arrow.array(cells).type
    except (arrow.ArrowInvalid, arrow.ArrowTypeError):
        return arrow.string()
    # Nothing but empty cells so far: later ones are most likely texts.
    return arrow.string() if arrow.types.is_null(found) else found


@contextmanager
def _xlsx(file: Path, names: Sequence[str], shown: Path) -> Iterator[Write]:
    openpyxl = load_openpyxl()
    from openpyxl.cell import WriteOnlyCell

    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("predictions")
    sheet.freeze_panes = "A2"
    changed: set[str] = set()
    num_rows = 0

    def cell(value: Any) -> Any:
        value = _text(value)
        if not isinstance(value, str):
            return value if isinstance(value, int | float | None) or _is_time(value) else str(value)
        if _NO_XML.search(value):
            changed.add("characters that XLSX cannot hold are spaces")
            value = _NO_XML.sub(" ", value)
        if len(value) > _XLSX_CELL:
            changed.add(f"cells are cut at {_XLSX_CELL:,} characters, the limit of XLSX")
            value = value[:_XLSX_CELL]
        if not value.startswith("="):
            return value
        # A text, never a formula.
        plain = WriteOnlyCell(sheet, value)
        plain.data_type = "s"
        return plain

    def write(columns: list[list[Any]]) -> None:
        nonlocal num_rows
        num_rows += len(columns[0])
        if num_rows >= _XLSX_ROWS:
            raise DataError(
                f"an XLSX table must have at most {_XLSX_ROWS - 1:,} rows, but has more; write .csv or .parquet",
                file=shown,
            )
        for row in zip(*columns, strict=True):
            sheet.append([cell(value) for value in row])

    sheet.append([cell(name) for name in names])
    try:
        yield write
    except BaseException:
        sheet.close()
        raise
    book.save(file)
    if changed:
        _logger.warning("%s: %s.", shown, listed(changed))


def _is_time(value: Any) -> bool:
    import datetime

    return isinstance(value, datetime.date | datetime.time) and getattr(value, "tzinfo", None) is None


def free_names(wanted: Sequence[str], taken: Sequence[str]) -> list[str]:
    """Names of new columns beside those that a table has: all get the same word in front where one is taken.

    >>> free_names(["label", "uid"], ["text", "label"])
    ['predicted_label', 'predicted_uid']
    """
    names = list(wanted)
    while set(names) & set(taken):
        names = [f"predicted_{name}" for name in names]
    if names != list(wanted):
        message = "The table has columns called %s already, so that new ones are called %s ..."
        _logger.info(message, listed(quoted(name) for name in wanted if name in taken), quoted(names[0]))
    return names
