"""Snippets: the stored beginnings of training texts, which explanations show.

They are compressed, in the file and in memory, and only those that are shown are read (`unidex.data.compressed_texts`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Self

from unidex.data.compressed_texts import CompressedTexts
from unidex.data.texts import Texts
from unidex.errors import DataError, ModelError

_NAME = "texts"


class Snippets:
    """The first ``max_length`` characters of each text.

    >>> snippets = Snippets.of(["a red hat", "shoe"], max_length=5)
    >>> snippets.add(["gloves"])
    >>> len(snippets), snippets[0], snippets[2]
    (3, 'a red', 'glove')
    """

    def __init__(self, texts: Texts | CompressedTexts, max_length: int) -> None:
        # The first part is compressed, or mapped from the file of an earlier version; texts that are added later are
        # in memory.
        self._first, self._added = texts, Texts.of([])
        self.max_length = max_length

    @classmethod
    def of(cls, texts: Sequence[str], max_length: int) -> Self:
        """The beginnings of these texts."""
        return cls(Texts.of([_cut(text, max_length) for text in texts]), max_length)

    @classmethod
    def read(cls, folder: Path, num_texts: int, max_length: int) -> Self:
        """Read what ``write`` wrote; refuse another number of texts."""
        if CompressedTexts.is_at(folder / _NAME):
            return cls(CompressedTexts.load(folder / _NAME, num_texts), max_length)
        try:
            texts = Texts.load(folder / _NAME)
        except DataError as error:
            raise ModelError(f"{folder}: snippets must be whole, but: {error}; build it again") from None
        if len(texts) != num_texts:
            raise ModelError(
                f"{folder} must hold the beginnings of {num_texts} texts as its manifest says, but holds {len(texts)}; "
                "build it again"
            )
        return cls(texts, max_length)

    def write(self, folder: Path) -> None:
        """Write the texts, compressed."""
        texts = self._first
        if len(self._added) or not isinstance(texts, CompressedTexts):
            texts = CompressedTexts.of([*texts, *self._added])
        texts.save(folder / _NAME)

    def add(self, texts: Sequence[str]) -> None:
        """Append texts."""
        self._added = Texts.of([*self._added, *(_cut(text, self.max_length) for text in texts)])

    def __len__(self) -> int:
        return len(self._first) + len(self._added)

    def __getitem__(self, text: int) -> str:
        late = text - len(self._first)
        return self._first[text] if late < 0 else self._added[late]


def _cut(text: str, max_length: int) -> str:
    # Half a surrogate pair cannot be written as UTF-8; a question mark stands for it.
    return text[:max_length].encode("utf-8", "replace").decode()
