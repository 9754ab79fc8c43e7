"""Lemmas of words: the dictionaries of simplemma, of which one takes seconds and some 100 MB to load."""

from __future__ import annotations

from collections.abc import Callable

from unidex.errors import MissingExtraError
from unidex.features.word_forms import EXTRA, word_forms

_OTHER_TAGS = {"no": "nb", "sr": "hbs"}
_WITHOUT = {"eu", "ne", "ta"}  # languages that it has no dictionary of


@word_forms("lemmas")
def lemmas(language: str) -> Callable[[str], str]:
    """A function from a word in small letters to its lemma."""
    if language in _WITHOUT:
        return lambda word: word
    try:
        from simplemma import lemmatize
    except ImportError:
        raise MissingExtraError(f"features.analyser = 'lemmas' ({language})", EXTRA) from None
    tag = _OTHER_TAGS.get(language, language)
    # German nouns are in its dictionaries with their capital, which it tries too.
    return lambda word: lemmatize(word, lang=tag).lower()
