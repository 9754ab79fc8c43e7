"""One text at a time, for serving: the row of ``Features.transform`` to the last bit, without the cost of a chunk.

Array operations pay off over many words; a single text has few. So here the words are cut and taken apart one by one
by the means Python has for strings, and what a word brings wherever it stands is remembered from text to text.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np

from unidex.encoders.codepoints import OUTSIDE, classes_of, folded
from unidex.encoders.feature_settings import FeatureSettings
from unidex.encoders.groups import NGRAM_SEED, Kind, subwords_of
from unidex.encoders.hashing import keys_of_pairs, mix, sums_of_prefixes
from unidex.encoders.vocabulary import Vocabulary
from unidex.encoders.weights import Rows, Weights
from unidex.encoders.words import MARK, WORD_SEED, normal_form

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MEMORY = 100_000  # Words; one takes about half a kilobyte where n-grams are on.


class _Table(dict[int, int]):
    """A table for str.translate, filled as code points come up."""

    def __init__(self, code_for: Callable[[int], int]) -> None:
        super().__init__()
        self._code_for = code_for

    def __missing__(self, code: int) -> int:
        self[code] = self._code_for(code)
        return self[code]


def _class_of(code: int) -> int:
    return int(classes_of(np.array([code], dtype=np.uint32))[0])


_CLASS_LETTERS = " olUd_"  # In the order of the classes of code points.
_to_words = _Table(lambda code: ord(" ") if _class_of(code) == OUTSIDE else code)
_to_folded = _Table(lambda code: int(folded(np.array([code], dtype=np.uint32))[0]))
_to_classes = _Table(lambda code: ord(_CLASS_LETTERS[_class_of(code)]))
# Capitals before a capital that a small letter follows; a word with its capitals; capitals alone; digits.
_part = re.compile(r"U+(?=Ul)|U*[lo]+|U+|d+")


def words_in(text: str) -> list[str]:
    """The words of a text, as they are written.

    >>> words_in("prefers-reduced-motion, Golden ratio")
    ['prefers', 'reduced', 'motion', 'Golden', 'ratio']
    """
    return normal_form(text).translate(_to_words).split()


def parts_in(word: str) -> list[str]:
    """The parts of a word, as ``words.parts_of`` cuts them.

    >>> parts_in("getHTTPPort_2"), parts_in("plain")
    (['get', 'HTTP', 'Port', '2'], [])
    """
    spans = [found.span() for found in _part.finditer(word.translate(_to_classes))]
    return [] if spans == [(0, len(word))] else [word[start:end] for start, end in spans]


class SingleText:
    """Makes the row of one text; may be used by many threads at once."""

    def __init__(
        self, settings: FeatureSettings, vocabulary: Vocabulary, weights: Weights, tokenizer: Tokenizer | None
    ) -> None:
        self._settings = settings
        self._vocabulary = vocabulary
        self._weights = weights
        self._tokenizer = tokenizer
        # Word -> its key, and the occurrences it brings, in row 0.
        self._known: dict[str, tuple[int, array[int]]] = {}

    def row(self, text: str) -> Rows:
        """The one row of a text."""
        settings = self._settings
        brought = array("q")
        pieces = []
        if settings.words or settings.bigrams or settings.chars:
            words = words_in(text)
            known = {word: self._known.get(word) for word in words}
            known.update(self._learn(word for word, entry in known.items() if entry is None))
            keys = []
            for word in words:
                key, occurrences = known[word]  # type: ignore[misc]  # every word is known by now
                keys.append(key)
                brought.extend(occurrences)
            if settings.bigrams and len(keys) > 1:
                flat_keys = np.array(keys, dtype=np.uint64)
                ids = self._vocabulary.lookup(keys_of_pairs(flat_keys[:-1], flat_keys[1:]))
                pieces.append(self._weights.pack(0, ids[ids >= 0], Kind.BIGRAM))
        if self._tokenizer is not None:
            pieces.extend(self._weights.occurrences(subwords_of([text], self._tokenizer), self._vocabulary))
        return self._weights.rows(np.concatenate([np.frombuffer(brought, dtype=np.int64), *pieces]), 1)

    def _learn(self, unknown: Iterable[str]) -> dict[str, tuple[int, array[int]]]:
        """Work out what words bring: hash one by one, then mix and look up all together."""
        words, ends, sums, kinds = [], [], [], []
        for word in unknown:
            for kind, total in self._sums(word):
                kinds.append(kind)
                sums.append(total)
            words.append(word)
            ends.append(len(sums))
        if not words:
            return {}
        mixed = mix(np.array(sums, dtype=np.uint64))
        ids = self._vocabulary.lookup(mixed)
        packed = np.where(ids >= 0, self._weights.pack(0, ids, np.array(kinds)), -1).tolist()
        learned = {}
        start = 0
        for word, end in zip(words, ends, strict=True):
            # The first is the word itself, whose key is needed even where only its bigrams are features.
            first = start if self._settings.words else start + 1
            own = array("q", (occurrence for occurrence in packed[first:end] if occurrence >= 0))
            learned[word] = int(mixed[start]), own
            start = end
        if len(self._known) + len(learned) > MEMORY:
            self._known = {}
        self._known.update(learned)
        return learned

    def _sums(self, word: str) -> Iterable[tuple[Kind, int]]:
        """Kind and unmixed key of a word, then of its parts and n-grams."""
        settings = self._settings
        letters = word.translate(_to_folded) if settings.lower_case else word
        yield Kind.WORD, sums_of_prefixes(letters, WORD_SEED)[-1]
        if settings.parts:
            for part in parts_in(word):
                cased = part.translate(_to_folded) if settings.lower_case else part
                yield Kind.PART, sums_of_prefixes(cased, WORD_SEED)[-1]
        if settings.chars:
            marked = MARK + letters + MARK
            for start in range(len(marked) - settings.chars_min + 1):
                ngram = marked[start : start + settings.chars_max]
                if settings.words and len(ngram) == len(marked):
                    ngram = ngram[:-1]  # From mark to mark it is the word itself.
                for total in sums_of_prefixes(ngram, NGRAM_SEED)[settings.chars_min - 1 :]:
                    yield Kind.CHARS, total
