"""Formats of one text per line beside sparse tables: xclib, PECOS and DEXML. They differ in file names only.

A text that holds a line break cannot be written in these forms and is refused. What the forms have no place for (uids)
goes to files of our own beside theirs, which other tools do not look at.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from scipy import sparse

from unidex.data.dataset import Dataset, Labels, Split
from unidex.data.files import (
    check_rows,
    read_filter_pairs,
    read_sparse,
    refuse_entries,
    text_lines,
    write_filter_pairs,
)
from unidex.data.read_options import ReadOptions
from unidex.data.texts import Texts
from unidex.errors import DataError, quoted


@dataclass(frozen=True, kw_only=True)
class TextLines:
    """One such format: for each part the file names it may have; the first is the one that is written.

    ``{}`` stands for trn or tst in all names; in the names of the filter files it is train or test.
    """

    name: str
    texts: tuple[str, ...]
    positives: tuple[str, ...]
    features: tuple[str, ...]
    label_texts: tuple[str, ...]
    filter_pairs: tuple[str, ...] = ("filter_labels_{}.txt",)
    must_have: str = ""

    def detects(self, path: Path) -> bool:
        """A folder with the train positives under one of this format's names."""
        found = self._find(path, self.positives, "trn") is not None
        return found and (not self.must_have or (path / self.must_have).exists())

    def read(self, path: Path, options: ReadOptions) -> Dataset:
        """Read a folder of this form; ``options.text`` has no part in it, as a line is one text."""
        train = self._read_split(path, "trn", "train", None)
        if train is None:
            wanted = self.positives[0].format("trn")
            raise DataError(f"a folder of format {self.name} must hold {wanted}, but does not", file=path)
        num_labels = train.positives.shape[1]
        file = self._find(path, self.label_texts, "")
        label_texts = Texts.blank(num_labels) if file is None else text_lines(file)
        if file is not None and len(label_texts) != num_labels:
            raise DataError(
                f"there must be one label per line for the {num_labels} columns of the train positives, "
                f"but there are {len(label_texts)}",
                file=file,
                line=min(len(label_texts), num_labels + 1),
            )
        labels = Labels(label_texts, _read_uids(path / "uids.lbl.txt", num_labels))
        test = self._read_split(path, "tst", "test", num_labels)
        return Dataset(path.resolve().name, labels, train, Split.empty(num_labels) if test is None else test)

    def write(self, dataset: Dataset, folder: Path) -> None:
        """Write a folder of this form."""
        label_file = self._named(folder, self.label_texts, "")
        _write_texts(label_file, dataset.labels.texts, "label")
        _write_uids(folder / "uids.lbl.txt", dataset.labels.uids)
        for split, short, long in ((dataset.train, "trn", "train"), (dataset.test, "tst", "test")):
            if len(split) == 0:
                continue
            _write_texts(self._named(folder, self.texts, short), split.texts, f"{long} text")
            _write_sparse(self._named(folder, self.positives, short), split.positives)
            if split.features is not None:
                _write_sparse(self._named(folder, self.features, short), split.features)
            if split.filter_pairs.nnz:
                write_filter_pairs(self._named(folder, self.filter_pairs, long), split.filter_pairs)
            _write_uids(folder / f"uids.{short}.txt", split.uids)

    def _read_split(self, folder: Path, short: str, long: str, num_labels: int | None) -> Split | None:
        positives_file = self._find(folder, self.positives, short)
        if positives_file is None:
            return None
        positives = read_sparse(positives_file)
        header_lines = None if positives_file.suffix == ".npz" else 1
        refuse_entries(positives.data < 0, positives, "relevance must be >= 0", positives_file, header_lines)
        num_rows, num_columns = positives.shape
        if num_labels is not None and num_columns != num_labels:
            raise DataError(
                f"test positives must have {num_labels} columns, as train positives have, but have {num_columns}",
                file=positives_file,
            )
        features_file = self._find(folder, self.features, short)
        features = None if features_file is None else read_sparse(features_file)
        if features is not None and features_file is not None:
            check_rows(features.shape[0], num_rows, "features", features_file, positives_file)
        texts_file = self._find(folder, self.texts, short)
        if texts_file is None and features is None:
            wanted = self.texts[0].format(short)
            raise DataError(
                f"a folder of format {self.name} must hold the texts in {wanted}, but does not", file=folder
            )
        texts = Texts.blank(num_rows) if texts_file is None else text_lines(texts_file)
        if texts_file is not None:
            check_rows(len(texts), num_rows, "the texts", texts_file, positives_file)
        filter_file = self._find(folder, self.filter_pairs, long) or self._find(folder, self.filter_pairs, short)
        pairs = None if filter_file is None else read_filter_pairs(filter_file, num_rows, num_columns)
        uids = _read_uids(folder / f"uids.{short}.txt", num_rows)
        return Split.of(texts, positives, pairs, uids, features)

    def _find(self, folder: Path, names: tuple[str, ...], part: str) -> Path | None:
        candidates = (folder / name.format(part) for name in names)
        return next((file for file in candidates if file.is_file()), None)

    def _named(self, folder: Path, names: tuple[str, ...], part: str) -> Path:
        file = folder / names[0].format(part)
        file.parent.mkdir(exist_ok=True)
        return file


