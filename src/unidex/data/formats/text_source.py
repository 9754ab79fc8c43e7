"""Texts alone, each with the cells that came with it: rows of a table, lines of a text file, or whole documents."""

from __future__ import annotations

import logging
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from unidex.data.files import chunks, decoded, lines
from unidex.data.formats.columns import looks_like_header
from unidex.data.formats.table_files import Kind, Table, find_columns, kind_of, open_table
from unidex.data.read_options import ReadOptions, TableForm
from unidex.errors import DataError, quoted

_logger = logging.getLogger(__name__)
_LINES = 1024
_STANDARD_INPUT = "standard input"
_KEPT = "column "  # before the number of a column that is kept as it is
# Names of --format; a table in standard input needs one.
FORMATS: dict[str, Kind | None] = {
    "csv": "csv",
    "tsv": "tsv",
    "jsonl": "json",
    "parquet": "parquet",
    "xlsx": "xlsx",
    "text": None,
}
# Files that people try, and that would be refused as text in another encoding.
_NOT_TEXT = dict.fromkeys((".xls", ".ods", ".numbers"), "save it as .xlsx or .csv")
_NOT_TEXT |= dict.fromkeys((".pdf", ".doc", ".docx", ".odt", ".rtf"), "save it as plain text (.txt)")
_NOT_TEXT |= dict.fromkeys((".zip", ".7z", ".tar", ".bz2", ".xz"), "unpack it first")


@dataclass(frozen=True)
class TextBlock:
    """Some texts, and the cells of each column beside them."""

    texts: list[str]
    cells: list[list[Any]]


@dataclass(frozen=True)
class TextSource:
    """Texts that are read when they are asked for.

    Attributes:
        names: the columns.
        blocks: the texts and their cells; can be read once.
        schema: the Arrow types of the columns, if the source has such.
    """

    names: list[str]
    blocks: Iterator[TextBlock]
    schema: Any = None

    def texts(self) -> Iterator[str]:
        """The texts alone."""
        return (text for block in self.blocks for text in block.texts)


@contextmanager
def open_texts(files: Sequence[str | Path], options: ReadOptions, *, documents: bool = False) -> Iterator[TextSource]:
    """Open texts: a table by the ending of its name or ``options.format``, else one text per line.

    Args:
        files: one file ("-" is standard input), or with ``documents`` any number of files, each of which is one text.
        options: which columns to read; columns of the training are used where none are given.
        documents: whether a file is one text.
    """
    trained = options.trained or TableForm()
    if options.format is not None and options.format not in FORMATS:
        raise DataError(f"--format must be one of {', '.join(FORMATS)}, but is {quoted(options.format)}")
    for name in files:
        if remedy := _NOT_TEXT.get(Path(name).suffix.lower()):
            raise DataError(f"texts must be in a table or in plain text, but this is neither; {remedy}", file=name)
    if documents:
        options.refuse_others((), "whole documents")
        yield TextSource(["file"], _documents(files))
        return
    if len(files) != 1:
        raise DataError(
            f"there must be one FILE of texts, but there are {len(files)}; if each is one text, add --document"
        )
    from_input = str(files[0]) == "-"
    file = Path(_STANDARD_INPUT if from_input else files[0])
    kind = kind_of(file) if options.format is None else FORMATS[options.format]
    with ExitStack() as stack:
        if kind is not None and from_input:
            file = stack.enter_context(_copied_input(kind))
        if kind is None:
            options.refuse_others(("format",), "a file of one text per line; it has no columns")
            numbered = _input_lines() if from_input else lines(file)
            yield TextSource(["text"], _line_blocks(numbered, file, trained))
        else:
            yield table_source(open_table(file, kind), options)


def table_source(table: Table, options: ReadOptions) -> TextSource:
    """The texts of a table with all of its cells."""
    columns = find_columns(table, options, labelled=False)
    for name in table.names:
        if table.names.count(name) > 1:
            raise DataError(
                f"column names must differ, but {quoted(name)} comes twice; rename one", file=table.file, line=1
            )
    kept = {f"{_KEPT}{number}": name for number, name in enumerate(table.names)}

    def blocks() -> Iterator[TextBlock]:
        for block in table.blocks(columns | kept):
            parts = [[cell or "" for cell in block[role]] for role in columns]
            texts = parts[0] if len(parts) == 1 else [_joined(row) for row in zip(*parts, strict=True)]
            yield TextBlock(texts, [block[role] for role in kept])

    return TextSource(table.names, blocks(), getattr(table, "schema", None))


def _joined(parts: tuple[str, ...]) -> str:
    """Title and content, as training joins them."""
    return " ".join(part for part in parts if part)


def _line_blocks(numbered: Iterator[tuple[int, str]], file: Path, trained: TableForm) -> Iterator[TextBlock]:
    first = True
    while block := [text for _, text in islice(numbered, _LINES)]:
        if first:
            _warn_of_header(block[0], file, trained)
        first = False
        yield TextBlock(block, [block])


def _warn_of_header(line: str, file: Path, trained: TableForm) -> None:
    """A table that is read as lines of text would be predicted with its header and its other columns."""
    for mark in ("\t", ";", ","):
        cells = [cell.strip().strip('"') for cell in line.split(mark)]
        if len(cells) > 1 and (looks_like_header(cells) or set(cells) & set(trained.columns.values())):
            message = (
                "%s: the first line looks like the header of a table, but is read as a text. For a table: --format %s"
            )
            _logger.warning(message, file, "tsv" if mark == "\t" else "csv")
            return


def _input_lines() -> Iterator[tuple[int, str]]:
    for number, line in enumerate(_input(), start=1):
        yield number, decoded(line, Path(_STANDARD_INPUT), number).rstrip("\r\n")


def _input() -> BinaryIO:
    return sys.stdin.buffer


@contextmanager
def _copied_input(kind: Kind) -> Iterator[Path]:
    """Standard input as a file: a table is read more than once, first for its columns."""
    with tempfile.TemporaryDirectory(prefix="unidex-") as folder:
        ending = "jsonl" if kind == "json" else kind
        file = Path(folder) / f"{_STANDARD_INPUT.replace(' ', '-')}.{ending}"
        with file.open("wb") as copy:
            shutil.copyfileobj(_input(), copy)
        yield file


def _documents(files: Sequence[str | Path]) -> Iterator[TextBlock]:
    for name in files:
        if str(name) == "-":
            text = decoded(_input().read(), Path(_STANDARD_INPUT), 1)
        else:
            file = Path(name)
            is_empty = file.is_file() and file.stat().st_size == 0
            text = "" if is_empty else "".join(decoded(block, file, line) for line, block in chunks(file))
        yield TextBlock([text], [[str(name)]])
