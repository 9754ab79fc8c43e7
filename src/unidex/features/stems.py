"""Stems of words: the Snowball stemmers."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from unidex.features.word_forms import word_forms

# Tags of languages, and the names of their stemmers.
SNOWBALL = {
    **{"ar": "arabic", "ca": "catalan", "cs": "czech", "da": "danish", "de": "german", "el": "greek", "en": "english"},
    **{"es": "spanish", "et": "estonian", "eu": "basque", "fa": "persian", "fi": "finnish", "fr": "french"},
    **{"ga": "irish", "hi": "hindi", "hu": "hungarian", "hy": "armenian", "id": "indonesian", "it": "italian"},
    **{"lt": "lithuanian", "ne": "nepali", "nl": "dutch", "no": "norwegian", "pl": "polish", "pt": "portuguese"},
    **{"ro": "romanian", "ru": "russian", "sr": "serbian", "sv": "swedish", "ta": "tamil", "tr": "turkish"},
}


@word_forms("stems")
def stems(language: str) -> Callable[[str], str]:
    """A function from a word in small letters to its stem; may be used by many threads at once."""
    import Stemmer

    # Readers remember words, so that a memory of its own would be a second one.
    stemmer = Stemmer.Stemmer(SNOWBALL[language], 0)
    # A stemmer has one place to work in.
    lock = Lock()

    def stem(word: str) -> str:
        with lock:
            found: str = stemmer.stemWord(word)
        return found

    return stem
