"""Tables with a column of texts and a column of labels: CSV, TSV, JSON lines (each also gzipped) and Parquet.

A data set is one file, or a folder with a table ``train`` (or trn, training), and where they exist ``test`` (or tst) and
``labels`` (or lbl, label). A table of labels has the columns uid and text; without one, a label is its own text. Without
a table of test texts, a seeded share of the rows becomes test. An empty ``test.jsonl`` in a folder is not that: it says
that there are no test texts. A folder may also hold filter pairs, filter_labels_train.txt and filter_labels_test.txt.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from unidex.data.dataset import Dataset, Split, split_rows
from unidex.data.formats.cells import guess
from unidex.data.formats.columns import text_columns
from unidex.data.formats.numbering import Numbering
from unidex.data.formats.table_files import Table, kind_of, open_table, stem_of
from unidex.data.formats.table_rows import Rows, read_labels, string_cells
from unidex.data.options import ReadOptions
from unidex.data.reading import read_filter_pairs
from unidex.errors import DataError, listed

NAME = "table"

_logger = logging.getLogger(__name__)
_TRAIN = ("train", "trn", "training")
_TEST = ("test", "tst")
_LABELS = ("labels", "lbl", "label")


@dataclass(frozen=True)
class Files:
    """The files of a data set of tables; ``folder`` is where its filter pairs are, if anywhere."""

    train: Path
    test: Path | None
    labels: Path | None
    folder: Path | None


def detects(path: Path) -> bool:
    """A file whose ending is that of a table, or a folder with a table called train."""
    try:
        if path.is_dir():
            return bool(_candidates(path, _TRAIN))
        return path.is_file() and kind_of(path) is not None
    except OSError:
        return False


def read(path: Path, options: ReadOptions) -> Dataset:
    """Read one table, or a folder of tables."""
    files = _locate(path, options)
    train, test = _opened(files.train, files.folder), _opened(files.test, files.folder)
    return read_tables(path.resolve().name if path.is_dir() else stem_of(path), files, train, test, options)


def read_tables(name: str, files: Files, train: Table | None, test: Table | None, options: ReadOptions) -> Dataset:
    """A data set of these tables; None is a table without rows, if the file for it exists."""
    tables = [table for table in (train, test) if table is not None]
    columns = {id(table): text_columns(table.names, options.columns, options.text, table.file) for table in tables}
    for table in tables:
        _logger.info("%s: columns %s", table.file, columns[id(table)])
    cell = guess(
        chain.from_iterable(string_cells(table, columns[id(table)]["labels"]) for table in tables), options.separator
    )
    return assembled(name, files, [(table, columns[id(table)]) for table in tables], cell, options)