XCLIB = TextLines(
    name="xclib",
    texts=("{}_X.txt", "raw_data/{}_X.txt"),
    positives=("{}_X_Y.txt", "{}_X_Y.npz"),
    features=("{}_X_Xf.txt", "{}_X_Xf.npz"),
    label_texts=("Y.txt", "raw_data/Y.txt", "lbl.txt"),
    filter_pairs=("filter_labels_{}.txt", "{}_filter_labels.txt"),
)
DEXML = TextLines(
    name="dexml",
    texts=("raw/{}_X.txt",),
    positives=("Y.{}.npz",),
    features=("X.{}.npz",),
    label_texts=("raw/Y.txt",),
    must_have="raw",
)
PECOS = TextLines(
    name="pecos",
    texts=("X.{}.txt",),
    positives=("Y.{}.npz", "Y.{}.txt"),
    features=("X.{}.npz",),
    label_texts=("output-items.txt", "Z.all.txt"),
)


def _read_uids(file: Path, expected: int) -> Texts | None:
    if not file.is_file():
        return None
    uids = text_lines(file)
    if len(uids) != expected:
        line = min(len(uids), expected + 1)
        raise DataError(f"there must be {expected} uids, one per row, but there are {len(uids)}", file=file, line=line)
    row = uids.first_repeat()
    if row is not None:
        raise DataError(f"uids must differ, but {quoted(uids[row])} comes again; rename it", file=file, line=row + 1)
    return uids


def _write_uids(file: Path, uids: Texts | None) -> None:
    if uids is not None:
        _write_texts(file, uids, "uid")


def _write_texts(file: Path, texts: Texts, what: str) -> None:
    with file.open("w", encoding="utf-8", newline="\n") as out:
        for row, text in enumerate(texts):
            if "\n" in text or "\r" in text:
                raise DataError(
                    f"{what} {row} must be one line in this format, but has a line break: {quoted(text)}; "
                    "convert to xc-raw or jsonl, or take the line breaks out"
                )
            # A reader takes U+FEFF at the start of a file for a byte-order mark, and one of two away.
            out.write(f"\ufeff{text}\n" if row == 0 and text.startswith("\ufeff") else f"{text}\n")


def _write_sparse(file: Path, matrix: sparse.csr_array) -> None:
    if file.suffix == ".npz":
        # 32-bit indices where they suffice: the form that scipy and the tools of the field write themselves.
        small = max(matrix.nnz, *matrix.shape) < 2**31
        index = np.int32 if small else np.int64
        arrays = (matrix.data, matrix.indices.astype(index), matrix.indptr.astype(index))
        sparse.save_npz(file, sparse.csr_matrix(arrays, shape=matrix.shape), compressed=False)
        return
    starts = matrix.indptr.tolist()
    with file.open("w", encoding="utf-8", newline="\n") as out:
        out.write(f"{matrix.shape[0]} {matrix.shape[1]}\n")
        for start, stop in pairwise(starts):
            pairs = zip(matrix.indices[start:stop].tolist(), matrix.data[start:stop].tolist(), strict=True)
            # Nine digits give every 32-bit float back exactly.
            out.write(" ".join(f"{column}:{value:.9g}" for column, value in pairs) + "\n")
