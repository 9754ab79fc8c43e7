"""The vocabulary: which features have an id of their own, found by counting, and looked up by key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unidex.errors import ModelError
from unidex.features.feature_counts import Counter
from unidex.features.hash_keys import starts_of_keys
from unidex.sparse_rows import find_sorted
from unidex.storage.small_numbers import load_numbers, save_numbers


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The features that have an id of their own, and the buckets all others share.

    Ids 0 .. V-1 are features, the most frequent first, so that the rows a step touches most often are adjacent; ids
    V .. V+B-1 are buckets.

    Attributes:
        keys: V, ascending.
        ids: V, the id of each key.
        frequencies: V + B, by id, number of texts a feature occurs in; of a bucket the sum over its features.
        num_texts: number of texts and label texts that were counted.
    """

    keys: NDArray[np.uint64]
    ids: NDArray[np.int32]
    frequencies: NDArray[np.int64]
    num_texts: int

    @classmethod
    def choose(
        cls, counters: Mapping[str, Counter], *, num_texts: int, min_df: int, max_features: int, num_buckets: int
    ) -> Vocabulary:
        """Give ids to the most frequent features; ties go to the earlier group, then to the lower key."""
        counted = [counter.result() for counter in counters.values()]
        keys = np.concatenate([np.empty(0, dtype=np.uint64), *(keys for keys, _ in counted)])
        counts = np.concatenate([np.empty(0, dtype=np.int64), *(counts for _, counts in counted)])
        group = np.repeat(np.arange(len(counted)), [len(keys) for keys, _ in counted])
        kept = np.flatnonzero(counts >= min_df)
        kept = kept[np.lexsort((keys[kept], group[kept], -counts[kept]))][:max_features]
        frequencies = counts[kept]
        if num_buckets:
            others = np.ones(len(keys), dtype=bool)
            others[kept] = False
            buckets = _buckets(keys[others], num_buckets)
            in_buckets = np.bincount(buckets, weights=counts[others], minlength=num_buckets).astype(np.int64)
            frequencies = np.concatenate([frequencies, np.minimum(in_buckets, num_texts)])
        order = np.argsort(keys[kept])
        return cls(keys[kept][order], order.astype(np.int32), frequencies, num_texts)

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def num_features(self) -> int:
        """Features with an id of their own, and buckets."""
        return len(self.frequencies)

    @property
    def num_buckets(self) -> int:
        """Features that share an id by chance."""
        return self.num_features - len(self)

    def lookup(self, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The id of each key: its own, that of its bucket, or -1 where there are no buckets."""
        num_buckets = self.num_buckets
        others = _buckets(keys, num_buckets) + len(self) if num_buckets else np.full(len(keys), -1, dtype=np.int64)
        if len(self) == 0:
            return others
        places, is_known = find_sorted(self.keys, keys)
        return np.where(is_known, self.ids[places], others)

    @cached_property
    def starts(self) -> NDArray[np.uint32]:
        """Where the keys with the same first bits start."""
        return starts_of_keys(self.keys)

    def idf(self) -> NDArray[np.float32]:
        """ln((1 + N) / (1 + df)) + 1 of each id."""
        return (np.log((1 + self.num_texts) / (1 + self.frequencies)) + 1).astype(np.float32)

    def save(self, folder: Path) -> None:
        """Write keys, ids and frequencies."""
        for name in ("keys", "ids", "frequencies"):
            save_numbers(folder / name, getattr(self, name))

    @classmethod
    def load(cls, folder: Path, *, num_texts: int, num_buckets: int) -> Vocabulary:
        """Read what ``save`` wrote."""
        keys = load_numbers(folder / "keys", (None,), np.uint64)
        ids = load_numbers(folder / "ids", (len(keys),), np.int32)
        frequencies = load_numbers(folder / "frequencies", (len(keys) + num_buckets,), np.int64)
        if bool(np.any(keys[1:] <= keys[:-1])) or not np.array_equal(np.sort(ids), np.arange(len(keys))):
            raise ModelError(f"{folder}: keys must ascend and ids must be 0 to {len(keys) - 1}; the folder is damaged")
        return cls(keys, ids, frequencies, num_texts)


def _buckets(keys: NDArray[np.uint64], num_buckets: int) -> NDArray[np.int64]:
    return (keys % np.uint64(num_buckets)).astype(np.int64)
