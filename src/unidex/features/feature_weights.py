"""Weights: from occurrences of features to weighted sparse rows.

    weight of feature f in a text = (1 + ln tf) * idf(f),   then the row is divided by its length

Without ``sublinear``, tf * idf(f).

An occurrence is one number: the row, then the feature id, then the kind, in bits from high to low. Sorted, equal ones
are adjacent and can be counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from unidex import native
from unidex.features.groups import NUM_KIND_BITS, Group, Kind
from unidex.features.vocabulary import Vocabulary


@dataclass(frozen=True, eq=False)
class Rows:
    """Sparse rows: how many features each has, their ids, ascending in a row, and their weights."""

    counts: NDArray[np.int64]
    ids: NDArray[np.int32]
    weights: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Weights:
    """What features weigh: the inverse document frequency of each id, and how repeated ones count."""

    idf: NDArray[np.float32]
    sublinear: bool = True

    @cached_property
    def id_bits(self) -> int:
        """Bits of a feature id in an occurrence."""
        return max(len(self.idf) - 1, 1).bit_length()

    @property
    def tf_table(self) -> NDArray[np.float64]:
        """What a repeated feature counts, by its number; empty where that is the number itself."""
        return _TF if self.sublinear else _TF[:0]

    def occurrences(self, group: Group, vocabulary: Vocabulary) -> list[NDArray[np.int64]]:
        """The occurrences of a group's features that have an id."""
        ids = vocabulary.lookup(group.keys)
        packed = []
        for found in group.occurrences():
            id_of_each = ids[found.features]
            known = id_of_each >= 0
            packed.append(self.pack(found.rows[known], id_of_each[known], found.kind))
        return packed

    def pack(
        self, rows: NDArray[np.int64] | int, ids: NDArray[np.int64], kinds: NDArray[np.int64] | Kind
    ) -> NDArray[np.int64]:
        """Occurrences as numbers."""
        return ((rows << self.id_bits | ids) << NUM_KIND_BITS) | kinds

    def rows(self, occurrences: NDArray[np.int64], num_rows: int) -> Rows:
        """The weighted rows of occurrences in any order; these are sorted in place."""
        if native.kernels is not None:
            counts = np.empty(num_rows, dtype=np.int64)
            ids, weights = np.empty(len(occurrences), dtype=np.int32), np.empty(len(occurrences), dtype=np.float32)
            entries = native.kernels.weigh_rows(
                self.idf, self.tf_table, occurrences, counts, ids, weights, self.id_bits
            )
            return Rows(counts, ids[:entries], weights[:entries])
        occurrences.sort()
        firsts = _firsts(occurrences)
        tf = np.empty_like(firsts)
        np.subtract(firsts[1:], firsts[:-1], out=tf[:-1])
        tf[-1:] = len(occurrences) - firsts[-1:]
        distinct = occurrences[firsts]
        pairs = distinct >> NUM_KIND_BITS
        ids, rows = pairs & ((1 << self.id_bits) - 1), pairs >> self.id_bits
        exact = self.idf[ids] * (_sublinear(tf) if self.sublinear else tf.astype(np.float64))
        # A feature may be of several kinds in one text, as a word and as a part of another: its weights add up.
        firsts = _firsts(pairs)
        if len(firsts) < len(pairs):
            exact, ids, rows = np.add.reduceat(exact, firsts), ids[firsts], rows[firsts]
        exact /= _lengths(exact, rows)
        return Rows(np.bincount(rows, minlength=num_rows), ids.astype(np.int32), exact.astype(np.float32))


def _firsts(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """The places where a value differs from the one before.

    >>> _firsts(np.array([4, 4, 7])).tolist()
    [0, 2]
    """
    new = np.ones(len(values), dtype=bool)
    np.not_equal(values[1:], values[:-1], out=new[1:])
    return new.nonzero()[0]


# From a table, because the vector form of a logarithm need not round as the scalar form does.
_TF = np.array([0.0, *(1 + math.log(count) for count in range(1, 1024))])


def _sublinear(tf: NDArray[np.int64]) -> NDArray[np.float64]:
    """1 + ln(tf).

    >>> _sublinear(np.array([1, 2, 100_000])).round(3).tolist()
    [1.0, 1.693, 12.513]
    """
    weights: NDArray[np.float64] = _TF[np.minimum(tf, len(_TF) - 1)]
    for place in (tf >= len(_TF)).nonzero()[0].tolist():
        weights[place] = 1 + math.log(tf[place])
    return weights


def _lengths(weights: NDArray[np.float64], rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """The Euclidean length of the row of each weight, summed in order, so that it depends on the row alone."""
    return np.sqrt(np.bincount(rows, weights=weights * weights))[rows]
