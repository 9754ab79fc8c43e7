"""Words of one text as strings: cut, taken apart and put into small letters by the means Python has for strings."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from unidex.features.codepoints import OUTSIDE, classes_of, folded
from unidex.features.word_places import word_places
from unidex.features.words import normal_form


class _Table(dict[int, int]):
    """A table for str.translate, filled as code points come up."""

    def __init__(self, code_for: Callable[[int], int]) -> None:
        super().__init__()
        self._code_for = code_for

    def __missing__(self, code: int) -> int:
        self[code] = self._code_for(code)
        return self[code]


def _class_of(code: int) -> int:
    return int(classes_of(np.array([code], dtype=np.uint32))[0])


_CLASS_LETTERS = " olUd_"  # In the order of the classes of code points.
_to_words = _Table(lambda code: ord(" ") if _class_of(code) == OUTSIDE else code)
_to_folded = _Table(lambda code: int(folded(np.array([code], dtype=np.uint32))[0]))
_to_classes = _Table(lambda code: ord(_CLASS_LETTERS[_class_of(code)]))
# Capitals before a capital that a small letter follows; a word with its capitals; capitals alone; digits.
_part = re.compile(r"U+(?=Ul)|U*[lo]+|U+|d+")


def words_in(text: str) -> list[str]:
    """The words of a text, as they are written.

    >>> words_in("prefers-reduced-motion, Golden ratio")
    ['prefers', 'reduced', 'motion', 'Golden', 'ratio']
    """
    return normal_form(text).translate(_to_words).split()


def placed_words(text: str) -> list[tuple[str, int, int]]:
    """The same words, each with the characters of the text that it came from.

    >>> placed_words("A \ufb01ne hat")
    [('A', 0, 1), ('fine', 2, 5), ('hat', 6, 9)]
    """
    return word_places(text, _to_words)


def parts_in(word: str) -> list[str]:
    """The parts of a word, as ``words.parts_of`` cuts them.

    >>> parts_in("getHTTPPort_2"), parts_in("plain")
    (['get', 'HTTP', 'Port', '2'], [])
    """
    spans = [found.span() for found in _part.finditer(word.translate(_to_classes))]
    return [] if spans == [(0, len(word))] else [word[start:end] for start, end in spans]


def fold(word: str) -> str:
    """A word without case.

    >>> fold("Straße")
    'straße'
    """
    return word.translate(_to_folded)
