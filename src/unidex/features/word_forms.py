"""A registry of word forms: what may replace a word of a language before features are made.

A kind of form is one function from the tag of a language to a function from a word in small letters to its form. To add
one, write a module with a function that is decorated with `word_forms`, import it in `unidex.features.analyser`, and
add its name to ``features.analyser``.
"""

from __future__ import annotations

from collections.abc import Callable

EXTRA = "languages"
Form = Callable[[str], str]
FORMS: dict[str, Callable[[str], Form]] = {}


def word_forms(name: str) -> Callable[[Callable[[str], Form]], Callable[[str], Form]]:
    """Register forms under a name."""

    def register(function: Callable[[str], Form]) -> Callable[[str], Form]:
        FORMS[name] = function
        return function

    return register


@word_forms("words")
def as_written(language: str) -> Form:
    """Words as they are."""
    return lambda word: word
