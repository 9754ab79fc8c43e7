"""The text form of LibMultiLabel: "labels<TAB>text" or "id<TAB>labels<TAB>text" per line, labels between blanks."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any

from unidex.data.dataset import Dataset
from unidex.data.files import chunks, decoded, lines
from unidex.data.formats.annif_subjects import are_uris
from unidex.data.formats.cells import Cell
from unidex.data.formats.columns import looks_like_header
from unidex.data.formats.merge import Source, Sources, assemble
from unidex.data.formats.table_files import stem_of
from unidex.data.read_options import ReadOptions
from unidex.errors import DataError, quoted

_logger = logging.getLogger(__name__)
_SAMPLE = 1000
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
    train = path / "train.txt" if folder else path
    _check_order(train)
    sources = Sources(
        train=_source(train),
        test=None if test is None else _source(test),
        labels=options.labels,
        has_test=test is not None,
    )
    name = path.resolve().name if folder else stem_of(path)
    return assemble(name, path, sources, Cell(separator=None), options)


def _check_order(file: Path) -> None:
    """Refuse or doubt a file whose text comes first: labels and texts would be swapped without a word."""
    cells = [row.split("\t") for _, row in islice(lines(file), _SAMPLE) if row]
    if any(are_uris(row[-1]) for row in cells):
        raise DataError(
            "LibMultiLabel has the labels first and the text last, but the last column has URIs; "
            "read a corpus of Annif (text, tab, <uri>s) by --format annif",
            file=file,
        )
    pairs = [row[-2:] for row in cells if len(row) in _COLUMNS]
    if sum(len(labels.split()) for labels, _ in pairs) > sum(len(text.split()) for _, text in pairs):
        message = "%s: labels are read from column %s and the text from the last, but the last has fewer words. %s"
        remedy = "If the text comes first, write a header line (text, labels) and read it by --format table."
        _logger.warning(message, file, len(cells[0]) - 1, remedy)


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
