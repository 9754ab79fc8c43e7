"""The text form of LibMultiLabel: "labels<TAB>text" or "id<TAB>labels<TAB>text" per line, labels between blanks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any

from unidex.data.dataset import Dataset
from unidex.data.files import chunks, decoded, lines
from unidex.data.formats.cells import Cell
from unidex.data.formats.columns import looks_like_header
from unidex.data.formats.merge import Source, Sources, assemble
from unidex.data.formats.table_files import stem_of
from unidex.data.read_options import ReadOptions
from unidex.errors import DataError, quoted

_COLUMNS = {2: ["labels", "text"], 3: ["uid", "labels", "text"]}
_RULE = 'a line must be "labels<TAB>text" or "id<TAB>labels<TAB>text"'


def detects(path: Path) -> bool:
    """A file, or a folder with train.txt, whose first line has one or two tabs and is not a header of columns."""
    try:
        file = path / "train.txt" if path.is_dir() else path
        if not file.is_file() or Path(file.name.lower().removesuffix(".gz")).suffix not in (".txt", ".tsv"):
            return False
        _, first = next(lines(file))
    except (OSError, DataError, StopIteration):
        return False
    cells = first.split("\t")
    return len(cells) in _COLUMNS and not looks_like_header(cells)


def read(path: Path, options: ReadOptions) -> Dataset:
    """Read one file, or a folder."""
    if options.columns or options.separator is not None:
        raise DataError(
            "LibMultiLabel files have neither column names nor a separator to choose, but --column or --separator "
            "is given; read a table with a header by --format table",
            file=path,
        )
    folder = path.is_dir()
    test = options.test
    if folder and test is None and (path / "test.txt").exists():
        test = path / "test.txt"
    sources = Sources(
        train=_source(path / "train.txt" if folder else path),
        test=None if test is None else _source(test),
        labels=options.labels,
        has_test=test is not None,
    )
    name = path.resolve().name if folder else stem_of(path)
    return assemble(name, path, sources, Cell(separator=None), options)


def _source(file: Path) -> Source:
    table = LineTable(file)
    return Source(table, {name: name for name in table.names})


class LineTable:
    """A file of such lines; all have as many tabs as the first."""

    def __init__(self, file: Path) -> None:
        self.file = file
        line, first = next(self._numbered(), (1, ""))
        cells = first.split("\t")
        if len(cells) not in _COLUMNS:
            raise DataError(f"{_RULE}, but is {quoted(first)}", file=file, line=line)
        self.names: list[str] = _COLUMNS[len(cells)]

    def blocks(self, columns: Mapping[str, str]) -> Iterator[dict[str, list[Any]]]:
        """The rows of some megabytes at a time, as role -> cells."""
        places = {role: self.names.index(name) for role, name in columns.items()}
        for first_line, block in chunks(self.file):
            text = decoded(block, self.file, first_line).replace("\r\n", "\n")
            rows = [row.split("\t") for row in text.split("\n") if row]
            if not set(map(len, rows)) <= {len(self.names)}:
                self._complain(text, first_line)
            if rows:
                yield {role: list(map(itemgetter(place), rows)) for role, place in places.items()}

    def line(self, row: int) -> int:
        """The line of a row."""
        return next(islice(self._numbered(), row, None))[0]

    def _numbered(self) -> Iterator[tuple[int, str]]:
        return ((number, row) for number, row in lines(self.file) if row)

    def _complain(self, text: str, first_line: int) -> None:
        expected = len(self.names) - 1
        for line, row in enumerate(text.split("\n"), first_line):
            if row and row.count("\t") != expected:
                raise DataError(
                    f"{_RULE}; the first line has {expected} tab(s), but this has {row.count(chr(9))}: {quoted(row)}",
                    file=self.file,
                    line=line,
                )
