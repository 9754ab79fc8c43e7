"""The analyser: which words a text is read as, by its language.

Words as they are written are the default. In a language, forms of words (stems, lemmas) replace them, and the parts of
a compound follow it. The language is that of the setting or, with "auto", that of each text: its common words tell it;
a text without any is in the language of the training texts that have its words, and else in the most frequent one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from pydantic import TypeAdapter

from unidex.config.features import DETECT, Analysis, Features, Language
from unidex.features import lemmas, stems  # noqa: F401 - they register their forms
from unidex.features.compounds import has_compounds, parts_of_compounds, split_compound
from unidex.features.languages import detect
from unidex.features.word_forms import FORMS
from unidex.features.word_strings import fold, parts_in, placed_words, words_in

_MEMORY = 500_000  # words
# Of very many texts, evenly spread ones tell languages and parts of compounds.
_MAX_TEXTS = 50_000
# A language of fewer texts is not one of the data set: single texts are found wrong.
_MIN_SHARE = 0.05
_MIN_TEXTS = 2  # that a word occurs in to tell a language


@dataclass(frozen=True)
class Analyser:
    """How the words of texts are read.

    Attributes:
        forms: the kind of word forms that replaces words.
        language: the language of all texts, "auto" for that of each, empty for words as they are written.
        main: with "auto", the language of a text that tells none.
        languages: with "auto", the languages of the training texts; other ones are taken for the main one.
        words: with "auto", the language of words that occur mostly in texts of another one than the main language.
        parts: of compounds.

    >>> analyser = Analyser("words", "de", parts=("bibliothek", "wesen"))
    >>> analyser.texts(["Das Bibliothekswesen"])
    ['Das Bibliothekswesen bibliothek wesen']
    """

    forms: Analysis = "words"
    language: Language = ""
    main: Language = ""
    languages: tuple[Language, ...] = ()
    words: dict[str, Language] | None = None
    parts: tuple[str, ...] = ()

    @classmethod
    def fit(cls, texts: Sequence[str], label_texts: Sequence[str], settings: Features) -> Analyser:
        """What the settings ask for, with what it needs to know of the training texts."""
        if not settings.language or settings.analyser == DETECT:
            return cls()
        found = cls(settings.analyser, settings.language)
        some = _spread(texts)
        if settings.language == DETECT:
            found = found._with_languages(some)
        spoken = found.languages if settings.language == DETECT else (settings.language,)
        if settings.compounds and any(map(has_compounds, spoken)):
            found = replace(found, parts=parts_of_compounds([*some, *_spread(label_texts)]))
        return found

    def _with_languages(self, texts: Sequence[str]) -> Analyser:
        told = [(language, words) for words in map(words_in, texts) if (language := detect(words))]
        counts = Counter(language for language, _ in told)
        common = sorted(name for name, count in counts.items() if count >= max(2, _MIN_SHARE * len(told)))
        if not common:
            return replace(self, main="", languages=())
        main: Any = max(common, key=lambda name: counts[name])
        languages: Any = tuple(common)
        votes: dict[str, Counter[str]] = defaultdict(Counter)
        for language, words in told if len(common) > 1 else ():
            if language in common:
                for word in {fold(word) for word in words}:
                    votes[word][language] += 1
        # The share of a language's texts that have the word, so that a frequent language has no more votes.
        best = {
            word: max(sorted(found), key=lambda name: found[name] / counts[name])
            for word, found in votes.items()
            if found.total() >= _MIN_TEXTS
        }
        others: dict[str, Any] = {word: language for word, language in sorted(best.items()) if language != main}
        return replace(self, main=main, languages=languages, words=others)

    @property
    def is_plain(self) -> bool:
        """Whether words stay as they are written."""
        return not self.language or (self.language == DETECT and not self.main)

    @property
    def of_labels(self) -> Analyser:
        """The same without the parts of compounds: a label is found by its words, not by parts of them."""
        return replace(self, parts=())

    def texts(self, texts: Sequence[str]) -> Sequence[str]:
        """Texts of the words that are read; the texts themselves where words stay as they are written."""
        if self.is_plain:
            return texts
        return [" ".join(map(self._reader(words), words)) for words in map(words_in, texts)]

    def placed(self, text: str) -> list[tuple[str, int, int]]:
        """The words that are read, each with the characters of the text that it came from."""
        found = placed_words(text)
        if self.is_plain:
            return found
        read = self._reader([word for word, _, _ in found])
        return [(form, start, end) for word, start, end in found for form in read(word).split()]

    def language_of(self, words: Sequence[str]) -> str:
        """The language of the words of a text."""
        if self.language != DETECT:
            return self.language
        found = detect(words)
        if found in self.languages:
            return found
        if not self.words:
            return self.main
        votes = Counter(self.words.get(fold(word), self.main) for word in words)
        return min(votes, key=lambda name: (-votes[name], name != self.main, name), default=self.main)

    def _reader(self, words: Sequence[str]) -> Callable[[str], str]:
        """From a word of a text with these words to the words it is read as."""
        return self._readers[self.language_of(words)]

    @cached_property
    def _readers(self) -> dict[str, Callable[[str], str]]:
        return _Readers(self._made_reader)

    def _made_reader(self, language: str) -> Callable[[str], str]:
        form, parts, known = FORMS[self.forms](language), frozenset(self.parts), dict[str, str]()
        # Words that stay keep their capitals, because parts of identifiers depend on them.
        is_changed = self.forms != "words"

        def read(word: str) -> str:
            found = known.get(word)
            if found is None:
                found = word
                if not parts_in(word):
                    letters = fold(word)
                    forms = [form(letters) or letters if is_changed else word]
                    forms += [form(part) or part for part in split_compound(letters, parts, language)]
                    found = " ".join(forms)
                if len(known) >= _MEMORY:
                    known.clear()
                known[word] = found
            return found

        return read

    @classmethod
    def read(cls, values: Any, language: str = "") -> Analyser:
        """Read what ``as_dict`` gave, ValueError where it is something else.

        Models of earlier versions have a language and no more, for its stems.
        """
        if values is None:
            values = {"forms": "stems", "language": language} if language else {}
        return TypeAdapter(cls).validate_python(values)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; only what differs from words as they are written."""
        return {name: value for name, value in asdict(self).items() if value}


class _Readers(dict[str, Callable[[str], str]]):
    """Readers by language, made when they are needed: a form may load a dictionary."""

    def __init__(self, make: Callable[[str], Callable[[str], str]]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, language: str) -> Callable[[str], str]:
        self[language] = self._make(language)
        return self[language]


PLAIN = Analyser()


def _spread(texts: Sequence[str]) -> Sequence[str]:
    return texts[:: -(-len(texts) // _MAX_TEXTS)] if len(texts) > _MAX_TEXTS else texts
