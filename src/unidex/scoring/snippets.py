"""Snippets: the stored beginnings of training texts, which explanations show.

They are one block of bytes with the end of each (see `unidex.data.texts`), mapped from the file: a loaded model does
not hold them in memory, and reads only those that are shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Self

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

    def __init__(self, texts: Texts, max_length: int) -> None:
        # The first part may be mapped from a file; texts that are added later are in memory.
        self._first, self._added = texts, Texts.of([])
        self.max_length = max_length

    @classmethod
    def of(cls, texts: Sequence[str], max_length: int) -> Self:
        """The beginnings of these texts."""
        return cls(Texts.of([_cut(text, max_length) for text in texts]), max_length)

    @classmethod
    def read(cls, folder: Path, num_texts: int, max_length: int) -> Self:
        """Map what ``write`` wrote; refuse another number of texts."""
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
        """Write the texts and their ends."""
        texts = Texts.of([*self._first, *self._added]) if len(self._added) else self._first
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
