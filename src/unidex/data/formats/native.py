"""unidex's own form: arrays on disk that are mapped, not copied into memory, so that a set larger than it opens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex.data.arrays import load_array
from unidex.data.dataset import Dataset, Labels, Split
from unidex.data.files import check_indices
from unidex.data.read_options import ReadOptions
from unidex.data.texts import Texts
from unidex.errors import DataError


def detects(path: Path) -> bool:
    """A folder with the packed train texts."""
    return (path / "train.texts.ends.npy").is_file()


def read(path: Path, options: ReadOptions) -> Dataset:
    """Open a folder of this form."""
    labels = Labels(Texts.load(path / "labels.texts"), _load_uids(path / "labels.uids"))
    train = _read_split(path, "train")
    return Dataset(path.resolve().name, labels, train, _read_split(path, "test"))


def write(dataset: Dataset, folder: Path) -> None:
    """Write a folder of this form."""
    dataset.labels.texts.save(folder / "labels.texts")
    if dataset.labels.uids is not None:
        dataset.labels.uids.save(folder / "labels.uids")
    for name, split in (("train", dataset.train), ("test", dataset.test)):
        split.texts.save(folder / f"{name}.texts")
        if split.uids is not None:
            split.uids.save(folder / f"{name}.uids")
        _save_sparse(folder / f"{name}.positives", split.positives)
        _save_sparse(folder / f"{name}.filter_pairs", split.filter_pairs)
        if split.features is not None:
            _save_sparse(folder / f"{name}.features", split.features)


def _read_split(folder: Path, name: str) -> Split:
    positives = _load_sparse(folder / f"{name}.positives", np.float32)
    pairs = _load_sparse(folder / f"{name}.filter_pairs", np.bool_)
    features_file = folder / f"{name}.features"
    has_features = _array_file(features_file, "shape").exists()
    uids = _load_uids(folder / f"{name}.uids")
    features = _load_sparse(features_file, np.float32) if has_features else None
    return Split.of(Texts.load(folder / f"{name}.texts"), positives, pairs, uids, features)


def _load_uids(file: Path) -> Texts | None:
    return Texts.load(file, distinct=True) if file.with_name(f"{file.name}.ends.npy").exists() else None


def _array_file(file: Path, part: str) -> Path:
    return file.with_name(f"{file.name}.{part}.npy")


def _save_sparse(file: Path, matrix: sparse.csr_array) -> None:
    np.save(_array_file(file, "shape"), np.array(matrix.shape, dtype=np.int64))
    for part in ("data", "indices", "indptr"):
        np.save(_array_file(file, part), getattr(matrix, part))


def _load_sparse(file: Path, dtype: type[np.generic]) -> sparse.csr_array:
    shape = load_array(_array_file(file, "shape"), np.int64, in_memory=True)
    data = load_array(_array_file(file, "data"), dtype)
    indices, indptr = (_load_index(_array_file(file, part)) for part in ("indices", "indptr"))
    try:
        rows, columns = shape.tolist()
        matrix = sparse.csr_array((data, indices, indptr), shape=(rows, columns))
        check_indices(matrix)
    except (ValueError, TypeError, IndexError, OverflowError) as error:
        raise DataError(f"a saved table is damaged ({error}); convert the data set again", file=file) from None
    return matrix


def _load_index(file: Path) -> NDArray[Any]:
    """An index is saved in 32 bits where they suffice."""
    try:
        return load_array(file, np.int32)
    except DataError:
        return load_array(file, np.int64)
