"""Tables of Unicode code points: whether a code point belongs to a word, its class, and its form without case.

Whole chunks of text are looked up at once in tables of all code points. A table is filled block by block of 256 code
points when a text first needs one, because filling all of it takes half a second.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

# The classes of code points. All but OUTSIDE are part of a word.
OUTSIDE, OTHER, LOWER, UPPER, DIGIT, UNDERSCORE = range(6)

_NUM_CODE_POINTS = 0x110000
_BLOCK = 256
_JOINERS = "\u200c\u200d"  # Part of words in Persian and in Indic scripts.


class _Tables:
    def __init__(self) -> None:
        self.classes = np.zeros(_NUM_CODE_POINTS, dtype=np.uint8)
        self.folded = np.zeros(_NUM_CODE_POINTS, dtype=np.uint32)
        self.filled = np.zeros(_NUM_CODE_POINTS // _BLOCK, dtype=bool)

    def fill(self, codes: NDArray[np.uint32]) -> None:
        """Make sure that all of these code points are in the tables."""
        wanted = np.zeros(len(self.filled), dtype=bool)
        wanted[codes >> 8] = True
        for block in np.flatnonzero(wanted & ~self.filled).tolist():
            for code in range(block * _BLOCK, (block + 1) * _BLOCK):
                character = chr(code)
                self.classes[code] = _class_of(character)
                self.folded[code] = ord(_fold_of(character))
            self.filled[block] = True


_tables = _Tables()


def read_texts(kernel: Callable[..., Any], lists: Sequence[list[str]], *arguments: Any) -> Any:
    """What a kernel reads in lists of texts in normal form, by the tables of code points."""
    tables = _tables.classes, _tables.folded, _tables.filled
    found = kernel(*lists, *tables, *arguments)
    if found is None:
        for texts in lists:
            _tables.fill(codes_of("".join(texts)))
        found = kernel(*lists, *tables, *arguments)
    return found


def codes_of(text: str) -> NDArray[np.uint32]:
    """The code points of a text.

    >>> codes_of("ab").tolist()
    [97, 98]
    """
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


def text_of(codes: NDArray[np.uint32]) -> str:
    """The text of code points.

    >>> text_of(codes_of("häh"))
    'häh'
    """
    return codes.astype("<u4", copy=False).tobytes().decode("utf-32-le", "surrogatepass")


def classes_of(codes: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """The class of each code point.

    >>> classes_of(codes_of("aB3_ -")).tolist() == [LOWER, UPPER, DIGIT, UNDERSCORE, OUTSIDE, OUTSIDE]
    True
    """
    _tables.fill(codes)
    return _taken(_tables.classes, codes)


def folded(codes: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Each code point without its case; always one for one, so that places in a word stay.

    >>> text_of(folded(codes_of("ÄB\u03a3\u03c2"))) == "äb\u03c3\u03c3"
    True
    """
    _tables.fill(codes)
    return _taken(_tables.folded, codes)


def _taken(table: NDArray[Any], codes: NDArray[np.uint32]) -> NDArray[Any]:
    # A code point is always inside the table; "clip" spares numpy the check, which costs more than the lookup.
    return table.take(codes, mode="clip")


def _class_of(character: str) -> int:
    if character == "_":
        return UNDERSCORE
    if character.isupper() or character.istitle():
        return UPPER
    if character.islower():
        return LOWER
    if character.isalpha() or character in _JOINERS or unicodedata.category(character).startswith("M"):
        return OTHER
    return DIGIT if character.isalnum() else OUTSIDE


def _fold_of(character: str) -> str:
    for form in (character.casefold(), character.lower()):
        if len(form) == 1:
            return form
    return character.lower()[0]
