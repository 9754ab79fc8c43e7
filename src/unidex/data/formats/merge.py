"""Tables of texts and labels -> one Dataset."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unidex.data.dataset import Dataset, Split, split_rows
from unidex.data.files import read_filter_pairs
from unidex.data.formats.cells import Cell, first_cells
from unidex.data.formats.label_files import read_labels
from unidex.data.formats.label_numbers import Numbering
from unidex.data.formats.table_files import Table
from unidex.data.formats.table_rows import Rows, string_cells
from unidex.data.read_options import ReadOptions, TableForm
from unidex.data.text_hashes import TextHashes
from unidex.errors import DataError, quoted

_logger = logging.getLogger(__name__)
_SHOWN = 10  # unknown labels in a message


@dataclass(frozen=True)
class Source:
    """A table and which of its columns (role -> column) to read."""

    table: Table
    columns: dict[str, str]


@dataclass(frozen=True)
class Sources:
    """Where the parts of a data set come from."""

    train: Source  # the table of train texts
    test: Source | None  # the table of test texts; None where there are none
    labels: Path | None  # a table of labels, or None for labels by first appearance, in train and then in test
    has_test: bool  # whether test is given, be it without texts; else a share of train becomes test
    filters: Path | None = None  # the folder of the filter pairs, or None
    as_lists: bool = False  # labels are lists, so that nothing is known of a separator


def assemble(name: str, path: Path, sources: Sources, cell: Cell, options: ReadOptions) -> Dataset:
    """Read all tables of a data set."""
    known = None if sources.labels is None else read_labels(sources.labels, options, _first_texts(sources.train))
    numbering = Numbering(known, strict=options.strict)
    train_rows = Rows(sources.train.table, sources.train.columns, cell, numbering)
    if len(train_rows) == 0:
        raise DataError(
            "there must be at least one train text, but the table has no rows", file=sources.train.table.file
        )
    test = sources.test
    test_rows = None if test is None else Rows(test.table, test.columns, cell, numbering)
    labels = numbering.labels()
    num_pairs = train_rows.num_pairs + (0 if test_rows is None else test_rows.num_pairs)
    _report_unknown(numbering.unknown_labels, num_pairs, sources)
    unknown = dict(numbering.unknown_labels.most_common())
    if len(labels) == 0:
        raise DataError(
            "a data set must have at least one label, but no row has one; is this the column of the labels? "
            "Name it with --column labels=NAME",
            file=path,
        )
    form = TableForm(sources.train.columns, None if sources.as_lists else cell.separator)
    train = _split(train_rows, len(labels), sources.filters, "filter_labels_train.txt")
    if sources.has_test:
        test_split = _split(test_rows, len(labels), sources.filters, "filter_labels_test.txt")
        return Dataset(name, labels, train, test_split, table=form, unknown_labels=unknown)
    file = None if sources.filters is None else sources.filters / "filter_labels_test.txt"
    if file is not None and file.exists() and file.stat().st_size > 0:
        # They name rows of test, and rows that are drawn by a seed have no number of their own.
        raise DataError(
            "filter pairs of test need a table of test texts beside them, but there is none; add test.jsonl (or .csv), "
            "or take this file away",
            file=file,
        )
    kept, held_out = split_rows(len(train), 0 if options.whole else options.test_fraction, options.split_seed)
    # A text that is in both parts would be judged by what was learned of itself.
    repeated = TextHashes.of(train.texts.take(kept)).contains(train.texts.take(held_out))
    if repeated.any():
        message = "%s rows drawn as test texts repeat a train text; they are train texts too."
        _logger.info(message, f"{int(repeated.sum()):,}")
        kept, held_out = np.sort(np.concatenate([kept, held_out[repeated]])), held_out[~repeated]
    held = train.take(held_out)
    return Dataset(name, labels, train.take(kept), held, table=form, unknown_labels=unknown)


def _first_texts(source: Source) -> list[str]:
    """The first texts of a table, or their titles."""
    column = source.columns.get("text") or source.columns["title"]
    return first_cells(string_cells(source.table, column))


def _report_unknown(unknown: Counter[str], num_known: int, sources: Sources) -> None:
    """Log the labels that the table of labels or the vocabulary lacks."""
    if not unknown:
        return
    num_pairs = unknown.total()
    most = ", ".join(f"{quoted(label)} ({count:,})" for label, count in unknown.most_common(_SHOWN))
    if num_known == 0:
        raise DataError(
            f"the labels of the texts must be among those of {sources.labels}, but none is: {most}; are they its uids?",
            file=sources.train.table.file,
        )
    more = f" and {len(unknown) - _SHOWN:,} more" if len(unknown) > _SHOWN else ""
    counts = f"{len(unknown):,}", f"{num_pairs:,}", f"{num_pairs + num_known:,}"
    message = "%s labels of the texts are not in %s: %s of %s pairs are left out (--strict refuses them): %s%s"
    _logger.warning(message, counts[0], sources.labels, *counts[1:], most, more)


def _split(rows: Rows | None, num_labels: int, filters: Path | None, filter_file: str) -> Split:
    pairs = None
    if filters is not None:
        pairs = read_filter_pairs(filters / filter_file, 0 if rows is None else len(rows), num_labels)
    return Split.empty(num_labels) if rows is None else rows.split(num_labels, pairs)
