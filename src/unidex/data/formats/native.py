"""unidex's own form: arrays on disk that are mapped, not read, so that a set larger than memory opens at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex.data.dataset import Dataset, Labels, Split
from unidex.data.options import ReadOptions
from unidex.data.texts import Texts
from unidex.errors import DataError

NAME = "unidex"


def detects(path: Path) -> bool:
    """A folder with the packed train texts."""
    return (path / "train.texts.ends.npy").is_file()


def read(path: Path, options: ReadOptions) -> Dataset:
    """Open a folder of this form."""
    labels = Labels(Texts.load(path / "labels.texts"), _load_uids(path / "labels.uids"))
    train = _read_split(path, "train")
    return Dataset(path.name, labels, train, _read_split(path, "test"))


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
    positives = _load_sparse(folder / f"{name}.positives")
    pairs = _load_sparse(folder / f"{name}.filter_pairs")
    features_file = folder / f"{name}.features"
    has_features = _array_file(features_file, "shape").exists()
    uids = _load_uids(folder / f"{name}.uids")
    features = _load_sparse(features_file) if has_features else None
    return Split.of(Texts.load(folder / f"{name}.texts"), positives, pairs, uids, features)


def _load_uids(file: Path) -> Texts | None:
    return Texts.load(file) if file.with_name(f"{file.name}.ends.npy").exists() else None


def _array_file(file: Path, part: str) -> Path:
    return file.with_name(f"{file.name}.{part}.npy")


def _save_sparse(file: Path, matrix: sparse.csr_array) -> None:
    np.save(_array_file(file, "shape"), np.array(matrix.shape, dtype=np.int64))
    for part in ("data", "indices", "indptr"):
        np.save(_array_file(file, part), getattr(matrix, part))


def _load_sparse(file: Path) -> sparse.csr_array:
    def part(name: str) -> NDArray[np.generic]:
        array: NDArray[np.generic] = np.load(_array_file(file, name), mmap_mode="r", allow_pickle=False)
        return array

    try:
        rows, columns = np.load(_array_file(file, "shape"), allow_pickle=False).tolist()
        matrix = sparse.csr_array((part("data"), part("indices"), part("indptr")), shape=(rows, columns))
        matrix.check_format(full_check=True)
    except (OSError, ValueError, EOFError, TypeError, IndexError, OverflowError) as error:
        raise DataError(f"a saved table cannot be read ({error}); convert the data set again", file=file) from None
    return matrix
