"""Feature groups: the distinct features of a chunk of texts, where they occur, and their names.

A feature of a group is identified by its key, a 64-bit hash of its characters. Words and their parts are one group,
because a part that is also a word elsewhere is the same feature.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from unidex.config import Features as Settings
from unidex.features.hash_keys import distinct, keys_of_ngrams, keys_of_pairs, keys_of_strings, mix, places
from unidex.features.words import MARK, WORD_SEED, Pieces, Words, ngrams_of, parts_of

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Other seeds, other keys: the trigram "red" is not the word "red".
NGRAM_SEED = 0xA3B195354A39B70D
SUBWORD_SEED = 0xC2B2AE3D27D4EB4F


class Kind(IntEnum):
    """What a feature is in the text where it occurs."""

    WORD = 0
    PART = 1
    BIGRAM = 2
    CHARS = 3
    SUBWORD = 4


NUM_KIND_BITS = 3
_NO_PIECES = Pieces(*(np.empty(0, dtype=np.int64) for _ in range(3)))


@dataclass(frozen=True, eq=False)
class Occurrences:
    """Occurrences of one kind: the text and the feature of each."""

    kind: Kind
    rows: NDArray[np.int64]
    features: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Group:
    """Distinct features of a chunk of texts.

    Attributes:
        name: of the group.
        keys: of the features, ascending.
        occurrences: finds where they occur; called only where that is needed.
        feature_names: the readable names of the features at places of ``keys``.
    """

    name: str
    keys: NDArray[np.uint64]
    occurrences: Callable[[], list[Occurrences]]
    feature_names: Callable[[NDArray[np.int64]], list[str]]


def groups_of(texts: Sequence[str], settings: Settings, tokenizer: Tokenizer | None) -> Iterator[Group]:
    """The feature groups of analysed texts, always in the same order.

    >>> for group in groups_of(["GoldenRatio is golden"], Settings(), None):
    ...     print(group.name, sorted(group.feature_names(np.arange(len(group.keys)))))
    words ['golden', 'goldenratio', 'is', 'ratio']
    bigrams ['goldenratio is', 'is golden']
    """
    if settings.words:
        words = Words.of(texts)
        yield terms_in(words, parts_of(words) if settings.parts else _NO_PIECES)
        if settings.chars:
            yield ngrams_in(words, range(settings.chars_min, settings.chars_max + 1))
        if settings.bigrams:
            yield _bigrams(words)
    if tokenizer is not None:
        yield subwords_of(texts, tokenizer)


def terms_in(words: Words, parts: Pieces) -> Group:
    """The group of words and of pieces of them that count as words."""
    part_keys = keys_of_strings(words.letters[places(parts.starts, parts.lengths)], parts.lengths, WORD_SEED)
    keys, example, feature = distinct(np.concatenate([words.keys, part_keys]))
    num_words = len(words.keys)

    def occurrences() -> list[Occurrences]:
        found = [Occurrences(Kind.WORD, words.rows, feature[:num_words][words.ids])]
        if len(part_keys):
            found.append(_of_each_word(Kind.PART, words, parts.words, feature[num_words:]))
        return found

    def names(at: NDArray[np.int64]) -> list[str]:
        starts = np.concatenate([words.starts, parts.starts])
        lengths = np.concatenate([words.lengths, parts.lengths])
        return words.texts(starts[example[at]], lengths[example[at]])

    return Group("words", keys, occurrences, names)


def _bigrams(words: Words) -> Group:
    left = np.flatnonzero(words.rows[1:] == words.rows[:-1])
    flat_keys = words.keys[words.ids]
    keys, example, feature = distinct(keys_of_pairs(flat_keys[left], flat_keys[left + 1]))

    def names(at: NDArray[np.int64]) -> list[str]:
        firsts, seconds = words.ids[left[example[at]]], words.ids[left[example[at]] + 1]
        texts = (words.texts(words.starts[side], words.lengths[side]) for side in (firsts, seconds))
        return [f"{first} {second}" for first, second in zip(*texts, strict=True)]

    return Group("bigrams", keys, lambda: [Occurrences(Kind.BIGRAM, words.rows[left], feature)], names)


def ngrams_in(words: Words, sizes: range) -> Group:
    """The group of the character n-grams of words."""
    pieces = [ngrams_of(words, n) for n in sizes]
    flat_keys = [keys_of_ngrams(words.letters, of.starts, n, NGRAM_SEED) for n, of in zip(sizes, pieces, strict=True)]
    keys, example, feature = distinct(np.concatenate(flat_keys))

    def occurrences() -> list[Occurrences]:
        word = np.concatenate([of.words for of in pieces])
        order = np.argsort(word, kind="stable")
        return [_of_each_word(Kind.CHARS, words, word[order], feature[order])]

    def names(at: NDArray[np.int64]) -> list[str]:
        starts = np.concatenate([of.starts for of in pieces])
        lengths = np.concatenate([of.lengths for of in pieces])
        return [_pattern(ngram) for ngram in words.texts(starts[example[at]], lengths[example[at]])]

    return Group("chars", keys, occurrences, names)


def _pattern(ngram: str) -> str:
    """An n-gram as users write patterns: red* starts a word, *red ends one, *red* is inside.

    >>> _pattern("#re"), _pattern("red"), _pattern("ed#")
    ('re*', '*red*', '*ed')
    """
    return ("" if ngram.startswith(MARK) else "*") + ngram.strip(MARK) + ("" if ngram.endswith(MARK) else "*")


def subwords_of(texts: Sequence[str], tokenizer: Tokenizer) -> Group:
    """The group of the subword tokens of texts."""
    encodings = [encoding.ids for encoding in tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]
    counts = np.fromiter(map(len, encodings), dtype=np.int64, count=len(encodings))
    tokens = np.fromiter(chain.from_iterable(encodings), dtype=np.uint64, count=int(counts.sum()))
    keys, example, feature = distinct(mix(tokens + np.uint64(SUBWORD_SEED)))
    rows = np.repeat(np.arange(len(counts)), counts)

    def names(at: NDArray[np.int64]) -> list[str]:
        return [f"[{tokenizer.id_to_token(token)}]" for token in tokens[example[at]].tolist()]

    return Group("subwords", keys, lambda: [Occurrences(Kind.SUBWORD, rows, feature)], names)


def _of_each_word(
    kind: Kind, words: Words, word_of_entry: NDArray[np.int64], feature_of_entry: NDArray[np.int64]
) -> Occurrences:
    """What distinct words have, at every place where the words occur; entries ascend by word."""
    counts = np.bincount(word_of_entry, minlength=len(words.lengths))
    starts = np.cumsum(counts) - counts
    repeats = counts[words.ids]
    return Occurrences(kind, np.repeat(words.rows, repeats), feature_of_entry[places(starts[words.ids], repeats)])
