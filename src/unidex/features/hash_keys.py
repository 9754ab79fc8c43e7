"""64-bit keys of strings and pairs, computed for whole arrays: the same on every machine and in every run.

With code points c_0 ... c_{n-1} and an odd constant P, all modulo 2^64:

    key = mix(seed + sum_i (c_i + 1) P^i)

``mix`` is a bijection, so two strings share a key only where their polynomials agree, which happens to a pair of
strings with a chance of about 2^-64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_P = 0x9E6C63D0876A9A47
_U64 = np.uint64


class _Powers:
    """The powers of P, as many as the longest word so far has needed."""

    def __init__(self) -> None:
        self._powers = self._first(64)

    @staticmethod
    def _first(count: int) -> NDArray[np.uint64]:
        factors = np.full(count, _P, dtype=_U64)
        factors[0] = 1
        return np.multiply.accumulate(factors)

    def first(self, count: int) -> NDArray[np.uint64]:
        if count > len(self._powers):
            self._powers = self._first(max(count, 2 * len(self._powers)))
        return self._powers[:count]


_powers = _Powers()


def mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spread 64-bit numbers evenly: the finaliser of splitmix64 (Steele, Lea and Flood 2014), a bijection.

    >>> [hex(key) for key in mix(np.array([0, 1], dtype=np.uint64)).tolist()]
    ['0x0', '0x5692161d100b05e5']
    """
    mixed = values ^ (values >> _U64(30))
    mixed *= _U64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> _U64(27)
    mixed *= _U64(0x94D049BB133111EB)
    mixed ^= mixed >> _U64(31)
    return mixed


def places(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The places of many ranges, one range after the other.

    >>> places(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(total)


def keys_of_strings(
    codes: NDArray[np.uint32], lengths: NDArray[np.int64], seed: int | NDArray[np.uint64]
) -> NDArray[np.uint64]:
    """One key a string.

    Args:
        codes: the code points of all strings end to end.
        lengths: number of code points of each string, at least 1.
        seed: equal strings have other keys under another seed; one for all strings, or one a string.

    >>> keys = keys_of_strings(np.array([97, 98, 97], dtype=np.uint32), np.array([2, 1]), seed=0)
    >>> keys[1] == keys_of_strings(np.array([97], dtype=np.uint32), np.array([1]), seed=0)[0]
    np.True_
    """
    if len(lengths) == 0:
        return np.empty(0, dtype=_U64)
    starts = np.cumsum(lengths) - lengths
    powers = _powers.first(int(lengths.max()))
    terms = codes.astype(_U64)
    terms += _U64(1)
    terms *= powers.take(places(np.zeros_like(starts), lengths), mode="clip")
    sums = np.add.reduceat(terms, starts)
    sums += np.asarray(seed, dtype=_U64)
    return mix(sums)


def keys_of_ngrams(codes: NDArray[np.uint32], starts: NDArray[np.int64], n: int, seed: int) -> NDArray[np.uint64]:
    """The key of the n code points at each start; equal to that of ``keys_of_strings``.

    >>> codes = np.array([97, 98, 97, 98], dtype=np.uint32)
    >>> first, second = keys_of_ngrams(codes, np.array([0, 2]), n=2, seed=7).tolist()
    >>> first == second == keys_of_strings(codes[:2], np.array([2]), seed=7).tolist()[0]
    True
    """
    sums = np.full(len(starts), seed, dtype=_U64)
    terms = codes.astype(_U64) + _U64(1)
    for place, power in enumerate(_powers.first(n)):
        sums += terms.take(starts + place) * power
    return mix(sums)


def starts_of_keys(keys: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """Where the keys with the same first bits start in ascending keys, about one each, and where the last ones end.

    >>> starts_of_keys(np.array([1, 1 << 63, (1 << 63) + 1], dtype=np.uint64)).tolist()
    [0, 1, 1, 3, 3]
    """
    num_bits = num_first_bits(len(keys))
    firsts = np.arange(1 << num_bits, dtype=_U64) << _U64(64 - num_bits)
    return np.append(np.searchsorted(keys, firsts), len(keys)).astype(np.uint32)


def num_first_bits(num_keys: int) -> int:
    """The first bits that about one of so many keys shares with another."""
    return max(1, num_keys.bit_length())


def keys_of_pairs(left: NDArray[np.uint64], right: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The key of each pair of keys; the order of a pair counts.

    >>> one, two = np.array([1], dtype=np.uint64), np.array([2], dtype=np.uint64)
    >>> keys_of_pairs(one, two) == keys_of_pairs(two, one)
    array([False])
    """
    return mix(left * _U64(_P) + mix(right + _U64(0x9E3779B97F4A7C15)))


def distinct(keys: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int64]]:
    """The distinct keys ascending, the place of one occurrence of each, and for each key its place among the distinct.

    >>> values, place, inverse = distinct(np.array([7, 3, 7]))
    >>> values.tolist(), place[0], inverse.tolist()
    ([3, 7], np.int64(1), [1, 0, 1])
    """
    order = np.argsort(keys)
    ascending = keys[order]
    new = np.ones(len(keys), dtype=bool)
    np.not_equal(ascending[1:], ascending[:-1], out=new[1:])
    inverse = np.empty(len(keys), dtype=np.int64)
    inverse[order] = np.cumsum(new) - 1
    return ascending[new], order[new], inverse
