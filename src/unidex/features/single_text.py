"""Few texts at a time, for serving: the rows that a chunk of texts would get, to the last bit, in less time.

Array operations pay off over many words; a few texts have few. So here the words are cut and taken apart one by one by
the means Python has for strings, and the features of a word are remembered from text to text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from unidex.config import Features as Settings
from unidex.features.analyser import PLAIN, Analyser
from unidex.features.codepoints import codes_of
from unidex.features.feature_weights import Rows, Weights
from unidex.features.groups import NGRAM_SEED, NUM_KIND_BITS, SUBWORD_SEED, Kind, subwords_of
from unidex.features.hash_keys import keys_of_pairs, keys_of_strings, mix
from unidex.features.vocabulary import Vocabulary
from unidex.features.word_places import Placed, trimmed
from unidex.features.word_strings import fold, parts_in, words_in
from unidex.features.words import MARK, WORD_SEED

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MEMORY = 100_000  # Words; one takes about half a kilobyte where n-grams are on.


class TextByText:
    """Makes the rows of a few texts; may be used by many threads at once."""

    def __init__(
        self,
        settings: Settings,
        vocabulary: Vocabulary,
        weights: Weights,
        tokenizer: Tokenizer | None,
        analyser: Analyser = PLAIN,
    ) -> None:
        self._settings = settings
        self._vocabulary = vocabulary
        self._weights = weights
        self._tokenizer = tokenizer
        self._analyser = analyser
        # Word -> its key, and the occurrences it brings, in row 0. As bytes, because those are joined quickly.
        self._known: dict[str, tuple[bytes, bytes]] = {}

    def rows(self, texts: Sequence[str]) -> Rows:
        """The rows of analysed texts."""
        words_of_texts = [words_in(text) for text in texts] if self._settings.words else [[] for _ in texts]
        known = self._all_known(chain.from_iterable(words_of_texts))
        brought = [b"".join([known[word][1] for word in words]) for words in words_of_texts]
        in_row_0 = np.frombuffer(b"".join(brought), dtype=np.int64)
        pieces = [in_row_0]
        if len(texts) > 1:
            rows = np.arange(len(texts))
            counts = np.fromiter(map(len, brought), dtype=np.int64, count=len(texts)) // 8
            pieces = [in_row_0 + np.repeat(self._weights.pack(rows, np.zeros_like(rows), Kind.WORD), counts)]
        if self._settings.bigrams:
            pieces.append(self._bigrams(words_of_texts, known))
        if self._tokenizer is not None:
            pieces.extend(self._weights.occurrences(subwords_of(texts, self._tokenizer), self._vocabulary))
        return self._weights.rows(np.concatenate(pieces), len(texts))

    def placed(self, text: str) -> Placed:
        """Where each feature of the row occurs; the features of a word have the place of the word.

        One half of a bigram has the place of its first word, the other half of its second. A subword token has the
        place that its tokenizer reports, without blanks around it; a token without characters of the text has none.
        """
        found: list[tuple[int, int, int, float]] = []
        words = self._analyser.placed(text) if self._settings.words else []
        known = self._all_known([word for word, _, _ in words])
        for word, start, end in words:
            brought = np.frombuffer(known[word][1], dtype=np.int64).tolist()
            found.extend((packed >> NUM_KIND_BITS, start, end, 1.0) for packed in brought)
        if self._settings.bigrams and len(words) > 1:
            ids = self._bigram_ids([known[word][0] for word, _, _ in words])
            for left in np.flatnonzero(ids >= 0).tolist():
                found.extend((int(ids[left]), *words[side][1:], 0.5) for side in (left, left + 1))
        if self._tokenizer is not None:
            encoding = self._tokenizer.encode(text, add_special_tokens=False)
            ids = self._vocabulary.lookup(mix(np.array(encoding.ids, dtype=np.uint64) + np.uint64(SUBWORD_SEED)))
            spans = (trimmed(text, *span) for span in encoding.offsets)
            found.extend((id, *span, 1.0) for id, span in zip(ids.tolist(), spans, strict=True) if id >= 0)
        return Placed.of(found)

    def _all_known(self, words: Iterable[str]) -> dict[str, tuple[bytes, bytes]]:
        """What each of these words brings."""
        remembered = self._known
        wanted = set(words)
        unknown = wanted.difference(remembered)
        if not unknown:
            # A full memory is replaced, never emptied: other threads may still read this one.
            return remembered
        learned = self._learn(unknown)
        return {word: remembered.get(word) or learned[word] for word in wanted}

    def _bigrams(self, words_of_texts: list[list[str]], known: dict[str, tuple[bytes, bytes]]) -> NDArray[np.int64]:
        """The occurrences of bigrams."""
        counts = np.fromiter(map(len, words_of_texts), dtype=np.int64, count=len(words_of_texts))
        row_of_word = np.repeat(np.arange(len(counts)), counts)
        ids = self._bigram_ids([known[word][0] for words in words_of_texts for word in words])
        # The last word of a text and the first of the next are no bigram.
        inside = np.flatnonzero((row_of_word[1:] == row_of_word[:-1]) & (ids >= 0))
        return self._weights.pack(row_of_word[inside], ids[inside], Kind.BIGRAM)

    def _bigram_ids(self, keys: list[bytes]) -> NDArray[np.int64]:
        """The id of the bigram of each two successive keys of words, -1 where it has none."""
        flat_keys = np.frombuffer(b"".join(keys), dtype=np.uint64)
        return self._vocabulary.lookup(keys_of_pairs(flat_keys[:-1], flat_keys[1:]))

    def _learn(self, unknown: Iterable[str]) -> dict[str, tuple[bytes, bytes]]:
        """Work out what words bring: taken apart one by one, then hashed and looked up all together."""
        words: list[str] = []
        ends: list[int] = []
        strings: list[str] = []
        kinds: list[Kind] = []
        for word in unknown:
            self._take_apart(word, strings, kinds)
            words.append(word)
            ends.append(len(strings))
        lengths = np.fromiter(map(len, strings), dtype=np.int64, count=len(strings))
        kind_of_each = np.array(kinds, dtype=np.int64)
        seeds = np.where(kind_of_each == Kind.CHARS, np.uint64(NGRAM_SEED), np.uint64(WORD_SEED))
        keys = keys_of_strings(codes_of("".join(strings)), lengths, seeds)
        ids = self._vocabulary.lookup(keys)
        packed = self._weights.pack(0, ids, kind_of_each)
        has_id = ids >= 0
        learned = {}
        start = 0
        for word, end in zip(words, ends, strict=True):
            # The first is the word itself, whose key its bigrams need.
            learned[word] = keys[start].tobytes(), packed[start:end][has_id[start:end]].tobytes()
            start = end
        if len(self._known) + len(learned) > MEMORY:
            self._known = {}
        self._known.update(learned)
        return learned

    def _take_apart(self, word: str, strings: list[str], kinds: list[Kind]) -> None:
        """Append what a word is made of, each with its kind: the word itself, then its parts and n-grams."""
        settings = self._settings
        letters = fold(word)
        strings.append(letters)
        kinds.append(Kind.WORD)
        if settings.parts:
            for part in parts_in(word):
                strings.append(fold(part))
                kinds.append(Kind.PART)
        if settings.chars:
            marked = MARK + letters + MARK
            # From mark to mark it is the word itself.
            longest = min(settings.chars_max, len(marked) - 1)
            for size in range(settings.chars_min, longest + 1):
                ngrams = [marked[start : start + size] for start in range(len(marked) - size + 1)]
                strings += ngrams
                kinds += [Kind.CHARS] * len(ngrams)
