"""Checks that all indexes share: of vectors, of ids of labels, and of settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unidex.errors import ConfigError, listed

if TYPE_CHECKING:
    from torch import Tensor

_CHECKED_AT_ONCE = 1 << 22  # numbers checked in one step, so that a mapped file is never read whole

Vectors: TypeAlias = "NDArray[np.floating[Any]] | Tensor"


def check_vectors(vectors: Vectors, what: str, dim: int | None = None, *, first: int = 0) -> None:
    """Refuse what is not a table of finite numbers with ``dim`` columns; ``first`` is the number of its first row.

    >>> check_vectors(np.array([[1.0, np.nan]]), "label vectors")
    Traceback (most recent call last):
    ...
    ValueError: label vectors must be finite numbers, but row 0 is not; look for a division by zero
    """
    if vectors.ndim != 2:
        raise ValueError(f"{what} must have two dimensions [number, dim], but have shape {tuple(vectors.shape)}")
    num_rows, found = vectors.shape
    if found == 0 or (dim is not None and found != dim):
        wanted = "at least one number" if dim is None else f"{dim} numbers"
        raise ValueError(
            f"{what} must have {wanted} per row like the index, but have {found}; encode them with its model"
        )
    if isinstance(vectors, np.ndarray) and vectors.size <= _CHECKED_AT_ONCE and np.isfinite(vectors).all():
        return
    rows_at_once = max(1, _CHECKED_AT_ONCE // found)
    for start in range(0, num_rows, rows_at_once):
        block = vectors[start : start + rows_at_once]
        if isinstance(block, np.ndarray):
            finite = np.isfinite(block).all(axis=1)
        else:
            finite = block.isfinite().all(dim=1).cpu().numpy()
        if not finite.all():
            row = first + start + int(np.argmin(finite))
            raise ValueError(f"{what} must be finite numbers, but row {row} is not; look for a division by zero")


def check_k(k: int) -> None:
    """Refuse a number of places below one."""
    if k < 1:
        raise ValueError(f"k must be at least 1, but is {k}")


def check_ids(ids: ArrayLike, num_ids: int, what: str) -> NDArray[np.int64]:
    """Label ids as a sorted array without repetition.

    >>> check_ids([3, 1, 3], 4, "removed labels").tolist()
    [1, 3]
    """
    found = np.unique(np.asarray(ids))
    if found.size == 0:
        return np.empty(0, dtype=np.int64)
    if not np.issubdtype(found.dtype, np.integer):
        raise ValueError(f"{what} must be label ids (whole numbers), but are {found.dtype}")
    if found[0] < 0 or found[-1] >= num_ids:
        wrong = found[(found < 0) | (found >= num_ids)]
        raise ValueError(f"{what} must be label ids below {num_ids}, but some are not: {listed(wrong.tolist())}")
    return found.astype(np.int64)


def check_replaced(ids: ArrayLike, vectors: Vectors, num_ids: int, dim: int) -> NDArray[np.int64]:
    """Label ids in the given order, each once, one per vector.

    >>> check_replaced([2, 0], np.ones((2, 3)), num_ids=4, dim=3).tolist()
    [2, 0]
    """
    given = np.asarray(ids)
    if given.ndim != 1:
        raise ValueError(f"replaced labels must be a list of ids, but have shape {given.shape}")
    check_vectors(vectors, "label vectors", dim)
    if len(given) != len(vectors):
        raise ValueError(
            f"there must be one vector per replaced label, but there are {len(vectors)} vectors and {len(given)} labels"
        )
    if len(check_ids(given, num_ids, "replaced labels")) < len(given):
        found, counts = np.unique(given, return_counts=True)
        again = found[counts > 1].tolist()
        raise ValueError(f"replaced labels must differ, but some come more than once: {listed(again)}; name each once")
    return given.astype(np.int64)


def check_whole_numbers(kind: str, settings: Any, minimums: Mapping[str, int]) -> None:
    """Refuse settings of an index that are not whole numbers from their minimum on."""
    for name, minimum in minimums.items():
        value = getattr(settings, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise ConfigError(f"index {kind!r}: {name} must be a whole number >= {minimum}, but is {value!r}")


def hidden_labels(
    num_ids: int, removed: NDArray[np.int64], allowed: ArrayLike | None, forbidden: ArrayLike | None
) -> NDArray[np.bool_] | None:
    """Which ids must not be returned: removed, forbidden, or outside the allowed; None where every id may be.

    >>> hidden_labels(4, np.array([0]), allowed=[0, 1, 2], forbidden=[2]).tolist()
    [True, False, True, True]
    """
    if allowed is None and forbidden is None and removed.size == 0:
        return None
    hidden = np.zeros(num_ids, dtype=bool)
    if allowed is not None:
        hidden[:] = True
        hidden[check_ids(allowed, num_ids, "allowed labels")] = False
    if forbidden is not None:
        hidden[check_ids(forbidden, num_ids, "forbidden labels")] = True
    hidden[removed] = True
    return hidden
