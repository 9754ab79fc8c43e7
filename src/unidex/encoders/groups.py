"""Feature groups: the distinct features of a chunk of texts, where they occur, and their names.

A group is told apart by its keys, 64-bit hashes of what a feature is made of. Words and their parts are one group,
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

from unidex.encoders.codepoints import folded, text_of
from unidex.encoders.feature_settings import FeatureSettings
from unidex.encoders.hashing import distinct, keys_of_ngrams, keys_of_pairs, keys_of_strings, mix, places
from unidex.encoders.words import MARK, Pieces, Words, ngrams_of, parts_of

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Other seeds, other keys: a trigram "red" is not the word "red". The numbers are part of the format of saved features.
WORD_SEED, NGRAM_SEED, SUBWORD_SEED = 0x51ED270B27B4C1E9, 0xA3B195354A39B70D, 0xC2B2AE3D27D4EB4F


class Kind(IntEnum):
    """What a feature is in the text where it occurs."""

    WORD = 0
    PART = 1
    BIGRAM = 2
    CHARS = 3
    SUBWORD = 4


NUM_KIND_BITS = 3


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
        feature_name: the readable name of the feature at a place of ``keys``.
    """

    name: str
    keys: NDArray[np.uint64]
    occurrences: Callable[[], list[Occurrences]]
    feature_name: Callable[[int], str]


def groups_of(texts: Sequence[str], settings: FeatureSettings, tokenizer: Tokenizer | None) -> Iterator[Group]:
    """The feature groups of texts, always in the same order.

    >>> settings = FeatureSettings(min_df=1)
    >>> for group in groups_of(["GoldenRatio is golden"], settings, None):
    ...     print(group.name, sorted(group.feature_name(place) for place in range(len(group.keys))))
    words ['golden', 'goldenratio', 'is', 'ratio']
    bigrams ['goldenratio is', 'is golden']
    """
    if settings.words or settings.bigrams or settings.chars:
        words = Words.of(texts)
        if settings.lower_case:
            letters = folded(words.codes)
        else:
            letters = words.codes
        word_keys = keys_of_strings(letters[places(words.starts, words.lengths)], words.lengths, WORD_SEED)
        if settings.words:
            yield _terms(words, letters, word_keys, with_parts=settings.parts)
        if settings.bigrams:
            yield _bigrams(words, letters, word_keys)
        if settings.chars:
            yield _ngrams(words, letters, range(settings.chars_min, settings.chars_max + 1))
    if tokenizer is not None:
        yield _subwords(texts, tokenizer)


def _terms(words: Words, letters: NDArray[np.uint32], word_keys: NDArray[np.uint64], *, with_parts: bool) -> Group:
    none = np.empty(0, dtype=np.int64)
    parts = parts_of(words) if with_parts else Pieces(none, none, none)
    part_keys = keys_of_strings(letters[places(parts.starts, parts.lengths)], parts.lengths, WORD_SEED)
    keys, example, feature = distinct(np.concatenate([word_keys, part_keys]))
    starts = np.concatenate([words.starts, parts.starts])[example]
    lengths = np.concatenate([words.lengths, parts.lengths])[example]
    num_words = len(word_keys)

    def occurrences() -> list[Occurrences]:
        found = [Occurrences(Kind.WORD, words.rows, feature[:num_words][words.ids])]
        if len(part_keys):
            found.append(_of_each_word(Kind.PART, words, parts.words, feature[num_words:]))
        return found

    return Group("words", keys, occurrences, lambda at: text_of(letters[starts[at] : starts[at] + lengths[at]]))


def _bigrams(words: Words, letters: NDArray[np.uint32], word_keys: NDArray[np.uint64]) -> Group:
    left = np.flatnonzero(words.rows[1:] == words.rows[:-1])
    flat_keys = word_keys[words.ids]
    keys, example, feature = distinct(keys_of_pairs(flat_keys[left], flat_keys[left + 1]))
    ends = words.starts + words.lengths

    def name(at: int) -> str:
        place = left[example[at]]
        first, second = words.ids[place], words.ids[place + 1]
        texts = (text_of(letters[words.starts[word] : ends[word]]) for word in (first, second))
        return " ".join(texts)

    return Group("bigrams", keys, lambda: [Occurrences(Kind.BIGRAM, words.rows[left], feature)], name)


def _ngrams(words: Words, letters: NDArray[np.uint32], sizes: range) -> Group:
    grams = [ngrams_of(words, n) for n in sizes]
    flat_keys = [keys_of_ngrams(letters, gram.starts, n, NGRAM_SEED) for n, gram in zip(sizes, grams, strict=True)]
    starts = np.concatenate([gram.starts for gram in grams])
    lengths = np.concatenate([gram.lengths for gram in grams])
    keys, example, feature = distinct(np.concatenate(flat_keys))

    def occurrences() -> list[Occurrences]:
        word = np.concatenate([gram.words for gram in grams])
        order = np.argsort(word, kind="stable")
        return [_of_each_word(Kind.CHARS, words, word[order], feature[order])]

    def name(at: int) -> str:
        start, length = starts[example[at]], lengths[example[at]]
        # Shown as users write patterns: red* begins a word, *red ends one, *red* stands inside.
        inside = text_of(letters[start : start + length])
        head, tail = inside.startswith(MARK), inside.endswith(MARK)
        return ("" if head else "*") + inside.strip(MARK) + ("" if tail else "*")

    return Group("chars", keys, occurrences, name)


def _subwords(texts: Sequence[str], tokenizer: Tokenizer) -> Group:
    encodings = [encoding.ids for encoding in tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]
    counts = np.fromiter(map(len, encodings), dtype=np.int64, count=len(encodings))
    tokens = np.fromiter(chain.from_iterable(encodings), dtype=np.uint64, count=int(counts.sum()))
    keys, example, feature = distinct(mix(tokens + np.uint64(SUBWORD_SEED)))
    rows = np.repeat(np.arange(len(counts)), counts)
    return Group(
        "subwords",
        keys,
        lambda: [Occurrences(Kind.SUBWORD, rows, feature)],
        lambda at: f"[{tokenizer.id_to_token(int(tokens[example[at]]))}]",
    )


def _of_each_word(
    kind: Kind, words: Words, word_of_entry: NDArray[np.int64], feature_of_entry: NDArray[np.int64]
) -> Occurrences:
    """What the distinct words have, at every place where those words stand; entries ascend by word."""
    counts = np.bincount(word_of_entry, minlength=len(words.lengths))
    starts = np.cumsum(counts) - counts
    repeats = counts[words.ids]
    return Occurrences(kind, np.repeat(words.rows, repeats), feature_of_entry[places(starts[words.ids], repeats)])
