"""Words, their beginnings and character n-grams of texts as hashed columns.

Words have the first half of the columns, n-grams the second. The beginning of a long word is one more word, so that
inflected forms share it: "Bibliotheken" and "Bibliothek" share their beginning.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter

from unidex import native
from unidex.data.text_blocks import text_blocks
from unidex.features.analyser import PLAIN, Analyser
from unidex.features.codepoints import codes_of, read_texts
from unidex.features.groups import NGRAM_SEED, ngrams_in, terms_in
from unidex.features.hash_keys import keys_of_strings
from unidex.features.word_strings import fold, parts_in, words_in
from unidex.features.words import MARK, WORD_SEED, Pieces, Words, normal_form, parts_of

HALF = 1 << 16
NUM_COLUMNS = 2 * HALF
_NGRAM = 4
_CHUNK, _CHUNK_CHARACTERS = 2000, 1_000_000
_MAX_WORDS = 100_000  # remembered
# Weights and frequencies of columns of which none is left out.
_EVERY_COLUMN = np.ones(NUM_COLUMNS), np.ones(NUM_COLUMNS, dtype=np.int32)

Columns = tuple[NDArray[np.int32], NDArray[np.int64]]  # of texts, and where those of a text start


@dataclass(frozen=True)
class Reading:
    """What is read of a text.

    Attributes:
        analyser: which words a text is read as.
        beginning: letters of a beginning; 0 for words alone.
        max_characters: read of a text; None for all.
    """

    analyser: Analyser = PLAIN
    beginning: Annotated[int, Field(ge=0)] = 6
    max_characters: Annotated[int, Field(ge=1)] | None = None

    @classmethod
    def read(cls, values: Any) -> Reading:
        """Read what ``as_dict`` gave; ValueError where it is something else."""
        if not isinstance(values, dict):
            raise ValueError(f"it is {values!r}")
        analyser = Analyser.read(values.pop("analyser", None), values.pop("language", ""))
        return replace(TypeAdapter(cls).validate_python(values), analyser=analyser)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(replace(self, analyser=PLAIN)) | {"analyser": self.analyser.as_dict()}

    def analysed(self, texts: Sequence[str]) -> Sequence[str]:
        """What is read of texts."""
        return self.analyser.texts([text[: self.max_characters] for text in texts] if self.max_characters else texts)

    def columns_of(self, texts: Sequence[str]) -> Columns:
        """The columns of each text, ascending and each once, and where those of a text start."""
        columns_of_chunks, counts = [np.empty(0, dtype=np.int32)], [np.zeros(1, dtype=np.int64)]
        for chunk in text_blocks((text[: self.max_characters] for text in texts), _CHUNK, _CHUNK_CHARACTERS):
            if native.kernels is not None:
                read = [normal_form(text) for text in self.analyser.texts(chunk)]
                starts, own, _ = read_texts(native.kernels.lexical_rows, [read], *_EVERY_COLUMN, self.beginning)
                columns_of_chunks.append(np.frombuffer(own, dtype=np.int32))
                ends = np.frombuffer(starts, dtype=np.int32).astype(np.int64)
                counts.append(ends[1:] - ends[:-1])
                continue
            words, found = Words.of(self.analyser.texts(chunk)), []
            groups = terms_in(words, self._pieces(words)), ngrams_in(words, range(_NGRAM, _NGRAM + 1))
            for half, group in enumerate(groups):
                columns = (group.keys % np.uint64(HALF)).astype(np.int64) + half * HALF
                found += [part.rows * NUM_COLUMNS + columns[part.features] for part in group.occurrences()]
            ascending = np.sort(np.concatenate(found))
            keys = ascending[np.append(True, ascending[1:] != ascending[:-1])[: len(ascending)]]
            columns_of_chunks.append((keys % NUM_COLUMNS).astype(np.int32))
            counts.append(np.bincount(keys // NUM_COLUMNS, minlength=len(chunk)))
        return np.concatenate(columns_of_chunks), np.cumsum(np.concatenate(counts))

    def _pieces(self, words: Words) -> Pieces:
        """The parts of words, and the beginnings of both."""
        parts = parts_of(words)
        if not self.beginning:
            return parts
        owners = np.concatenate([np.arange(len(words.lengths)), parts.words])
        starts = np.concatenate([words.starts, parts.starts])
        lengths = np.concatenate([words.lengths, parts.lengths])
        is_long = lengths > self.beginning
        owners = np.concatenate([parts.words, owners[is_long]])
        order = np.argsort(owners, kind="stable")
        starts = np.concatenate([parts.starts, starts[is_long]])
        lengths = np.concatenate([parts.lengths, np.full(int(is_long.sum()), self.beginning)])
        return Pieces(owners[order], starts[order], lengths[order])


READING = Reading()
# What models read that were trained before long texts were read whole.
OLD_READING = Reading(beginning=0, max_characters=2000)


class WordMemory:
    """The columns of words seen before: a few texts need less time than by array operations."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._columns: dict[str, bytes] = {}  # as bytes, because those are joined quickly

    def occurrences(self, texts: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The columns of the words of each text, one word after the other, and their number per text.

        All features of a text are those of its words.
        """
        words_of_texts = [words_in(text) for text in self._reading.analysed(texts)]
        known = self._columns if len(self._columns) < _MAX_WORDS else {}
        if new := [word for word in set().union(*words_of_texts) if word not in known]:
            known.update(zip(new, self._learn(new), strict=True))
            self._columns = known
        rows = [b"".join([known[word] for word in words]) for words in words_of_texts]
        counts = np.array([len(row) for row in rows], dtype=np.int64) // 4
        # A copy that can be written to.
        return np.frombuffer(bytearray(b"".join(rows)), dtype=np.int32), counts

    def _learn(self, words: list[str]) -> Iterator[bytes]:
        """The columns of each word, as `Reading.columns_of` has them, by the means Python has for strings."""
        beginning = self._reading.beginning or sys.maxsize
        strings: list[str] = []
        ends: list[tuple[int, int]] = []
        for word in words:
            letters = fold(word)
            terms = [letters, *map(fold, parts_in(word))]
            strings += terms
            strings += [term[:beginning] for term in terms if len(term) > beginning]
            middle, marked = len(strings), MARK + letters + MARK
            if len(marked) > _NGRAM:  # from mark to mark it is the word itself
                strings += [marked[start : start + _NGRAM] for start in range(len(marked) - _NGRAM + 1)]
            ends.append((middle, len(strings)))
        is_ngram = np.zeros(len(strings), dtype=bool)
        for middle, end in ends:
            is_ngram[middle:end] = True
        lengths = np.fromiter(map(len, strings), dtype=np.int64, count=len(strings))
        seeds = np.where(is_ngram, np.uint64(NGRAM_SEED), np.uint64(WORD_SEED))
        keys = keys_of_strings(codes_of("".join(strings)), lengths, seeds)
        columns = ((keys % np.uint64(HALF)).astype(np.int32) + is_ngram * np.int32(HALF)).astype(np.int32)
        start = 0
        for _, end in ends:
            yield columns[start:end].tobytes()
            start = end
