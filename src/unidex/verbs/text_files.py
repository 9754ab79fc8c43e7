"""Files that the verbs read beside data sets: texts alone, texts with labels of a model, new labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from scipy import sparse

from unidex.data.concepts import NOTHING
from unidex.data.dataset import Labels
from unidex.data.files import lines
from unidex.data.formats.cells import guess
from unidex.data.formats.columns import check_given
from unidex.data.formats.label_files import read_new_records
from unidex.data.formats.label_numbers import NO_LABEL, Numbering, RawLabel, UnknownLabelError, name_of
from unidex.data.formats.skos import is_vocabulary, read_vocabulary
from unidex.data.formats.table_files import Table, find_columns, kind_of, open_table, row_error
from unidex.data.formats.table_rows import Rows, string_cells
from unidex.data.formats.text_source import FORMATS, open_texts
from unidex.data.label_records import labels_of
from unidex.data.read_options import ReadOptions
from unidex.errors import DataError, quoted
from unidex.model.journal import unknown_label

if TYPE_CHECKING:
    from unidex.model.label_set import LabelSet
    from unidex.model.model import Model


def read_texts(file: str | Path, options: ReadOptions | None = None) -> Iterator[str]:
    """Read texts: from a table, or one per line; "-" is standard input."""
    with open_texts([file], options or ReadOptions()) as source:
        yield from source.texts()


def read_pairs(model: Model, file: Path, options: ReadOptions | None = None) -> tuple[list[str], sparse.csr_array]:
    """Read a table of texts, and which of the model's labels each has: texts x labels.

    The columns and the separator of labels are those of the training, unless ``options`` has others.
    """
    options = replace(options or ReadOptions(), trained=model.table_form)
    table = _table(file, options)
    columns = find_columns(table, options)
    columns.pop("uid", None)  # the names of texts do not matter here, and may repeat
    cell = guess(string_cells(table, columns["labels"]), options.separator_to_use())
    rows = Rows(table, columns, cell, _ModelLabels(model.labels))
    positives = rows.split(len(model.labels)).positives
    for row in np.flatnonzero(np.diff(positives.indptr) == 0).tolist():
        raise row_error(table, row, "a row must name at least one label, but names none; drop it or name one")
    texts = list(rows.texts)
    for row in (number for number, text in enumerate(texts) if not text.strip()):
        raise row_error(table, row, "a row must have a text, but it is blank; drop the row")
    ones = np.ones(positives.nnz, dtype=np.float32)
    return texts, sparse.csr_array((ones, positives.indices, positives.indptr), shape=positives.shape)


def read_new_labels(file: Path, options: ReadOptions | None = None) -> list[dict[str, Any]]:
    """Read labels to add, as a journal has them: from a table, a vocabulary, or one text per line.

    Without a uid, the text is the uid.
    """
    options = options or ReadOptions()
    if is_vocabulary(file) and options.format is None:
        options.refuse_others(("language",), "a vocabulary")
        return _additions(read_vocabulary(file, options.language))
    if kind_of(file) is None and options.format in (None, "text"):
        options.refuse_others(("format",), "a file of one label per line; it has no columns")
        return [{"uid": text, "text": text} for _, text in lines(file) if text.strip()]
    table = _table(file, options)
    check_given(table.names, options.columns, file)
    given = options.columns or ({"text": table.names[0]} if len(table.names) == 1 else {})
    records = read_new_records(table, options, given)
    return _additions(labels_of(records, options.language)) if records else []


def _additions(labels: Labels) -> list[dict[str, Any]]:
    """Labels as a journal has them."""
    return [
        {"uid": labels.uid(label), "text": text, **msgspec.to_builtins(labels.concepts.get(label, NOTHING))}
        for label, text in enumerate(labels.texts)
    ]


class _ModelLabels(Numbering):
    """Label ids of a model by uid; blanks around a label do not count, and a blank label is none."""

    def __init__(self, labels: LabelSet) -> None:
        super().__init__()
        self._of_model = labels

    def number(self, raw: RawLabel, *, listed: bool) -> int:
        """The id of one label."""
        if raw != raw:  # NaN is how tables of numbers write an empty cell
            return NO_LABEL
        name = name_of(raw)
        if name not in self._of_model:
            name = name.strip()
            if not name:
                return NO_LABEL
            if name not in self._of_model:
                raise UnknownLabelError(raw, name)
        return self._of_model.id_of(name)

    def unknown(self, name: str) -> str:
        """What is wrong with a label that the model does not have."""
        return unknown_label(name)


def _table(file: Path, options: ReadOptions) -> Table:
    if options.format is not None and options.format not in FORMATS:
        raise DataError(f"--format must be one of {', '.join(FORMATS)}, but is {quoted(options.format)}")
    return open_table(file, None if options.format is None else FORMATS[options.format])
