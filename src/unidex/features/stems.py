"""Stems of words in one language: the Snowball stemmers, on wish (``features.language``).

A stem replaces its word before any feature is made, so that words, bigrams and character n-grams are those of stems. A
word with parts (camelCase, digits, underscores) stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module

from unidex.errors import MissingExtraError
from unidex.features.word_strings import fold, parts_in, words_in

# Tags of languages, and the modules of snowballstemmer.
SNOWBALL = {
    **{"ar": "arabic", "ca": "catalan", "da": "danish", "de": "german", "el": "greek", "en": "english"},
    **{"es": "spanish", "et": "estonian", "eu": "basque", "fi": "finnish", "fr": "french", "ga": "irish"},
    **{"hi": "hindi", "hu": "hungarian", "hy": "armenian", "id": "indonesian", "it": "italian", "lt": "lithuanian"},
    **{"ne": "nepali", "nl": "dutch", "no": "norwegian", "pt": "portuguese", "ro": "romanian", "ru": "russian"},
    **{"sr": "serbian", "sv": "swedish", "ta": "tamil", "tr": "turkish"},
}
_MEMORY = 500_000  # words


@cache
def stemmer_of(language: str) -> Callable[[str], str] | None:
    """A function from a word to its stem; None where no language is set."""
    if not language:
        return None
    name = SNOWBALL[language]
    try:
        # Not snowballstemmer.stemmer: that one takes another implementation where PyStemmer is installed.
        module = import_module(f"snowballstemmer.{name}_stemmer")
    except ImportError:
        raise MissingExtraError(f"features.language = {language!r}", "languages") from None
    snowball = getattr(module, f"{name.capitalize()}Stemmer")()
    known: dict[str, str] = {}

    def stem(word: str) -> str:
        found = known.get(word)
        if found is None:
            found = word if parts_in(word) else snowball.stemWord(fold(word)) or word
            if len(known) >= _MEMORY:
                known.clear()
            known[word] = found
        return found

    return stem


def stemmed(texts: Sequence[str], language: str) -> Sequence[str]:
    """The words of texts as stems; the texts themselves where no language is set."""
    stem = stemmer_of(language)
    return texts if stem is None else [" ".join(map(stem, words_in(text))) for text in texts]
