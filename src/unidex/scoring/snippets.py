"""The first characters of train texts, kept to be shown beside what they speak for.

They are one block of bytes with the end of each (see ``data.texts``), mapped from the file: a model that is loaded
does not hold them in memory, and only those that are shown are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Self

from unidex.data.texts import Texts
from unidex.errors import DataError, ModelError

_NAME = "texts"


class KeptTexts:
    """The first ``most`` characters of each of some texts.

    >>> kept = KeptTexts.of(["a red hat", "shoe"], most=5)
    >>> kept.add(["gloves"])
    >>> len(kept), kept[0], kept[2]
    (3, 'a red', 'glove')
    """

    def __init__(self, texts: Texts, most: int) -> None:
        # The first part may be mapped from a file; what is added later is kept beside it, in memory.
        self._first, self._added = texts, Texts.of([])
        self.most = most

    @classmethod
    def of(cls, texts: Sequence[str], most: int) -> Self:
        """The beginnings of these texts."""
        return cls(Texts.of([_cut(text, most) for text in texts]), most)

    @classmethod
    def read(cls, folder: Path, num_texts: int, most: int) -> Self:
        """What ``write`` wrote, mapped; refused where it is not so many texts."""
        try:
            texts = Texts.load(folder / _NAME)
        except DataError as error:
            raise ModelError(f"{folder}: kept train texts must be whole, but: {error}; build it again") from None
        if len(texts) != num_texts:
            raise ModelError(
                f"{folder} must hold the beginnings of {num_texts} texts as its manifest says, but holds {len(texts)}; "
                "build it again"
            )
        return cls(texts, most)

    def write(self, folder: Path) -> None:
        """Write the texts and their ends."""
        texts = Texts.of([*self._first, *self._added]) if len(self._added) else self._first
        texts.save(folder / _NAME)

    def add(self, texts: Sequence[str]) -> None:
        """Append texts."""
        self._added = Texts.of([*self._added, *(_cut(text, self.most) for text in texts)])

    def __len__(self) -> int:
        return len(self._first) + len(self._added)

    def __getitem__(self, text: int) -> str:
        late = text - len(self._first)
        return self._first[text] if late < 0 else self._added[late]


def _cut(text: str, most: int) -> str:
    # Half a surrogate pair cannot be written as UTF-8, and is no more to be read than a question mark.
    return text[:most].encode("utf-8", "replace").decode()
