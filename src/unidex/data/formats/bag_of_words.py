"""The old form of the Extreme Classification Repository: sparse features without texts, in train.txt and test.txt.

The first line is "rows features labels"; a row is "label,label feature:value feature:value ...". A row without labels
starts with a blank.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy import sparse

from unidex.data.dataset import Dataset, Labels, Split
from unidex.data.files import SparseEntries, counted_rows, lines, read_header, whole_number
from unidex.data.formats.table_files import stem_of
from unidex.data.read_options import ReadOptions
from unidex.data.texts import Texts
from unidex.errors import DataError


def detects(path: Path) -> bool:
    """A train file (or the file itself) whose first line is three whole numbers."""
    try:
        file = _file(path, "train", "trn") if path.is_dir() else path
        if file is None:
            return False
        _, first = next(lines(file))
    except (DataError, OSError, StopIteration):
        return False
    tokens = first.split()
    return len(tokens) == 3 and all(token.isascii() and token.isdigit() for token in tokens)


def read(path: Path, options: ReadOptions) -> Dataset:
    """Read a folder with train.txt and test.txt, or one such file as train."""
    train_file = _file(path, "train", "trn") if path.is_dir() else path
    if train_file is None:
        raise DataError("a bag-of-words folder must hold train.txt, but does not", file=path)
    test_file = options.test or (_file(path, "test", "tst") if path.is_dir() else None)
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


def _file(folder: Path, *stems: str) -> Path | None:
    for stem in stems:
        candidates = (folder / f"{stem}.txt", folder / f"{stem}.txt.gz", *sorted(folder.glob(f"*_{stem}.txt")))
        found = next((file for file in candidates if file.is_file()), None)
        if found is not None:
            return found
    return None


def _read_split(file: Path) -> Split:
    numbered = lines(file)
    num_rows, num_features, num_labels = read_header(file, next(numbered)[1], "rows", "features", "labels")
    features = SparseEntries(num_features)
    labels: list[int] = []
    label_ends = [0]
    for line, fail in counted_rows(numbered, num_rows, file):
        first, _, rest = line.partition(" ")
        if ":" in first:
            # Some writers leave the blank out before the features of a row without labels.
            first, rest = "", line
        for token in first.split(",") if first.strip() else ():
            label = whole_number(token, "a label", fail)
            if label >= num_labels:
                raise fail(f"a label must be below {num_labels}, but is {label}")
            labels.append(label)
        label_ends.append(len(labels))
        features.add(rest.split(), fail)
    positives = sparse.csr_array((np.ones(len(labels), dtype=np.float32), labels, label_ends), (num_rows, num_labels))
    return Split.of(Texts.blank(num_rows), positives, features=features.matrix(file, header_lines=1))
