"""Tables with a column of texts and a column of labels: CSV, TSV, JSON lines (each also gzipped), Parquet, XLSX.

A data set is one file, or a folder with a table ``train`` and, where they exist, ``test`` and ``labels``, as
docs/reference/data-formats.md describes them.
"""

from __future__ import annotations

import logging
from itertools import chain
from pathlib import Path
from typing import Any

from unidex.data.dataset import Dataset
from unidex.data.formats.cells import guess
from unidex.data.formats.columns import text_columns
from unidex.data.formats.merge import Source, Sources, assemble
from unidex.data.formats.table_files import Table, kind_of, open_table, stem_of
from unidex.data.formats.table_frame import FrameTable
from unidex.data.formats.table_rows import string_cells
from unidex.data.read_options import ReadOptions
from unidex.errors import DataError, listed

_logger = logging.getLogger(__name__)
_TRAIN = ("train", "trn", "training")
_TEST = ("test", "tst")
_LABELS = ("labels", "lbl", "label")


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
    if not path.exists():
        raise DataError("the file or folder must exist, but does not", file=path)
    folder = path if path.is_dir() else None
    train, test, labels = path, options.test, options.labels
    if folder is not None:
        found = _find(folder, _TRAIN)
        if found is None:
            raise DataError(
                "a folder of tables must hold train.csv, .tsv, .jsonl, .parquet or .xlsx, but does not", file=path
            )
        train = found
        test = test or _find(folder, _TEST)
        labels = labels or _find(folder, _LABELS)
    # An empty test file in the folder says that there are no test texts.
    no_texts = test is None or (
        test.parent == folder and kind_of(test) == "json" and test.is_file() and test.stat().st_size == 0
    )
    sources = Sources(
        train=_source(open_table(train), options),
        test=None if test is None or no_texts else _source(open_table(test), options),
        labels=labels,
        has_test=test is not None,
        filters=folder,
    )
    strings = (
        string_cells(source.table, source.columns["labels"])
        for source in (sources.train, sources.test)
        if source is not None
    )
    cell = guess(chain.from_iterable(strings), options.separator)
    name = stem_of(path) if folder is None else path.resolve().name
    return assemble(name, path, sources, cell, options)


def read_frame(data: Any, options: ReadOptions) -> Dataset:
    """Read a table in memory, with a table of test texts in a file where the options name one."""
    test = None if options.test is None else _source(open_table(options.test), options)
    train = _source(FrameTable(data), options)
    sources = Sources(train, test, options.labels, has_test=test is not None)
    strings = [string_cells(source.table, source.columns["labels"]) for source in (train, test) if source is not None]
    return assemble("frame", train.table.file, sources, guess(chain.from_iterable(strings), options.separator), options)


def _source(table: Table, options: ReadOptions) -> Source:
    columns = text_columns(table.names, options.columns, options.text, table.file)
    _logger.info("%s: columns are %s", table.file, ", ".join(f"{role}={name}" for role, name in columns.items()))
    return Source(table, columns)


def _find(folder: Path, stems: tuple[str, ...]) -> Path | None:
    files = _candidates(folder, stems)
    if len(files) > 1:
        raise DataError(
            f"a folder must hold one table {stems[0]}, but has {listed(file.name for file in files)}; "
            "take all but one away",
            file=folder,
        )
    return files[0] if files else None


def _candidates(folder: Path, stems: tuple[str, ...]) -> list[Path]:
    return [
        file
        for file in sorted(folder.iterdir())
        if stem_of(file).lower() in stems and kind_of(file) is not None and file.is_file()
    ]
