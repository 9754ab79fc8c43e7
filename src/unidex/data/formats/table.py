"""Tables with a column of texts and a column of labels: CSV, TSV, JSON lines (each also gzipped), Parquet, XLSX.

A data set is one file, or a folder with a table ``train`` and, where they exist, ``test`` and ``labels``, as
docs/reference/data-formats.md describes them.
"""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

from unidex.data.dataset import Dataset
from unidex.data.formats.cells import first_cells, guess
from unidex.data.formats.merge import Source, Sources, assemble
from unidex.data.formats.table_files import find_columns, kind_of, open_table, stem_of
from unidex.data.formats.table_frame import FrameTable
from unidex.data.formats.table_rows import string_cells
from unidex.data.read_options import ReadOptions
from unidex.errors import DataError, listed

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
    train_source = _source(train, options)
    test_source = None if test is None or no_texts else _source(test, options)
    strings = (
        string_cells(source.table, source.columns["labels"])
        for source in (train_source, test_source)
        if source is not None
    )
    sample = first_cells(chain.from_iterable(strings))
    cell = guess(sample, options.separator_to_use())
    sources = Sources(
        train=train_source,
        test=test_source,
        labels=labels,
        has_test=test is not None,
        filters=folder,
        as_lists=cell.as_list or not sample,
    )
    name = stem_of(path) if folder is None else path.resolve().name
    return assemble(name, path, sources, cell, options)


def read_frame(data: Any, options: ReadOptions) -> Dataset:
    """Read a table in memory, with a table of test texts in a file where the options name one."""
    table = FrameTable(data)
    train = Source(table, find_columns(table, options))
    test = None if options.test is None else _source(options.test, options)
    strings = [string_cells(source.table, source.columns["labels"]) for source in (train, test) if source is not None]
    cell = guess(first_cells(chain.from_iterable(strings)), options.separator_to_use())
    sources = Sources(train, test, options.labels, has_test=test is not None)
    return assemble("frame", table.file, sources, cell, options)


def _source(file: Path, options: ReadOptions) -> Source:
    table = open_table(file)
    return Source(table, find_columns(table, options))


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
