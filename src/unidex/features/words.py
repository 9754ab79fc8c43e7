"""Words of a chunk of texts as flat arrays: which distinct words there are, and where each occurs.

No loop runs over words: texts are joined, looked up as code points and cut by array operations. Parts and n-grams are
worked out once per distinct word.

Shapes: N texts, W words, U distinct words, C code points of the distinct words with U + 1 marks.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unidex.features.codepoints import DIGIT, LOWER, OUTSIDE, UNDERSCORE, UPPER, classes_of, codes_of, folded, text_of
from unidex.features.hash_keys import distinct, keys_of_strings, places

# Han, Hiragana and Katakana, with the marks of iteration and of long vowels.
UNSPACED = re.compile(
    "[\u3005\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff]"
)
MARK = "#"  # Ends of words are marked by a character that no word has.
WORD_SEED = 0x51ED270B27B4C1E9


@dataclass(frozen=True, eq=False)
class Words:
    """The words of a chunk of texts.

    A word is a run of letters, digits, marks and underscores of the text in normal form NFKC. Distinct words differ
    as they are written, because their parts depend on their capitals; ``letters`` and ``keys`` ignore case.

    Attributes:
        rows: W, the text of each word, ascending.
        ids: W, the distinct word each word is.
        codes: C, the code points of the distinct words, with a mark before, between and after them.
        letters: C, the same without case.
        keys: U, the key of the letters of each distinct word.
        starts: U, the place of the first code point of each distinct word.
        lengths: U, number of code points of each distinct word.

    >>> words = Words.of(["red hat, red hat", "", "Hat"])
    >>> distinct_words = words.texts(words.starts, words.lengths)
    >>> [distinct_words[word] for word in words.ids.tolist()], words.rows.tolist()
    (['red', 'hat', 'red', 'hat', 'hat'], [0, 0, 0, 0, 2])
    """

    rows: NDArray[np.int64]
    ids: NDArray[np.int64]
    codes: NDArray[np.uint32]
    letters: NDArray[np.uint32]
    keys: NDArray[np.uint64]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]

    @classmethod
    def of(cls, texts: Sequence[str]) -> Words:
        """Cut texts into words."""
        texts = [normal_form(text) for text in texts]
        codes = codes_of("\n".join(texts))
        inside = np.zeros(len(codes) + 2, dtype=bool)
        np.not_equal(classes_of(codes), OUTSIDE, out=inside[1:-1])
        edges = np.flatnonzero(inside[1:] != inside[:-1])
        starts, lengths = edges[::2], edges[1::2] - edges[::2]
        ends_of_texts = np.cumsum(np.fromiter(map(len, texts), dtype=np.int64, count=len(texts)) + 1)
        words_so_far = np.searchsorted(starts, ends_of_texts)
        rows = np.repeat(np.arange(len(texts)), np.diff(words_so_far, prepend=0))
        _, example, ids = distinct(keys_of_strings(codes[inside[1:-1]], lengths, seed=0))
        starts, lengths = starts[example], lengths[example]
        own_starts = np.cumsum(lengths + 1) - lengths
        own_codes = np.full(int(lengths.sum()) + len(lengths) + 1, ord(MARK), dtype=np.uint32)
        own_codes[places(own_starts, lengths)] = codes[places(starts, lengths)]
        letters = folded(own_codes)
        keys = keys_of_strings(letters[places(own_starts, lengths)], lengths, WORD_SEED)
        return cls(rows, ids, own_codes, letters, keys, own_starts, lengths)

    def texts(self, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> list[str]:
        """The letters at these places."""
        text = text_of(self.letters)
        return [text[start:end] for start, end in zip(starts.tolist(), (starts + lengths).tolist(), strict=True)]


def normal_form(text: str) -> str:
    """The text in normal form NFKC: one way to write what looks the same.

    Chinese and Japanese are written without blanks, and most of their words have one or two characters. Each character
    gets blanks around it and is a word, so that two of them are a bigram.

    >>> normal_form("\ufb01le"), normal_form("\u56fe\u4e66\u9986 A").split()
    ('file', ['\u56fe', '\u4e66', '\u9986', 'A'])
    """
    # ASCII is in normal form already, and to ask costs nothing.
    if text.isascii():
        return text
    normal = unicodedata.normalize("NFKC", text)
    return UNSPACED.sub(r" \g<0> ", normal)


@dataclass(frozen=True, eq=False)
class Pieces:
    """Pieces of distinct words: the word of each, ascending, its place in the codes, its number of code points."""

    words: NDArray[np.int64]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]


def parts_of(words: Words) -> Pieces:
    """The pieces of each distinct word between underscores, changes of case and digits.

    A piece starts where letters and digits meet, before a capital that follows a letter that is none, and before the
    last capital of a run that a small letter follows. A word that is one piece from end to end has no parts.

    >>> words = Words.of(["getHTTPPort_2 plain"])
    >>> parts = parts_of(words)
    >>> words.texts(parts.starts, parts.lengths)
    ['get', 'http', 'port', '2']
    """
    classes = classes_of(words.codes)
    outside = (classes == OUTSIDE) | (classes == UNDERSCORE)
    digit, upper = classes == DIGIT, classes == UPPER
    # Thanks to the marks between words, no cut depends on the next word.
    cuts = outside.copy()
    cuts[1:] |= outside[:-1] | (digit[1:] != digit[:-1]) | (upper[1:] & ~upper[:-1])
    cuts[1:-1] |= upper[:-2] & upper[1:-1] & (classes[2:] == LOWER)
    places_of_cuts = np.flatnonzero(cuts)
    lengths = np.diff(places_of_cuts, append=len(classes))
    real = ~outside[places_of_cuts]
    starts, lengths = places_of_cuts[real], lengths[real]
    word = np.searchsorted(words.starts, starts, side="right") - 1
    several = lengths < words.lengths[word]
    return Pieces(word[several], starts[several], lengths[several])


def ngrams_of(words: Words, n: int) -> Pieces:
    """All runs of n code points of each distinct word with the marks at its two ends, but for the word itself.

    >>> words = Words.of(["red", "a"])
    >>> ngrams = ngrams_of(words, 3)
    >>> words.texts(ngrams.starts, ngrams.lengths)
    ['#re', 'red', 'ed#']
    """
    counts = np.maximum(words.lengths + 2 - n + 1, 0)
    counts[words.lengths + 2 == n] = 0
    starts = places(words.starts - 1, counts)
    return Pieces(np.repeat(np.arange(len(counts)), counts), starts, np.full(len(starts), n))
