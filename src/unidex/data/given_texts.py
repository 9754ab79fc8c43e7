"""Texts as a program gives them: a list, a column of a data frame, an array, a generator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from unidex.errors import DataError, quoted


def given_texts(texts: Any) -> Sequence[str]:
    """Texts by their place, as a sequence; anything that is not text is refused.

    A column of a data frame has an index of its own, so that its third text need not be ``column[2]``.

    >>> given_texts(text for text in ["red hat", "blue shoe"])
    ['red hat', 'blue shoe']
    >>> given_texts(["red hat", None])
    Traceback (most recent call last):
    unidex.errors.DataError: texts must be strings, but text 1 is None
    """
    if isinstance(texts, str | bytes):
        raise DataError("texts must be a list of texts, but is one text; write [text]")
    shape = getattr(texts, "shape", None)
    if shape is not None and len(shape) != 1:
        raise DataError(f"texts must be a list or one column, but have the shape {tuple(shape)}; choose a column")
    if isinstance(texts, Sequence) and not isinstance(texts, list | tuple):
        # Texts of unidex, which are texts already, and may be more than fit into memory.
        return texts
    found = as_list(texts) if not isinstance(texts, list | tuple) else texts
    for number, text in enumerate(found):
        if not isinstance(text, str):
            raise DataError(f"texts must be strings, but text {number} is {quoted(text)}")
    return found


def as_list(values: Any) -> list[Any]:
    """The values of a list, an array, a column or a generator, in order."""
    for name in ("tolist", "to_list"):
        if hasattr(values, name):
            return list(getattr(values, name)())
    if not isinstance(values, Iterable):
        raise DataError(f"there must be a list, but there is {quoted(values)}")
    return list(values)
