"""Texts: millions of strings in one block of UTF-8 bytes, in memory or mapped from a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from unidex.errors import DataError


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
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        title_bytes: NDArray[np.int32] | None = None,
    ) -> None:
        self._block = block
        self._distinct = False
        self._view = memoryview(block)  # type: ignore[arg-type]  # an array is a buffer
        self._starts = _frozen(starts)
        self._ends = _frozen(ends)
        self._title_bytes = None if title_bytes is None else _frozen(title_bytes)

    @classmethod
    def of(cls, texts: Iterable[str]) -> Texts:
        """Pack strings."""
        packer = Packer()
        packer.add(texts if isinstance(texts, list) else list(texts))
        return packer.texts()

    @classmethod
    def of_uids(cls, uids: list[str]) -> Texts:
        """Pack names and look for repeats while they are strings still; ``first_repeat`` then knows."""
        packed = cls.of(uids)
        packed._distinct = _first_repeat(uids) is None
        return packed

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> Texts: ...
    def __getitem__(self, at: int | slice) -> str | Texts:
        if isinstance(at, slice):
            return self._pick(at)
        return str(self._view[self._starts[at] : self._ends[at]], "utf-8")

    def __iter__(self) -> Iterator[str]:
        view = self._view
        for start, end in zip(self._starts.tolist(), self._ends.tolist(), strict=True):
            yield str(view[start:end], "utf-8")

    def __repr__(self) -> str:
        return f"Texts({len(self)} texts, {self.num_bytes} bytes)"

    def _pick(self, rows: Any) -> Texts:
        titles = None if self._title_bytes is None else self._title_bytes[rows]
        return Texts(self._block, self._starts[rows], self._ends[rows], titles)

    def take(self, rows: Sequence[int] | NDArray[np.integer[Any]]) -> Texts:
        """The texts of these rows, in this order; no text is copied."""
        return self._pick(np.asarray(rows, dtype=np.int64))

    @property
    def num_bytes(self) -> int:
        """Bytes of all texts together."""
        return int((self._ends - self._starts).sum())

    def lengths(self) -> NDArray[np.int64]:
        """Bytes of each text."""
        lengths: NDArray[np.int64] = self._ends - self._starts
        return lengths

    def first_repeat(self) -> int | None:
        """The first row whose text stands in an earlier row too, or None where all texts differ.

        >>> Texts.of(["a", "b", "a"]).first_repeat(), Texts.of(["a", "b"]).first_repeat()
        (2, None)
        """
        if not self._distinct:
            row = _first_repeat(list(self))
            if row is not None:
                return row
            self._distinct = True
        return None

    def fields(self) -> Iterator[tuple[str, str]]:
        """Title and content of each text; the content is empty where the text was not joined from two.

        >>> packer = Packer()
        >>> packer.add_pairs(["Hat", "", "Shoe"], ["blue", "plain", ""])
        >>> list(packer.texts()), list(packer.texts().fields())
        (['Hat blue', 'plain', 'Shoe'], [('Hat', 'blue'), ('', 'plain'), ('Shoe', '')])
        """
        if self._title_bytes is None:
            for text in self:
                yield text, ""
            return
        view = self._view
        rows = zip(self._starts.tolist(), self._ends.tolist(), self._title_bytes.tolist(), strict=True)
        for start, end, title in rows:
            # The joining space stands only between two parts that are not empty.
            content = start + title + (1 if title and start + title < end else 0)
            yield str(view[start : start + title], "utf-8"), str(view[content:end], "utf-8")

    def save(self, file: Path) -> None:
        """Write ``file``.bytes.npy, .ends.npy and, where titles are known, .titles.npy; texts packed end to end."""
        lengths = self.lengths()
        ends = np.cumsum(lengths)
        np.save(_part(file, "ends"), ends)
        if self._title_bytes is not None:
            np.save(_part(file, "titles"), self._title_bytes)
        total = int(ends[-1]) if len(ends) else 0
        if len(self) and bool(np.all(self._starts[1:] == self._ends[:-1])):
            np.save(_part(file, "bytes"), self._block[self._starts[0] : self._ends[-1]])
            return
        packed = np.empty(total, dtype=np.uint8)
        at = 0
        for start, length in zip(self._starts.tolist(), lengths.tolist(), strict=True):
            packed[at : at + length] = self._block[start : start + length]
            at += length
        np.save(_part(file, "bytes"), packed)

    @classmethod
    def load(cls, file: Path, *, in_memory: bool = False) -> Texts:
        """Read what ``save`` wrote, mapped from disk unless ``in_memory``."""
        try:
            block = np.load(_part(file, "bytes"), mmap_mode=None if in_memory else "r", allow_pickle=False)
            ends = np.load(_part(file, "ends"), allow_pickle=False)
            titles_file = _part(file, "titles")
            titles = np.load(titles_file, allow_pickle=False) if titles_file.exists() else None
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"saved texts cannot be read ({error}); write them again", file=file) from None
        if (
            block.dtype != np.uint8
            or block.ndim != 1
            or ends.dtype != np.int64
            or ends.ndim != 1
            or (len(ends) > 0 and (ends[0] < 0 or ends[-1] != len(block) or bool(np.any(np.diff(ends) < 0))))
            or (titles is not None and (titles.dtype != np.int32 or titles.shape != ends.shape))
        ):
            raise DataError("saved texts are damaged: ends must ascend to the size of the block; write anew", file=file)
        starts = np.concatenate([np.zeros(1, dtype=np.int64), ends[:-1]]) if len(ends) else ends
        return cls(block, starts, ends, titles)


class Packer:
    """Collects texts in pieces into one block."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._lengths: list[NDArray[np.int64]] = []
        self._titles: list[NDArray[np.int32]] = []

    def add(self, texts: Sequence[str]) -> None:
        """Append plain texts."""
        lengths = _byte_lengths(texts)
        self._append(texts, lengths, lengths)

    def add_pairs(self, titles: Sequence[str], contents: Sequence[str]) -> None:
        """Append texts joined from titles and contents by one space; an empty part brings no space."""
        if not any(contents):
            self.add(titles)
            return
        pairs = zip(titles, contents, strict=True)
        joined = [f"{title} {content}" if title and content else title or content for title, content in pairs]
        self._append(joined, _byte_lengths(joined), _byte_lengths(titles))

    def _append(self, texts: Sequence[str], lengths: NDArray[np.int64], title_bytes: NDArray[np.int64]) -> None:
        try:
            self._pieces.append("".join(texts).encode())
        except UnicodeEncodeError:
            raise DataError("a text must be Unicode, but one has half a surrogate pair; mend its escapes") from None
        self._lengths.append(lengths)
        self._titles.append(title_bytes.astype(np.int32))

    def texts(self) -> Texts:
        """All that was added."""
        block = np.frombuffer(b"".join(self._pieces), dtype=np.uint8)
        lengths = np.concatenate(self._lengths) if self._lengths else np.empty(0, dtype=np.int64)
        ends = np.cumsum(lengths)
        titles = np.concatenate(self._titles) if self._titles else np.empty(0, dtype=np.int32)
        joined = bool(np.any(titles != lengths))
        return Texts(block, ends - lengths, ends, titles if joined else None)


def _byte_lengths(texts: Sequence[str]) -> NDArray[np.int64]:
    # An ASCII string knows its bytes; only the others are encoded to be measured.
    sizes = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    ascii_only = np.fromiter(map(str.isascii, texts), dtype=bool, count=len(texts))
    for row in np.flatnonzero(~ascii_only).tolist():
        sizes[row] = len(texts[row].encode("utf-8", "surrogatepass"))
    return sizes


def _first_repeat(texts: list[str]) -> int | None:
    if len(set(texts)) == len(texts):
        return None
    seen: set[str] = set()
    for row, text in enumerate(texts):
        if text in seen:
            return row
        seen.add(text)
    return None


def _part(file: Path, what: str) -> Path:
    return file.with_name(f"{file.name}.{what}.npy")


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view
