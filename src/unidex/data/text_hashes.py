"""Texts as 64-bit hashes: enough to tell whether a text was among many, without keeping them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unidex.storage.small_numbers import load_numbers, save_numbers

_TEXTS_AT_ONCE = 1 << 16


@dataclass(frozen=True, eq=False)
class TextHashes:
    """The hashes of a set of texts, ascending; blanks around words do not count.

    Of a million other texts, one is taken for one of a million known texts with a probability of 1 in 18 million.

    >>> known = TextHashes.of(["red  shoe", "hat"])
    >>> known.contains(["hat ", "cap"]).tolist(), len(known)
    ([True, False], 2)
    """

    values: NDArray[np.uint64]

    @classmethod
    def of(cls, texts: Iterable[str]) -> TextHashes:
        """Hash texts."""
        return cls(np.unique(_hashes(texts)))

    @classmethod
    def load(cls, file: Path) -> TextHashes:
        """Read the hashes of a name; very many of them are mapped."""
        return cls(load_numbers(file, (None,), np.uint64, mapped=True))

    def save(self, file: Path) -> None:
        """Write the hashes under a name."""
        save_numbers(file, self.values)

    def __len__(self) -> int:
        return len(self.values)

    def contains(self, texts: Iterable[str]) -> NDArray[np.bool_]:
        """Which of the texts are known."""
        asked = _hashes(texts)
        places = np.searchsorted(self.values, asked)
        found: NDArray[np.bool_] = np.zeros(len(asked), dtype=bool)
        inside = places < len(self.values)
        found[inside] = self.values[places[inside]] == asked[inside]
        return found

    def with_texts(self, texts: Iterable[str]) -> TextHashes:
        """The hashes with those of further texts."""
        return TextHashes(np.union1d(self.values, _hashes(texts)))


def _hashes(texts: Iterable[str]) -> NDArray[np.uint64]:
    hashed = (hashlib.blake2b(" ".join(text.split()).encode(), digest_size=8).digest() for text in texts)
    # Block by block: a joined generator would hold an object per text.
    blocks = iter(lambda: b"".join(islice(hashed, _TEXTS_AT_ONCE)), b"")
    return np.concatenate([np.empty(0, dtype=np.uint64), *(np.frombuffer(block, dtype="<u8") for block in blocks)])
