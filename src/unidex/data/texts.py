"""Texts: millions of strings in one block of UTF-8 bytes, in memory or mapped from a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from unidex.data.arrays import load_array, row_numbers
from unidex.data.text_packer import Packer, UidPacker
from unidex.errors import DataError

_TEXTS_AT_ONCE = 1 << 16


class Texts(Sequence[str]):
    """An immutable sequence of texts.

    A text is a range of bytes in a shared block, so slices and selections copy no text, and the block may be a
    memory map. A text that was joined from a title and a content by one space remembers how many of its bytes are the
    title, so that both can be had again.

    >>> texts = Texts.of(["red shoes", "blue hat"])
    >>> texts[1], len(texts), list(texts[:1]), list(texts.take([1, 0]))
    ('blue hat', 2, ['red shoes'], ['blue hat', 'red shoes'])
    """

    __slots__ = ("_block", "_distinct", "_ends", "_starts", "_title_bytes", "_view")

    def __init__(
        self,
        block: NDArray[np.uint8],
        starts: NDArray[np.int64] | None,
        ends: NDArray[np.int64],
        title_bytes: NDArray[np.int32] | None = None,
    ) -> None:
        self._block = _frozen(block)
        self._distinct = False
        self._view = memoryview(self._block)  # type: ignore[arg-type]  # an array is a buffer
        # None: the texts of the whole block, each starting where the one before ends.
        self._starts = None if starts is None else _frozen(starts)
        self._ends = _frozen(ends)
        self._title_bytes = None if title_bytes is None else _frozen(title_bytes)

    @classmethod
    def of(cls, texts: Iterable[str]) -> Texts:
        """Pack strings."""
        packer = Packer()
        packer.add(texts if isinstance(texts, list) else list(texts))
        return cls.packed(packer)

    @classmethod
    def of_uids(cls, uids: list[str]) -> Texts:
        """Pack names and look for repeats while they are strings still; ``first_repeat`` then knows."""
        packer = UidPacker()
        packer.add(uids)
        return cls.packed(packer)

    @classmethod
    def packed(cls, packer: Packer) -> Texts:
        """All texts that a packer has."""
        block, ends, title_bytes = packer.arrays()
        found = cls(block, None, ends, title_bytes)
        found._distinct = packer.is_distinct
        return found

    @classmethod
    def blank(cls, count: int) -> Texts:
        """Empty texts; a billion of them take no memory.

        >>> list(Texts.blank(2))
        ['', '']
        """
        zeros: NDArray[np.int64] = np.broadcast_to(np.zeros((), dtype=np.int64), (count,))
        return cls(np.empty(0, dtype=np.uint8), zeros, zeros)

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> Texts: ...
    def __getitem__(self, at: int | slice) -> str | Texts:
        if isinstance(at, slice):
            return self._pick(at)
        ends, starts = self._ends, self._starts
        end = ends[at]
        start = starts[at] if starts is not None else ends[at - 1] if at % len(ends) else 0
        if not 0 <= start <= end <= len(self._view):
            raise self._damaged()
        try:
            return str(self._view[start:end], "utf-8")
        except UnicodeDecodeError:
            raise self._damaged() from None

    def __iter__(self) -> Iterator[str]:
        view = self._view
        try:
            for start, end in self._places():
                yield str(view[start:end], "utf-8")
        except UnicodeDecodeError:
            raise self._damaged() from None

    def encoded(self) -> Iterator[memoryview]:
        """The UTF-8 bytes of each text."""
        view = self._view
        for start, end in self._places():
            yield view[start:end]

    def encoded_blocks(self, size: int) -> Iterator[tuple[NDArray[np.int64], bytes]]:
        """The UTF-8 bytes of so many texts at a time, one after the other, and the bytes of each.

        >>> [(lengths.tolist(), block) for lengths, block in Texts.of(["red", "", "hat"]).encoded_blocks(2)]
        [([3, 0], b'red'), ([3], b'hat')]
        """
        for first in range(0, len(self), size):
            rows = slice(first, min(first + size, len(self)))
            starts, ends = self._starts_of(rows), self._ends[rows]
            if bool(np.all(starts[1:] == ends[:-1])):
                block = self._block[starts[0] : ends[-1]].tobytes()
            else:
                block = b"".join(self[rows].encoded())
            yield ends - starts, block

    def _places(self) -> Iterator[tuple[int, int]]:
        """Start and end of each text; as Python's numbers, of one block of texts at a time."""
        for rows in self._blocks():
            yield from zip(self._starts_of(rows).tolist(), self._ends[rows].tolist(), strict=True)

    def _blocks(self) -> Iterator[slice]:
        return (slice(first, min(first + _TEXTS_AT_ONCE, len(self))) for first in range(0, len(self), _TEXTS_AT_ONCE))

    def _starts_of(self, rows: Any) -> NDArray[np.int64]:
        if self._starts is not None:
            own: NDArray[np.int64] = self._starts[rows]
            return own
        if isinstance(rows, slice):
            first, stop, step = rows.indices(len(self))
            if step == 1 and first < stop:
                before = self._ends[first - 1 : stop - 1]
                return before if first else np.concatenate([np.zeros(1, dtype=np.int64), self._ends[: stop - 1]])
            rows = np.arange(len(self))[rows]
        rows = np.where(rows < 0, rows + len(self), rows)
        starts: NDArray[np.int64] = np.where(rows > 0, self._ends[np.maximum(rows - 1, 0)], 0)
        return starts

    def __repr__(self) -> str:
        return f"Texts({len(self)} texts, {self.num_bytes} bytes)"

    def _pick(self, rows: Any) -> Texts:
        titles = None if self._title_bytes is None else self._title_bytes[rows]
        return Texts(self._block, self._starts_of(rows), self._ends[rows], titles)

    def _damaged(self) -> DataError:
        # Only texts that are mapped from a file can be other than UTF-8: all others were strings once.
        file = getattr(self._block, "filename", None)
        return DataError("saved texts must be UTF-8, but are damaged; convert the data set again", file=file)

    def take(self, rows: Sequence[int] | NDArray[np.integer[Any]] | slice) -> Texts:
        """The texts of these rows, in this order; no text is copied."""
        if isinstance(rows, slice):
            return self._pick(rows)
        found = self._pick(row_numbers(rows))
        starts, ends = found._starts_of(slice(None)), found._ends
        if not ((starts >= 0) & (starts <= ends) & (ends <= len(self._block))).all():
            raise self._damaged()
        return found

    @property
    def num_bytes(self) -> int:
        """Bytes of all texts together."""
        if self._starts is None:
            return len(self._block)
        return int((self._ends - self._starts).sum())

    @property
    def is_mapped(self) -> bool:
        """Whether the texts are mapped from a file."""
        found: Any = self._block
        while found is not None and not isinstance(found, np.memmap):
            found = getattr(found, "base", None)
        return found is not None

    def lengths(self) -> NDArray[np.int64]:
        """Bytes of each text."""
        if self._starts is None:
            return np.diff(self._ends, prepend=0)
        lengths: NDArray[np.int64] = self._ends - self._starts
        return lengths

    def first_repeat(self) -> int | None:
        """The first row whose text stands in an earlier row too, or None where all texts differ.

        >>> Texts.of(["a", "b", "a"]).first_repeat(), Texts.of(["a", "b"]).first_repeat()
        (2, None)
        """
        if not self._distinct:
            seen: set[str] = set()
            for row, text in enumerate(self):
                if text in seen:
                    return row
                seen.add(text)
            self._distinct = True
        return None

    def fields(self) -> Iterator[tuple[str, str]]:
        """Title and content of each text; the content is empty where the text was not joined from two.

        >>> packer = Packer()
        >>> packer.add_pairs(["Hat", "", "Shoe"], ["blue", "plain", ""])
        >>> texts = Texts.packed(packer)
        >>> list(texts), list(texts.fields())
        (['Hat blue', 'plain', 'Shoe'], [('Hat', 'blue'), ('', 'plain'), ('Shoe', '')])
        """
        if self._title_bytes is None:
            for text in self:
                yield text, ""
            return
        view = self._view
        titles = chain.from_iterable(self._title_bytes[rows].tolist() for rows in self._blocks())
        try:
            for (start, end), title in zip(self._places(), titles, strict=True):
                # The joining space stands only between two parts that are not empty.
                content = start + title + (1 if title and start + title < end else 0)
                yield str(view[start : start + title], "utf-8"), str(view[content:end], "utf-8")
        except UnicodeDecodeError:
            raise self._damaged() from None

    def save(self, file: Path) -> None:
        """Write ``file``.bytes.npy, .ends.npy and, where titles are known, .titles.npy; texts packed end to end."""
        if self._title_bytes is not None:
            np.save(_part(file, "titles"), self._title_bytes)
        if self._starts is None:
            np.save(_part(file, "ends"), self._ends)
            np.save(_part(file, "bytes"), self._block)
            return
        lengths = self.lengths()
        np.save(_part(file, "ends"), np.cumsum(lengths))
        if len(self) and bool(np.all(self._starts[1:] == self._ends[:-1])):
            np.save(_part(file, "bytes"), self._block[self._starts[0] : self._ends[-1]])
            return
        packed = np.empty(int(lengths.sum()), dtype=np.uint8)
        at = 0
        for start, length in zip(self._starts.tolist(), lengths.tolist(), strict=True):
            packed[at : at + length] = self._block[start : start + length]
            at += length
        np.save(_part(file, "bytes"), packed)

    @classmethod
    def load(
        cls, file: Path, *, in_memory: bool = False, distinct: bool = False, checked_up_to: int | None = None
    ) -> Texts:
        """Read what ``save`` wrote, mapped from disk unless ``in_memory``.

        ``distinct`` says that the texts were uids when they were written: to look for repeats would read them all. Of
        more texts than ``checked_up_to``, which are always mapped, the place of a text is checked when it is read.
        """
        ends_file, titles_file = _part(file, "ends"), _part(file, "titles")
        is_large = checked_up_to is not None and len(load_array(ends_file, np.int64, always=True)) > checked_up_to
        block = load_array(_part(file, "bytes"), np.uint8, in_memory=in_memory, always=is_large)
        ends = load_array(ends_file, np.int64, in_memory=in_memory, always=is_large)
        has_titles = titles_file.exists()
        titles = load_array(titles_file, np.int32, in_memory=in_memory, always=is_large) if has_titles else None
        texts = cls(block, None, ends, titles)
        texts._distinct = distinct
        size = int(ends[-1]) if len(ends) else 0
        if is_large and size == len(block) and (titles is None or titles.shape == ends.shape):
            return texts
        if size != len(block) or not all(np.all(texts._starts_of(rows) <= ends[rows]) for rows in texts._blocks()):
            raise DataError(
                "ends of saved texts must ascend to the size of the block, but do not; convert the data set again",
                file=ends_file,
            )
        if titles is not None and (
            titles.shape != ends.shape or bool(np.any((titles < 0) | (titles > texts.lengths())))
        ):
            raise DataError(
                "titles of saved texts must be parts of the texts, but are not; convert the data set again",
                file=titles_file,
            )
        return texts


def _part(file: Path, what: str) -> Path:
    return file.with_name(f"{file.name}.{what}.npy")


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view
