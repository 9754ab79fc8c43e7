"""Texts that are collected piece by piece into one block of UTF-8 bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from unidex.errors import DataError
from unidex.storage.spilled_array import SpilledArray


class Packer:
    """Collects texts in pieces into one block; many of them in files that have no name."""

    def __init__(self) -> None:
        self._block, self._ends, self._titles = (SpilledArray(kind) for kind in (np.uint8, np.int64, np.int32))
        self._size = 0
        self._joined = False

    def add(self, texts: Sequence[str]) -> None:
        """Append plain texts."""
        self._titles.append(self._append(texts))

    def add_pairs(self, titles: Sequence[str], contents: Sequence[str]) -> None:
        """Append texts joined from titles and contents by one space; an empty part brings no space."""
        if not any(contents):
            self.add(titles)
            return
        pairs = zip(titles, contents, strict=True)
        joined = [f"{title} {content}" if title and content else title or content for title, content in pairs]
        lengths = self._append(joined)
        title_bytes = _byte_lengths(titles, ascii_only="".join(titles).isascii())
        self._joined = self._joined or bool(np.any(title_bytes != lengths))
        self._titles.append(title_bytes)

    def _append(self, texts: Sequence[str]) -> NDArray[np.int64]:
        block = "".join(texts)
        try:
            self._block.append(np.frombuffer(block.encode(), dtype=np.uint8))
        except UnicodeEncodeError:
            raise DataError("a text must be Unicode, but one has half a surrogate pair; mend its escapes") from None
        lengths = _byte_lengths(texts, ascii_only=block.isascii())
        self._ends.append(self._size + np.cumsum(lengths))
        self._size += int(lengths.sum())
        return lengths

    def arrays(self) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int32] | None]:
        """The bytes of all that was added, where each text ends, and the bytes of titles where texts were joined."""
        return self._block.array(), self._ends.array(), self._titles.array() if self._joined else None

    @property
    def is_distinct(self) -> bool:
        """Whether all texts are known to differ."""
        return False


class UidPacker(Packer):
    """Collects uids and, while they are strings still, their hashes: no two of them equal, then no two uids are."""

    def __init__(self) -> None:
        super().__init__()
        self._hashes: list[NDArray[np.int64]] = []

    def add(self, texts: Sequence[str]) -> None:
        """Append uids."""
        super().add(texts)
        self._hashes.append(np.fromiter(map(hash, texts), dtype=np.int64, count=len(texts)))

    @property
    def is_distinct(self) -> bool:
        """Whether all uids are known to differ."""
        hashes = np.sort(np.concatenate(self._hashes)) if self._hashes else np.empty(0, dtype=np.int64)
        return not bool(np.any(hashes[1:] == hashes[:-1]))


def _byte_lengths(texts: Sequence[str], *, ascii_only: bool) -> NDArray[np.int64]:
    # An ASCII string knows its bytes; only the others are encoded to be measured.
    sizes = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    if not ascii_only:
        is_ascii = np.fromiter(map(str.isascii, texts), dtype=bool, count=len(texts))
        for row in np.flatnonzero(~is_ascii).tolist():
            sizes[row] = len(texts[row].encode("utf-8", "surrogatepass"))
    return sizes
