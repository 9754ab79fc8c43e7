"""Texts of users as a page can show them."""

from __future__ import annotations

import re

# Characters that XML and HTML have no place for: controls, halves of surrogate pairs, and two that are none.
_UNSHOWABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def plain(text: str) -> str:
    r"""A text without characters that no page may hold.

    >>> plain("a\x00b") == "a\ufffdb"
    True
    """
    return _UNSHOWABLE.sub("\ufffd", text)


def cut(text: str, max_length: int) -> str:
    r"""A text in one line, cut to a maximum length.

    >>> cut("a  long\ntext", 6)
    'a long...'
    """
    line = " ".join(text.split())
    return line if len(line) <= max_length else line[:max_length].rstrip() + "..."
