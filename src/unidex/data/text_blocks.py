"""Texts in blocks that are bounded in number and in characters, so that long texts need no more memory than short."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

MAX_CHARACTERS = 4_000_000


def text_blocks(texts: Iterable[str], max_texts: int, max_characters: int = MAX_CHARACTERS) -> Iterator[list[str]]:
    """Blocks of texts in order; a text above the bound is a block of its own, or ends one.

    >>> list(text_blocks(["a", "bb", "cccc", "d"], max_texts=3, max_characters=3))
    [['a', 'bb'], ['cccc'], ['d']]
    """
    block: list[str] = []
    characters = 0
    for text in texts:
        block.append(text)
        characters += len(text)
        if len(block) >= max_texts or characters >= max_characters:
            yield block
            block, characters = [], 0
    if block:
        yield block
