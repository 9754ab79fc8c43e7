"""Many short texts in one compressed file, of which few are ever read: names of features, snippets.

``NAME.texts`` has blocks of 1,024 texts, each compressed by itself: the lengths of its texts in bytes, then the texts.
``NAME.blocks.npy`` has the ends of the blocks in that file. A text is found by decompressing its block; the blocks that
were read last stay in memory.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import overload

import numpy as np
from numpy.typing import NDArray

from unidex.data.texts import Texts
from unidex.errors import ModelError
from unidex.storage.mapped import load_array

PER_BLOCK = 1024
_MAX_BLOCK = 1 << 28  # bytes; a damaged file must not fill the memory
_REMEMBERED = 8
MAPPED_ABOVE = 1 << 25  # bytes; a smaller file is read


class CompressedTexts(Sequence[str]):
    """An immutable sequence of texts, in memory in compressed form.

    >>> texts = CompressedTexts.of(["red", "", "blue hat"])
    >>> len(texts), texts[2], list(texts[:2])
    (3, 'blue hat', ['red', ''])
    """

    def __init__(self, content: NDArray[np.uint8], ends: NDArray[np.int64], number: int, file: Path | None) -> None:
        self._content, self._ends, self._number, self._file = content, ends, number, file
        self._block = lru_cache(_REMEMBERED)(self._read_block)

    @classmethod
    def of(cls, texts: Sequence[str]) -> CompressedTexts:
        """Compress texts."""
        # Hundreds of thousands of names of features are in one piece already.
        encoded = texts.encoded_blocks(PER_BLOCK) if isinstance(texts, Texts) else _encoded_blocks(texts)
        blocks = [zlib.compress(lengths.astype("<u4").tobytes() + content) for lengths, content in encoded]
        ends = np.cumsum([len(block) for block in blocks], dtype=np.int64)
        return cls(np.frombuffer(b"".join(blocks), dtype=np.uint8), ends, len(texts), None)

    @classmethod
    def load(cls, file: Path, number: int) -> CompressedTexts:
        """Read what ``save`` wrote; ModelError where there are not so many texts."""
        ends = load_array(_part(file, "blocks.npy"), (-(-number // PER_BLOCK),), np.int64)
        try:
            is_large = _part(file, "texts").stat().st_size > MAPPED_ABOVE
            read = partial(np.memmap, mode="r") if is_large else np.fromfile
            content = read(_part(file, "texts"), dtype=np.uint8)
        except OSError as error:
            raise ModelError(f"{_part(file, 'texts')}: texts cannot be read ({error}); copy it again") from None
        if (np.diff(ends, prepend=0, append=len(content)) < 0).any() or (ends[-1:] != len(content)).any():
            raise ModelError(f"{file}: blocks of texts must ascend to the end of the file; copy the model again")
        return cls(content, ends, number, file)

    @staticmethod
    def is_at(file: Path) -> bool:
        """Whether compressed texts were saved under this name."""
        return _part(file, "blocks.npy").is_file()

    def save(self, file: Path) -> None:
        """Write the blocks and their ends."""
        np.save(_part(file, "blocks.npy"), self._ends)
        self._content.tofile(_part(file, "texts"))

    def __len__(self) -> int:
        return self._number

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> list[str]: ...
    def __getitem__(self, at: int | slice) -> str | list[str]:
        if isinstance(at, slice):
            return [self[place] for place in range(*at.indices(len(self)))]
        place = range(len(self))[at]
        return self._block(place // PER_BLOCK)[place % PER_BLOCK]

    def _read_block(self, block: int) -> list[str]:
        start, end = int(self._ends[block - 1]) if block else 0, int(self._ends[block])
        number = min(PER_BLOCK, len(self) - block * PER_BLOCK)
        try:
            reader = zlib.decompressobj()
            content = reader.decompress(self._content[start:end].tobytes(), _MAX_BLOCK)
            if not reader.eof:
                raise ValueError("a block does not end where it must")
            lengths = np.frombuffer(content[: 4 * number], dtype="<u4").astype(np.int64)
            places = [4 * number, *(4 * number + np.cumsum(lengths)).tolist()]
            if len(lengths) != number or places[-1] != len(content):
                raise ValueError(f"there must be {number} texts of {places[-1]} bytes, but are {len(content)} bytes")
            return [str(content[first:last], "utf-8") for first, last in pairwise(places)]
        except (ValueError, zlib.error) as error:
            raise ModelError(f"{self._file}: texts cannot be read ({error}); copy the model again") from None


def _encoded_blocks(texts: Sequence[str]) -> Iterator[tuple[NDArray[np.int64], bytes]]:
    for first in range(0, len(texts), PER_BLOCK):
        encoded = [text.encode() for text in texts[first : first + PER_BLOCK]]
        yield np.array([len(text) for text in encoded], dtype=np.int64), b"".join(encoded)


def _part(file: Path, what: str) -> Path:
    return file.with_name(f"{file.name}.{what}")
