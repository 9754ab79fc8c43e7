"""Counts of features: in how many texts each of them occurs, chunk after chunk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from unidex import progress
from unidex.config import Features as Settings
from unidex.data.text_blocks import text_blocks
from unidex.errors import DataError
from unidex.features.analyser import PLAIN, Analyser
from unidex.features.groups import Group, groups_of

if TYPE_CHECKING:
    from tokenizers import Tokenizer

CHUNK_TEXTS = 50_000
CHUNK_CHARACTERS = 250_000  # What a chunk needs then fits the caches of a processor; larger ones are slower.
# Counts are merged when so many wait, or as many as there are merged ones: the work stays linear, the memory bounded.
MERGE_AT = 2_000_000


class Counter:
    """Counts number of texts of each key, chunk after chunk.

    >>> counter = Counter()
    >>> counter.add(np.array([3, 5], dtype=np.uint64), np.array([1, 2]))
    >>> counter.add(np.array([5], dtype=np.uint64), np.array([4]))
    >>> [array.tolist() for array in counter.result()]
    [[3, 5], [1, 6]]
    """

    def __init__(self) -> None:
        self._keys = [np.empty(0, dtype=np.uint64)]
        self._counts = [np.empty(0, dtype=np.int64)]
        self._waiting = 0

    def add(self, keys: NDArray[np.uint64], counts: NDArray[np.int64]) -> None:
        """Add counts of distinct keys."""
        self._keys.append(keys)
        self._counts.append(counts)
        self._waiting += len(keys)
        if self._waiting > max(MERGE_AT, len(self._keys[0])):
            self.result()

    def result(self) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """All keys ascending, and their counts."""
        if len(self._keys) > 1:
            # One array after the other replaces what it was made of: 32 bytes per key at the peak.
            keys, self._keys = np.concatenate(self._keys), []
            counts, self._counts = np.concatenate(self._counts), []
            order = np.argsort(keys)
            keys = keys[order]
            counts = counts[order]
            del order
            first = np.flatnonzero(np.concatenate([np.ones(min(len(keys), 1), dtype=bool), keys[1:] != keys[:-1]]))
            self._keys = [keys[first]]
            self._counts = [np.add.reduceat(counts, first) if len(first) else counts]
            self._waiting = 0
        return self._keys[0], self._counts[0]


def document_frequencies(group: Group) -> NDArray[np.int64]:
    """In how many texts of its chunk each feature of a group occurs.

    >>> from unidex.config import Features as Settings
    >>> from unidex.features.groups import groups_of
    >>> texts = ["red red hat", "hat"]
    >>> words = next(groups_of(texts, Settings(), None))
    >>> sorted(zip(words.feature_names(np.arange(2)), document_frequencies(words).tolist()))
    [('hat', 2), ('red', 1)]
    """
    num_features = len(group.keys)
    if num_features == 0:
        return np.empty(0, dtype=np.int64)
    pairs = np.concatenate([found.rows * num_features + found.features for found in group.occurrences()])
    pairs.sort()
    new = np.ones(len(pairs), dtype=bool)
    np.not_equal(pairs[1:], pairs[:-1], out=new[1:])
    return np.bincount(pairs[new] % num_features, minlength=num_features)


def count_features(
    texts: Sequence[str],
    label_texts: Sequence[str],
    settings: Settings,
    tokenizer: Tokenizer | None = None,
    chunk_texts: int = CHUNK_TEXTS,
    analyser: Analyser = PLAIN,
) -> dict[str, Counter]:
    """In how many texts and label texts each feature occurs, by the name of its group."""
    counters: dict[str, Counter] = {}
    with progress.task("counting features", len(texts) + len(label_texts), unit="texts") as advance:
        for chunk in text_chunks(texts, label_texts, size=chunk_texts):
            for group in groups_of(analyser.texts(chunk), settings, tokenizer):
                counters.setdefault(group.name, Counter()).add(group.keys, document_frequencies(group))
            advance(len(chunk))
    return counters


def text_chunks(*sources: Sequence[str], size: int) -> Iterator[list[str]]:
    """The texts of all sources, in chunks of at most ``size`` texts."""
    for source in sources:
        if isinstance(source, str):
            raise DataError("texts must be a sequence of texts, but one text was given; put it in a list")
    return text_blocks(chain(*sources), size, CHUNK_CHARACTERS)
