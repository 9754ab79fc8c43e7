"""Files that are tables: which kind a file is, and rows of any kind as lists of cells."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

from unidex.data.formats.columns import columns_of_training, missing_columns, text_columns
from unidex.data.read_options import ReadOptions
from unidex.errors import DataError, listed, quoted

_logger = logging.getLogger(__name__)

Kind = Literal["csv", "tsv", "json", "parquet", "xlsx"]
_KINDS: dict[str, Kind] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".xlsx": "xlsx",
    ".xlsm": "xlsx",
}


class Table(Protocol):
    """Rows of named columns in a file."""

    file: Path  # where it is
    names: list[str]  # its columns

    def blocks(self, columns: Mapping[str, str]) -> Iterator[dict[str, list[Any]]]:
        """Some thousand rows at a time, as role -> cells, for these columns (role -> column).

        Cells of a role that is not one of ``ROLES`` are given as they are.
        """

    def line(self, row: int) -> int:
        """The line in which a row starts. It is searched on demand: only the error of a bad table needs it."""


def row_error(table: Table, row: int, message: str) -> DataError:
    """The error of a row, with its line."""
    return DataError(message, file=table.file, line=table.line(row))


def kind_of(file: Path) -> Kind | None:
    """The kind of table a file is, by its name.

    >>> kind_of(Path("train.csv")), kind_of(Path("a.JSONL.gz")), kind_of(Path("notes.txt"))
    ('csv', 'json', None)
    """
    name = file.name.lower().removesuffix(".gz")
    kind = _KINDS.get(Path(name).suffix)
    return None if kind in ("parquet", "xlsx") and file.name.lower().endswith(".gz") else kind


def stem_of(file: Path) -> str:
    """The name of a table without its endings.

    >>> stem_of(Path("data/train.csv.gz"))
    'train'
    """
    return Path(Path(file.name).stem if file.suffix.lower() == ".gz" else file.name).stem


def open_table(file: Path, kind: Kind | None = None) -> Table:
    """The table in a file; its columns are known, its rows are read when they are asked for.

    The ending of its name tells the kind of table, unless it is given.
    """
    kind = kind or kind_of(file)
    if kind == "json":
        from unidex.data.formats.table_json import JsonTable

        return JsonTable(file)
    if kind == "parquet":
        from unidex.data.formats.table_parquet import ParquetTable

        return ParquetTable(file)
    if kind == "xlsx":
        from unidex.data.formats.table_xlsx import XlsxTable

        return XlsxTable(file)
    if kind is not None:
        from unidex.data.formats.annif_subjects import SubjectTable, is_subject_tsv
        from unidex.data.formats.annif_vocabulary import VocabularyTable, is_vocabulary_tsv
        from unidex.data.formats.table_csv import CsvTable

        # Corpora and vocabularies of Annif have no header: their first row would be one.
        if kind == "tsv" and is_subject_tsv(file):
            return SubjectTable(file, tabs=True)
        if kind == "tsv" and is_vocabulary_tsv(file):
            return VocabularyTable(file)

        return CsvTable(file, tabs=kind == "tsv")
    raise DataError(
        "a table must end in .csv, .tsv, .jsonl, .ndjson, .json (all also with .gz), .parquet or .xlsx; "
        "rename or convert it",
        file=file,
    )


def find_columns(table: Table, options: ReadOptions, *, labelled: bool = True) -> dict[str, str]:
    """Role -> column of a table of texts: as the user says, as in the training of a model, or by their names."""
    trained = {} if options.trained is None else options.trained.columns
    given = columns_of_training(table.names, options.columns, trained)
    columns = text_columns(table.names, given, options.text, table.file, labelled=labelled)
    unread = [name for name in table.names if name not in columns.values()]
    _logger.info(
        "%s: columns are %s%s",
        table.file,
        ", ".join(f"{role}={name}" for role, name in columns.items()),
        f"; not read: {listed(unread)}" if unread else "",
    )
    if absent := missing_columns(table.names, options.columns, trained):
        message = "%s: the model was trained on the column %s too, but this table has none; the texts are shorter"
        _logger.warning(message, table.file, listed(map(quoted, absent)))
    return columns
