"""The places of words in a text as it is written: before normal form NFKC, which may move every character.

Normal form works on short runs of characters: a letter with the marks behind it, a ligature, a syllable. A run is
found by putting it into normal form alone, so that each character of the result knows the run it came from.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from unidex.features.words import normal_form

_not_a_blank = re.compile(r"[^ ]+")


@dataclass(frozen=True, eq=False)
class Placed:
    """Where the features of one text occur.

    Shapes: O occurrences; one of a bigram is two entries of half an occurrence.

    Attributes:
        features: O, the id of each.
        starts: O, the character of the text where it starts; -1 where it has no place.
        ends: O, the character behind its last one; -1 likewise.
        shares: O, how much of an occurrence it is.
    """

    features: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    shares: NDArray[np.float64]

    @classmethod
    def of(cls, found: list[tuple[int, int, int, float]]) -> Placed:
        """Of plain values: feature, start, end, share."""
        features, starts, ends, shares = zip(*found, strict=True) if found else ((), (), (), ())
        return cls(
            np.array(features, dtype=np.int64),
            np.array(starts, dtype=np.int64),
            np.array(ends, dtype=np.int64),
            np.array(shares, dtype=np.float64),
        )


def trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """A range of characters without the blanks at its ends; -1, -1 where nothing is left.

    >>> trimmed("a hat", 1, 5), trimmed("a hat", 1, 2)
    ((2, 5), (-1, -1))
    """
    inside = text[start:end]
    kept = inside.strip()
    if not kept:
        return -1, -1
    start += len(inside) - len(inside.lstrip())
    return start, start + len(kept)


def word_places(text: str, to_words: dict[int, int]) -> list[tuple[str, int, int]]:
    """The words of a text in normal form, with the characters of the text that each came from.

    Args:
        text: as it is written.
        to_words: for str.translate, what is no part of a word -> a blank.

    >>> word_places("a \ufb01le", {32: 32})
    [('a', 0, 1), ('file', 2, 5)]
    """
    normal = normal_form(text)
    cut = normal.translate(to_words)
    spans = [found.span() for found in _not_a_blank.finditer(cut)]
    if normal == text:
        return [(normal[start:end], start, end) for start, end in spans]
    starts, ends = _origins(text, normal)
    return [(normal[start:end], starts[start], ends[end - 1]) for start, end in spans]


def merged(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ranges of characters that overlap as one; in ascending order.

    >>> [array.tolist() for array in merged(np.array([4, 0, 1]), np.array([6, 2, 3]))]
    [[0, 4], [3, 6]]
    """
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], ends[order]
    if len(starts) == 0:
        return starts, ends
    reached = np.maximum.accumulate(ends)
    first = np.flatnonzero(np.concatenate([[True], starts[1:] >= reached[:-1]]))
    return starts[first], reached[np.append(first[1:], len(starts)) - 1]


def _origins(text: str, normal: str) -> tuple[list[int], list[int]]:
    """For each character of the normal form, where the run of the text that it came from starts and ends."""
    cuts = [place for place, character in enumerate(text) if not unicodedata.combining(character)]
    edges = sorted({0, *cuts, len(text)})
    forms = [normal_form(text[start:end]) for start, end in pairwise(edges)]
    if "".join(forms) != normal:
        # Some characters are no marks and still join the one before them: vowel signs, parts of Hangul syllables.
        edges, forms = _joined(text, edges)
        if "".join(forms) != normal:
            # Marks that reach over others that come apart late: nothing is lost but the place.
            edges, forms = [0, len(text)], [normal]
    starts: list[int] = []
    ends: list[int] = []
    for (start, end), form in zip(pairwise(edges), forms, strict=True):
        starts += [start] * len(form)
        ends += [end] * len(form)
    return starts, ends


def _joined(text: str, edges: list[int]) -> tuple[list[int], list[str]]:
    """Runs that have another normal form together than apart as one run."""
    kept = [0]
    forms: list[str] = []
    for start, end in pairwise(edges):
        form = normal_form(text[start:end])
        if forms:
            together = normal_form(text[kept[-2] : end])
            if together != forms[-1] + form:
                kept[-1], forms[-1] = end, together
                continue
        kept.append(end)
        forms.append(form)
    return kept, forms
