"""Word rows: the first words of each text in order, as ids of the vocabulary.

Shapes: N texts, W words of all texts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from unidex import progress
from unidex.errors import DataError
from unidex.features.extractor import FeatureExtractor
from unidex.features.tokens import TokenRows
from unidex.features.words import Words

_TEXTS_AT_ONCE = 1024


def word_rows(features: FeatureExtractor, texts: Sequence[str], max_words: int) -> TokenRows:
    """The ids of the first ``max_words`` words of each text, in order; words without an id or a bucket are left out.

    >>> from unidex.config import Features as Settings
    >>> features = FeatureExtractor.fit(["red hat", "red shoe"], [], Settings(min_df=1, bigrams=False, num_buckets=0))
    >>> rows = word_rows(features, ["A hat, a red hat!", "", "Red shoe"], max_words=2)
    >>> [[features.name(word) for word in row] for row in rows.as_lists()]
    [['hat', 'red'], [], ['red', 'shoe']]
    """
    if isinstance(texts, str):
        raise DataError("texts must be a sequence of texts, but one text was given; put it in a list")
    parts = [TokenRows.of([], max_words)]
    with progress.task("reading words", len(texts), unit="texts") as advance:
        for start in range(0, len(texts), _TEXTS_AT_ONCE):
            chunk = list(texts[start : start + _TEXTS_AT_ONCE])
            parts.append(_first_words(features, chunk, max_words))
            advance(len(chunk))
    return parts[1] if len(parts) == 2 else TokenRows.stack(parts)


def places_of_words(features: FeatureExtractor, text: str, max_words: int) -> list[tuple[int, int]]:
    """Where each word of a text's row starts and ends in the text.

    >>> from unidex.config import Features as Settings
    >>> features = FeatureExtractor.fit(["red hat"], [], Settings(min_df=1, bigrams=False, num_buckets=0))
    >>> places_of_words(features, "A hat, a red hat!", max_words=2)
    [(2, 5), (9, 12)]
    """
    _, ids_W = _ids(features, [text])
    words = zip(features.analyser.placed(text), ids_W.tolist(), strict=True)
    return [(start, end) for (_, start, end), word in words if word >= 0][:max_words]


def _first_words(features: FeatureExtractor, texts: list[str], max_words: int) -> TokenRows:
    rows_W, ids_W = _ids(features, texts)
    known = ids_W >= 0
    rows_W, ids_W = rows_W[known], ids_W[known]
    counts_N = np.bincount(rows_W, minlength=len(texts))
    before_N = np.cumsum(counts_N) - counts_N
    # Cut here, so that the words after the limit leave memory.
    kept = np.arange(len(rows_W)) - before_N[rows_W] < max_words
    lengths_N = np.minimum(counts_N, max_words)
    return TokenRows(ids_W[kept].astype(np.int32), np.cumsum(lengths_N) - lengths_N, lengths_N, max_words)


def _ids(features: FeatureExtractor, texts: list[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The text and the id of every word; -1 for one that has none."""
    words = Words.of(features.analyser.texts(texts))
    return words.rows, features.vocabulary.lookup(words.keys)[words.ids]
