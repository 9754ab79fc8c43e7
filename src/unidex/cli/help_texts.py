"""What --help says of a verb: its docstring, as a terminal should show it."""

from __future__ import annotations

from collections.abc import Callable
from inspect import cleandoc

import typer


def help_text(docstring: str) -> str:
    r"""Paragraphs joined, as Typer would keep the line ends of the source; a bracket is not read as markup.

    >>> help_text("Add texts\nto a list [of texts].")
    'Add texts to a list \\[of texts].'
    """
    paragraphs = cleandoc(docstring).replace("[", r"\[").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def add_verb(app: typer.Typer, name: str, verb: Callable[..., None]) -> None:
    """Let a command have a verb, with its docstring as help."""
    app.command(name, help=help_text(verb.__doc__ or ""))(verb)
