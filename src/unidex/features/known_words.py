"""Known words: how much of a text the vocabulary and the labels' own texts have seen.

A word is known if it, or each of its parts, has a feature of its own or occurs in the text of a label. The familiarity
of a text also counts how many n-grams of its unknown words are known, and gives rare words more weight::

    known(x)       = known words of x / words of x
    familiarity(x) = sum over words w of idf_w f_w / sum over words w of idf_w

where f_w is 1 for a known word, or else the share of its n-grams that have a feature of their own. A word without a
feature of its own has the idf of a word that no text has.

Shapes: N texts, W words.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unidex.data.text_blocks import text_blocks
from unidex.features.codepoints import codes_of
from unidex.features.extractor import FeatureExtractor, spread
from unidex.features.groups import NGRAM_SEED
from unidex.features.hash_keys import keys_of_strings
from unidex.features.word_strings import fold, parts_in, words_in
from unidex.features.words import MARK, WORD_SEED, Words
from unidex.sparse_rows import find_sorted

_MAX_WORDS = 100_000
_CHUNK = 50_000
_MAX_RANDOM = 1000
# N-grams of three letters are known by chance: a third of those of random letters, a twentieth of those of four.
_NGRAM = 4


# Of a word: 1 if it is known and 0 if not, its familiarity times its idf, and its idf. As the bytes of three float64,
# because those are joined quickly.
_Word = bytes
_WORD_SIZE = 24


class Shares(NamedTuple):
    """How much of each text is known: the share of its words, and its familiarity, N each."""

    known_N: NDArray[np.float32]
    familiarity_N: NDArray[np.float32]


class KnownWords:
    """The words that a model knows.

    >>> from unidex.config import Features as Settings
    >>> features = FeatureExtractor.fit(["red hat", "red shoe"], [], Settings(chars=True))
    >>> words = KnownWords(features, ["Scarf"])
    >>> words.shares(["red scarf", "red qwertz", "", "?"]).known_N.tolist()
    [1.0, 0.5, 0.0, 0.0]
    """

    def __init__(
        self, features: FeatureExtractor, label_texts: Sequence[str], label_keys: NDArray[np.uint64] | None = None
    ) -> None:
        self._features = features
        self._idf_of_unknown = float(np.log(1 + features.vocabulary.num_texts) + 1)
        self._label_keys = np.empty(0, dtype=np.uint64) if label_keys is None else label_keys
        # Replaced, never emptied: other threads may still read it.
        self._memory: dict[str, _Word] = {}
        self.add(label_texts)

    @property
    def label_keys(self) -> NDArray[np.uint64]:
        """Hashes of the words of labels that the vocabulary lacks, ascending."""
        return self._label_keys

    @classmethod
    def of(
        cls, encoder: Any, label_texts: Sequence[str], label_keys: NDArray[np.uint64] | None = None
    ) -> KnownWords | None:
        """The words that an encoder and the labels know; None for an encoder without a vocabulary of words.

        ``label_keys`` are those of further labels, whose texts need not be read.
        """
        features = getattr(encoder, "features", None)
        if not isinstance(features, FeatureExtractor) or not features.settings.words:
            return None
        return cls(features, label_texts, label_keys)

    def add(self, label_texts: Sequence[str]) -> None:
        """The words of further labels are known from now on; of very many labels, those of evenly spread ones."""
        if not len(label_texts):
            return
        label_texts = spread(label_texts)
        keys = [self._label_keys]
        for start in range(0, len(label_texts), _CHUNK):
            chunk = self._features.analyser.texts(label_texts[start : start + _CHUNK])
            new = np.unique(Words.of(chunk).keys)
            # Features of the vocabulary are not stored twice.
            keys.append(new[~find_sorted(self._features.vocabulary.keys, new)[1]])
        self._label_keys = np.unique(np.concatenate(keys))
        self._memory = {}

    def shares(self, texts: Sequence[str]) -> Shares:
        """How much of each text is known; a text without words has nothing known."""
        # The words of all texts as strings would take many times their size.
        parts = [self._shares(block) for block in text_blocks(texts, _CHUNK)]
        if len(parts) == 1:
            return parts[0]
        empty = np.empty(0, dtype=np.float32)
        return Shares(
            np.concatenate([empty, *(part.known_N for part in parts)]),
            np.concatenate([empty, *(part.familiarity_N for part in parts)]),
        )

    def _shares(self, texts: Sequence[str]) -> Shares:
        words_of_texts = [words_in(text) for text in self._features.analyser.texts(texts)]
        values_W3 = np.frombuffer(b"".join(self._all(words_of_texts))).reshape(-1, 3)
        counts_N = np.fromiter(map(len, words_of_texts), dtype=np.int64, count=len(texts))
        row_of_word = np.repeat(np.arange(len(texts)), counts_N)
        known_N, familiar_N, idf_N = (np.bincount(row_of_word, column, len(texts)) for column in values_W3.T)
        return Shares(
            (known_N / np.maximum(counts_N, 1)).astype(np.float32),
            (familiar_N / np.where(counts_N, idf_N, 1)).astype(np.float32),
        )

    def familiarities(self, texts: Sequence[str]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The familiarity of texts, and of random texts with the same letters, as many but at most 1000."""
        some = texts[:: max(1, len(texts) // _MAX_RANDOM)]
        others = random_texts(some, min(len(texts), _MAX_RANDOM))
        return self.shares(texts).familiarity_N, self.shares(others).familiarity_N

    def _all(self, words_of_texts: Iterable[list[str]]) -> list[_Word]:
        """What is known of each word, text after text."""
        words, known = list(chain.from_iterable(words_of_texts)), self._memory
        try:
            return [known[word] for word in words]
        except KeyError:
            wanted = set(words)
        described = self._describe([word for word in wanted if word not in known])
        if len(known) + len(described) > _MAX_WORDS:
            self._memory = {}
            known = {word: known[word] for word in wanted if word in known} | described
        # In place: a copy of many words would cost each batch more than its new words do.
        self._memory.update(described)
        return [known[word] for word in words]

    def _describe(self, words: list[str]) -> dict[str, _Word]:
        """Look up words, their parts and their n-grams, all at once."""
        strings: list[str] = []
        parts: list[str]
        seeds: list[int] = []
        sizes: list[tuple[int, int]] = []
        size = min(max(_NGRAM, self._features.settings.chars_min), self._features.settings.chars_max)
        for word in words:
            if word.isascii() and word.isalpha() and word.islower():
                letters, parts = word, []  # most words are, and to ask costs less than to take them apart
            else:
                letters, parts = fold(word), [fold(part) for part in parts_in(word)]
            marked = MARK + letters + MARK
            ngrams = [marked[at : at + size] for at in range(len(marked) - size + 1)] if len(marked) > size else []
            strings += [letters, *parts, *ngrams]
            seeds += [WORD_SEED] * (1 + len(parts)) + [NGRAM_SEED] * len(ngrams)
            sizes.append((len(parts), len(ngrams)))
        lengths = np.fromiter(map(len, strings), dtype=np.int64, count=len(strings))
        keys = keys_of_strings(codes_of("".join(strings)), lengths, np.array(seeds, dtype=np.uint64))
        vocabulary = self._features.vocabulary
        places, has_id = find_sorted(vocabulary.keys, keys)
        is_known = has_id | find_sorted(self._label_keys, keys)[1]
        # Of each word the strings are itself, its parts and its n-grams; counts of all words at once.
        num_parts_U, num_ngrams_U = np.array(sizes, dtype=np.int64).reshape(-1, 2).T
        ends_U = np.cumsum(1 + num_parts_U + num_ngrams_U)
        middles_U = ends_U - num_ngrams_U
        firsts_U = middles_U - num_parts_U - 1
        have_id, are_known = (np.append(0, np.cumsum(marks)) for marks in (has_id, is_known))
        whole_U = is_known[firsts_U]
        whole_U |= (num_parts_U > 0) & (are_known[middles_U] - are_known[firsts_U + 1] == num_parts_U)
        values_U3 = np.empty((len(words), 3))
        idf_U = np.full(len(words), self._idf_of_unknown)
        own = np.flatnonzero(has_id[firsts_U])
        idf_U[own] = self._features.idf[vocabulary.ids[places[firsts_U[own]]]]
        ngrams_known_U = (have_id[ends_U] - have_id[middles_U]) / np.maximum(num_ngrams_U, 1)
        values_U3.T[:] = whole_U, idf_U * np.where(whole_U, 1.0, ngrams_known_U), idf_U
        packed = values_U3.tobytes()
        return {word: packed[_WORD_SIZE * at : _WORD_SIZE * (at + 1)] for at, word in enumerate(words)}


def random_texts(texts: Sequence[str], num_texts: int, seed: int = 0) -> list[str]:
    """Texts of one to six words that nobody has written: letters drawn from those of given texts.

    >>> random_texts(["red hat"], 2) == random_texts(["red hat"], 2), random_texts(["?"], 1)
    (True, [''])
    """
    rng = np.random.default_rng(seed)
    words = [word for text in texts for word in words_in(text)]
    if not words:
        return [""] * num_texts
    letters = np.array(list("".join(words)))
    found = []
    for _ in range(num_texts):
        # Words of fewer letters are often right by chance.
        lengths = [max(_NGRAM, len(words[at])) for at in rng.integers(len(words), size=rng.integers(1, 7))]
        found.append(" ".join("".join(rng.choice(letters, size=length)) for length in lengths))
    return found
