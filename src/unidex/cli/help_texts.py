"""The --help of a verb: its docstring, formatted for a terminal."""

from __future__ import annotations

from collections.abc import Callable
from inspect import cleandoc

import typer


def help_text(docstring: str) -> str:
    r"""Join the lines of each paragraph, and escape brackets, which Typer would read as markup.

    >>> help_text("Add texts\nto a list [of texts].")
    'Add texts to a list \\[of texts].'
    """
    paragraphs = cleandoc(docstring).replace("[", r"\[").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def add_verb(app: typer.Typer, name: str, verb: Callable[..., None], *, hidden: bool = False) -> None:
    """Add a verb to a command, with its docstring as help; --help does not list a hidden one."""
    app.command(name, help=help_text(verb.__doc__ or ""), hidden=hidden)(verb)
