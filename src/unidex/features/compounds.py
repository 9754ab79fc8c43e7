"""Compound words: a long word of which both halves are words of the training texts brings these as further words.

German, Dutch, Swedish, Danish, Norwegian, Finnish, Estonian and Hungarian write compounds as one word. The parts come
from the data itself, so that nothing is downloaded. Between two parts a language may have letters that belong to
neither, such as the "s" of "Bibliothekswesen".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Set

from unidex.features.word_strings import fold, words_in

# Letters between parts, by language.
_LINKS = {
    "de": ("", "s", "es", "n", "en", "er", "e"),
    "nl": ("", "s", "en", "e"),
    "sv": ("", "s"),
    "da": ("", "s", "e"),
    "no": ("", "s", "e"),
    "fi": ("", "n"),
    "et": ("", "de", "te"),
    "hu": ("",),
}
_MIN_LETTERS = 4  # of a part
_MIN_TEXTS = 3  # that a part occurs in
_MAX_PARTS = 200_000  # the most frequent ones


def has_compounds(language: str) -> bool:
    """Whether a language writes compounds as one word."""
    return language in _LINKS


def parts_of_compounds(texts: Iterable[str]) -> tuple[str, ...]:
    """The words of texts that may be parts of compounds, in alphabetical order.

    >>> parts_of_compounds(["das Wesen einer Bibliothek"] * 3)
    ('bibliothek', 'einer', 'wesen')
    """
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update({fold(word) for word in words_in(text) if len(word) >= _MIN_LETTERS})
    frequent = [(word, count) for word, count in counts.items() if count >= _MIN_TEXTS and word.isalpha()]
    frequent.sort(key=lambda found: (-found[1], found[0]))
    return tuple(sorted(word for word, _ in frequent[:_MAX_PARTS]))


def split_compound(word: str, parts: Set[str], language: str) -> tuple[str, ...]:
    """The two parts of a compound in small letters; empty where it is none.

    Of several cuts, the one with the longest shorter part is taken.

    >>> split_compound("bibliothekswesen", {"bibliothek", "wesen"}, "de"), split_compound("wesen", {"wesen"}, "de")
    (('bibliothek', 'wesen'), ())
    """
    links = _LINKS.get(language)
    if links is None or len(word) < 2 * _MIN_LETTERS:
        return ()
    best: tuple[str, ...] = ()
    for cut in range(_MIN_LETTERS, len(word) - _MIN_LETTERS + 1):
        second = word[cut:]
        if second not in parts:
            continue
        for link in links:
            first = word[: cut - len(link)]
            if word[:cut].endswith(link) and len(first) >= _MIN_LETTERS and first in parts:
                if not best or min(len(first), len(second)) > min(map(len, best)):
                    best = first, second
                break
    return best
