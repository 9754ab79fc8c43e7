"""Pairs of training texts and labels with their targets, T x L: their form in the kNN part, and their files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex.data.dataset import canonical
from unidex.errors import ModelError
from unidex.storage.mapped import load_array
from unidex.storage.small_numbers import load_numbers, save_numbers

MAPPED_ABOVE = 1 << 24  # pairs; fewer are read into memory


def read_pairs(folder: Path, shape: tuple[int, int], num_pairs: int, *, has_targets: bool) -> sparse.csr_array:
    """Read what ``save_pairs`` wrote; many pairs are mapped, not read."""
    num_texts, num_labels = shape
    mapped = num_pairs > MAPPED_ABOVE
    starts = load_numbers(folder / "starts", (num_texts + 1,), _index_type(num_pairs), mapped=mapped)
    labels = load_numbers(folder / "labels", (num_pairs,), np.int32, mapped=mapped)
    _check_pairs(folder, starts, labels, num_labels)
    if has_targets:
        targets = load_array(folder / "targets.npy", (num_pairs,), mapped=mapped)
        if targets.dtype != np.float32 or not np.isfinite(targets).all():
            raise ModelError(f"{folder / 'targets.npy'} must hold finite float32, but does not; build it again")
    else:
        targets = np.ones(num_pairs, dtype=np.float32)
    return sparse.csr_array((targets, labels, starts), shape=shape)


def save_pairs(folder: Path, pairs: sparse.csr_array, *, has_targets: bool) -> None:
    """Write where the pairs of each text start, their labels and, where asked for, their targets."""
    save_numbers(folder / "starts", pairs.indptr.astype(_index_type(pairs.nnz), copy=False))
    save_numbers(folder / "labels", pairs.indices.astype(np.int32, copy=False))
    if has_targets:
        np.save(folder / "targets.npy", pairs.data)


def stores_targets(pairs: sparse.csr_array) -> bool:
    """Whether targets are saved: where some are not 1, and of many pairs, which are mapped."""
    return pairs.nnz > MAPPED_ABOVE or bool((pairs.data != 1).any())


def checked_pairs(positives: sparse.csr_array, num_texts: int, num_labels: int | None) -> sparse.csr_array:
    """Targets as float32 with sorted int32 columns; refuse a wrong number of rows or columns."""
    if positives.shape[0] != num_texts:
        raise ValueError(f"positives must have one row per training text ({num_texts}), but have {positives.shape[0]}")
    if num_labels is not None and positives.shape[1] != num_labels:
        raise ValueError(
            f"positives must have one column per label ({num_labels}), but have {positives.shape[1]}; "
            "grow the part first where labels were added"
        )
    pairs = canonical(positives, np.float32)
    if not np.isfinite(pairs.data).all():
        raise ValueError("targets must be finite numbers, but some are not")
    # int32 columns: scipy widens them by itself where there are more pairs than int32 counts.
    arrays = (pairs.data, pairs.indices.astype(np.int32), pairs.indptr.astype(_index_type(pairs.nnz)))
    return sparse.csr_array(arrays, shape=pairs.shape)


def _index_type(num_pairs: int) -> type[np.signedinteger[Any]]:
    return np.int32 if num_pairs <= np.iinfo(np.int32).max else np.int64


def _check_pairs(folder: Path, starts: NDArray[Any], labels: NDArray[Any], num_labels: int) -> None:
    whole = np.issubdtype(starts.dtype, np.signedinteger) and np.issubdtype(labels.dtype, np.signedinteger)
    fits = whole and starts[0] == 0 and starts[-1] == len(labels) and bool((np.diff(starts) >= 0).all())
    if not fits or (len(labels) and (labels.min() < 0 or labels.max() >= num_labels)):
        raise ModelError(
            f"{folder} must hold pairs of texts and labels below {num_labels}, but does not; build it again"
        )
