"""Texts that change and grow: packed ones stay where they are, in memory or in a file, and changes are beside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from unidex.data.texts import Texts


class Numbers(Sequence[str]):
    """The numbers from 0 on as texts: uids of labels that have no others. They take no memory.

    >>> list(Numbers(3)), Numbers(3)[2]
    (['0', '1', '2'], '2')
    """

    def __init__(self, count: int) -> None:
        self._rows = range(count)

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> list[str]: ...
    def __getitem__(self, at: int | slice) -> str | list[str]:
        return [str(row) for row in self._rows[at]] if isinstance(at, slice) else str(self._rows[at])


class GrowingTexts(Sequence[str]):
    """A sequence of texts of which some may be replaced, and to which others may be appended.

    >>> texts = GrowingTexts(["red", "blue"])
    >>> texts.extend(["green"])
    >>> texts[0] = "rose"
    >>> list(texts), texts[-1], texts == ["rose", "blue", "green"]
    (['rose', 'blue', 'green'], 'green', True)
    >>> texts.take(np.array([2, 0])), GrowingTexts(["red", "blue"]).take(np.array([1, 0]))
    (['green', 'rose'], ['blue', 'red'])
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._packed: Texts | Numbers
        self._changed: dict[int, str] = {}
        self._added: list[str] = []
        if isinstance(texts, GrowingTexts):
            self._packed, self._changed, self._added = texts._packed, dict(texts._changed), list(texts._added)
        else:
            self._packed = texts if isinstance(texts, Texts | Numbers) else Texts.of(texts)

    @property
    def packed(self) -> Texts | Numbers:
        """The texts as they were at first."""
        return self._packed

    @property
    def added(self) -> Sequence[str]:
        """The texts that were appended."""
        return self._added

    @property
    def new_rows(self) -> list[int]:
        """Rows of the texts that were replaced or appended."""
        return [*self._changed, *range(len(self._packed), len(self))]

    @property
    def is_unchanged(self) -> bool:
        """Whether the texts are as they were at first."""
        return not self._changed and not self._added

    @property
    def are_numbers(self) -> bool:
        """Whether all texts are the numbers from 0 on."""
        return isinstance(self._packed, Numbers) and self.is_unchanged

    def __len__(self) -> int:
        return len(self._packed) + len(self._added)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[str]: ...
    def __getitem__(self, at: int | slice) -> str | Sequence[str]:
        if isinstance(at, slice):
            if self.is_unchanged:
                return self._packed[at]
            return [self[row] for row in range(len(self))[at]]
        row = self._row(at)
        if row in self._changed:
            return self._changed[row]
        first = len(self._packed)
        return self._packed[row] if row < first else self._added[row - first]

    def take(self, rows: NDArray[np.integer[Any]]) -> list[str]:
        """The texts of these rows, in this order."""
        if isinstance(self._packed, Texts) and self.is_unchanged:
            return list(self._packed.take(rows))
        return [self[row] for row in rows.tolist()]

    def __setitem__(self, at: int, text: str) -> None:
        row, first = self._row(at), len(self._packed)
        if row < first:
            self._changed[row] = text
        else:
            self._added[row - first] = text

    def _row(self, at: int) -> int:
        row = at + len(self) if at < 0 else at
        if not 0 <= row < len(self):
            raise IndexError(f"row {at} of {len(self)} texts")
        return row

    def __iter__(self) -> Iterator[str]:
        packed: Iterable[str] = self._packed
        if self._changed:
            packed = (self._changed.get(row, text) for row, text in enumerate(packed))
        return chain(packed, self._added)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str) or len(self) != len(other):
            return False
        if isinstance(other, GrowingTexts) and self.are_numbers and other.are_numbers:
            return True
        return all(own == one for own, one in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"GrowingTexts({len(self)} texts)"

    def extend(self, texts: Iterable[str]) -> None:
        """Append texts."""
        self._added.extend(texts)
