"""Cells that hold several labels: JSON lists, Python lists as pandas writes them, and separated strings."""

from __future__ import annotations

import ast
import logging
import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec

from unidex.data.formats.label_numbers import RawLabel

_logger = logging.getLogger(__name__)
_decode_list = msgspec.json.Decoder(list[str | int | float]).decode

_SURROGATE = re.compile("[\ud800-\udfff]")

SAMPLE = 1000
SEPARATORS = ("|", ";", ",")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """How a column writes the labels of a text into one cell."""

    as_list: bool = False  # a cell is a list of its own, such as ["a", "b"]
    separator: str | None = ""  # else, between labels; "" where a cell is one label; None for blanks of any kind

    def split(self, cells: list[str]) -> list[list[RawLabel]]:
        """The entries of each cell; a ValueError for a cell that is not a list has its row as the second argument.

        >>> Cell(separator="|").split(["a|b", "c"])
        [['a', 'b'], ['c']]
        """
        if self.as_list:
            return self._lists(cells)
        if self.separator == "":
            return [[cell] for cell in cells]
        separator = self.separator
        return [cell.split(separator) for cell in cells]  # type: ignore[misc]  # str is a RawLabel

    def _lists(self, cells: list[str]) -> list[list[RawLabel]]:
        found: list[list[RawLabel]] = []
        for row, cell in enumerate(cells):
            try:
                found.append(listed_labels(cell) if cell.strip() else [])
            except ValueError as error:
                raise ValueError(str(error), row) from None
        return found


def guess(cells: Iterable[str], given: str | None) -> Cell:
    """How labels are written, from the first 1000 cells that are not blank.

    >>> guess(["x", "a;b, c"], None), guess(['["a", "b"]'], None), guess(["one", "two"], None)
    (Cell(as_list=False, separator=';'), Cell(as_list=True, separator=''), Cell(as_list=False, separator=''))
    """
    if given is not None:
        return Cell(separator=given)
    sample = first_cells(cells)
    # The first cell decides: were each cell judged alone, one damaged list would become labels with brackets.
    if sample and sample[0].strip().startswith("[") and sample[0].strip().endswith("]"):
        _logger.info("labels are lists")
        return Cell(as_list=True)
    separator = next((mark for mark in SEPARATORS if any(mark in cell for cell in sample)), "")
    if separator == ",":
        remedy = (
            "If commas are part of labels, say what separates labels: --separator '|', or '' for one label per cell."
        )
        _logger.warning("labels are separated by ',' (guessed). %s", remedy)
    elif sample:
        _logger.info("labels are separated by %r" if separator else "a cell is one label%s", separator)
    return Cell(separator=separator)


def first_cells(cells: Iterable[str]) -> list[str]:
    """The first 1000 cells that are not blank."""
    return list(islice((cell for cell in cells if cell.strip()), SAMPLE))


def listed_labels(cell: str) -> list[RawLabel]:
    """A JSON list or a Python list of strings and numbers.

    >>> listed_labels('["a", 1]'), listed_labels("['a', 1]")
    (['a', 1], ['a', 1])
    """
    try:
        return _decode_list(cell)
    except ValueError:
        pass
    if '"' not in cell and "\\" not in cell:
        # Without these two, ' only ever opens and closes a string, so that the list becomes JSON; far faster than ast.
        try:
            return _decode_list(cell.replace("'", '"'))
        except ValueError:
            pass
    found = _python_list(cell.strip())
    if found is None:
        raise ValueError('it is not a list of strings and numbers such as ["a", "b"]')
    return found


def _python_list(cell: str) -> list[RawLabel] | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found: Any = ast.literal_eval(cell)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    if not isinstance(found, list) or not all(type(entry) in (str, int, float) for entry in found):
        return None
    # Half of a surrogate pair is no character and has no UTF-8.
    if any(isinstance(entry, str) and _SURROGATE.search(entry) for entry in found):
        return None
    # ['a' 'b'], as NumPy writes an array, would be read as the one label 'ab'.
    if repr(found).replace(" ", "") != cell.replace(" ", ""):
        return None
    return found
