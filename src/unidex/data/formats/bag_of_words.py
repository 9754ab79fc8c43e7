"""The old form of the Extreme Classification Repository: sparse features without texts, in train.txt and test.txt.

The first line is "rows features labels"; a row is "label,label feature:value feature:value ...". A row without labels
starts with a blank.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy import sparse

from unidex.data.dataset import Dataset, Labels, Split
from unidex.data.files import check_finite, lines, number_of_columns, parse_pairs, single, whole_number
from unidex.data.formats.table_files import stem_of
from unidex.data.read_options import ReadOptions
from unidex.data.texts import Texts
from unidex.errors import DataError, quoted

NAME = "bag-of-words"


def detects(path: Path) -> bool:
    """A train file (or the file itself) whose first line is three whole numbers."""
    try:
        file = _file(path, "train") or _file(path, "trn") if path.is_dir() else path
        if file is None:
            return False
        _, first = next(lines(file))
    except (DataError, OSError, StopIteration):
        return False
    tokens = first.split()
    return len(tokens) == 3 and all(token.isascii() and token.isdigit() for token in tokens)


def read(path: Path, options: ReadOptions) -> Dataset:
    """Read a folder with train.txt and test.txt, or one such file as train."""
    train_file = (_file(path, "train") or _file(path, "trn")) if path.is_dir() else path
    if train_file is None:
        raise DataError("a bag-of-words folder must hold train.txt, but does not", file=path)
    test_file = options.test or ((_file(path, "test") or _file(path, "tst")) if path.is_dir() else None)
    train = _read_split(train_file)
    num_labels = train.positives.shape[1]
    test = Split.empty(num_labels)
    if test_file is not None:
        test = _read_split(test_file)
        assert train.features is not None
        assert test.features is not None
        for what, found, expected in (
            ("features", test.features.shape[1], train.features.shape[1]),
            ("labels", test.positives.shape[1], num_labels),
        ):
            if found != expected:
                raise DataError(
                    f"the header must name {expected} {what}, as train does, but names {found}", file=test_file, line=1
                )
    name = path.resolve().name if path.is_dir() else stem_of(path)
    return Dataset(name, Labels(Texts.blank(num_labels)), train, test)


def _file(folder: Path, stem: str) -> Path | None:
    candidates = (folder / f"{stem}.txt", folder / f"{stem}.txt.gz")
    exact = next((file for file in candidates if file.is_file()), None)
    return exact or next(iter(sorted(folder.glob(f"*_{stem}.txt"))), None)


def _read_split(file: Path) -> Split:
    numbered = lines(file)
    _, header = next(numbered)
    tokens = header.split()
    if len(tokens) != 3:
        raise DataError(f"the first line must be 'rows features labels', but is {quoted(header)}", file=file, line=1)
    num_rows = whole_number(tokens[0], "the number of rows", file, 1)
    num_features = number_of_columns(tokens[1], "the number of features", file)
    num_labels = number_of_columns(tokens[2], "the number of labels", file)
    features: tuple[list[int], list[float], list[int]] = ([], [], [0])
    labels: list[int] = []
    label_ends = [0]
    for number, line in numbered:
        if len(label_ends) > num_rows:
            if line.strip():
                raise DataError(f"the header names {num_rows} rows, but there are more", file=file, line=number)
            continue
        first, _, rest = line.partition(" ")
        if ":" in first:
            # Some writers leave the blank out before the features of a row without labels.
            first, rest = "", line
        for token in first.split(",") if first.strip() else ():
            label = whole_number(token, "a label", file, number)
            if label >= num_labels:
                raise DataError(f"a label must be below {num_labels}, but is {label}", file=file, line=number)
            labels.append(label)
        label_ends.append(len(labels))
        parse_pairs(rest.split(), num_features, features[0], features[1], file, number)
        features[2].append(len(features[0]))
    if len(label_ends) != num_rows + 1:
        found = len(label_ends) - 1
        raise DataError(f"the header names {num_rows} rows, but the file has {found}", file=file, line=found + 1)
    positives = sparse.csr_array((np.ones(len(labels), dtype=np.float32), labels, label_ends), (num_rows, num_labels))
    columns, values, ends = features
    matrix = sparse.csr_array((single(values), columns, ends), (num_rows, num_features))
    check_finite(matrix.data, matrix.indptr, file, header_lines=1)
    return Split.of(Texts.blank(num_rows), positives, features=matrix)
