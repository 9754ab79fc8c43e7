"""Matches: labels of which a text has every word, where and how often it has them, and how often that was right.

A label matches a text if all words of one of its texts occur there, in any order. A qualifier in brackets, as in
"mercury (planet)", need not occur. Of several texts of a label that match, the one with the most words counts, then the
one that occurs most often::

    count(x, l) = the smallest number of occurrences in x of a word of l
    first(x, l) = the largest share of x that stands before the first occurrence of a word of l
    rate(l)     = (right_l + c r) / (matched_l + c)       r = sum of right_l / sum of matched_l, c = 3

where matched_l training texts match l, and right_l of these have it.

Shapes: N texts, L labels, R texts of labels, M matches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex.data.concepts import Concepts
from unidex.data.dataset import Split
from unidex.scoring.matches import Matches
from unidex.sparse_rows import find_entries, find_sorted, row_of_entries, unchecked_csr
from unidex.topk import TopK

MAX_LEARNED = 1 << 20  # training texts in which matches are counted
_SMOOTHING = 3.0
_TEXTS_AT_ONCE = 1000
_COUNTED_AT_ONCE = 1 << 16  # texts; a count takes as long as there are labels


class MatchFinder(ABC):
    """Finds the labels that match texts: with their words in memory, or in files."""

    @property
    @abstractmethod
    def num_labels(self) -> int:
        """Number of labels."""

    @abstractmethod
    def find(self, texts: Sequence[str]) -> Matches:
        """The labels that match texts."""

    @abstractmethod
    def num_words(self, rows: NDArray[Any]) -> NDArray[np.int64]:
        """The number of words of texts of labels."""

    @abstractmethod
    def ambiguities(self, rows: NDArray[Any]) -> NDArray[np.integer[Any]]:
        """The number of labels that have a text of the same words."""

    @abstractmethod
    def rates(self, labels: NDArray[Any]) -> NDArray[np.float32]:
        """How often a match of labels is right."""

    @abstractmethod
    def num_texts(self, labels: NDArray[Any]) -> NDArray[np.int64]:
        """The number of training texts that match labels."""

    @abstractmethod
    def count(self, matched: NDArray[Any], right: NDArray[Any]) -> None:
        """Count training texts more: the label of each match, and those of the right ones."""

    @abstractmethod
    def add(self, label_texts: Sequence[str], concepts: Concepts | None = None) -> None:
        """Append labels, of which no training text is known."""

    @abstractmethod
    def rename(self, label: int, text: str) -> None:
        """Give a label another text; its further texts stay, and its counts start anew."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the words of all labels and the counts of training texts."""

    @property
    def of_labels(self) -> tuple[NDArray[Any], ...] | None:
        """Words and ambiguity of each row, rate and matching training texts of each label, as kernels read them."""
        return None

    def learn(self, split: Split, rows: NDArray[np.int64]) -> None:
        """Count in how many more of the training texts at these rows each label matches, and in how many it is right.

        Of very many texts, evenly spread ones are read.
        """
        if len(rows) > MAX_LEARNED:
            rows = rows[np.linspace(0, len(rows) - 1, MAX_LEARNED).astype(np.int64)]
        for first in range(0, len(rows), _COUNTED_AT_ONCE):
            counted = rows[first : first + _COUNTED_AT_ONCE]
            blocks = range(0, len(counted), _TEXTS_AT_ONCE)
            found = [self._matched(split.take(counted[start : start + _TEXTS_AT_ONCE])) for start in blocks]
            matched, right = (np.concatenate(labels) for labels in zip(*found, strict=True))
            self.count(matched, right)

    def _matched(self, split: Split) -> tuple[NDArray[Any], NDArray[Any]]:
        """The label of each match in training texts, and those of the right ones."""
        found, own = self.find(list(split.texts)).places_NL, split.positives
        keys, true_keys = (row_of_entries(rows, np.int64) * self.num_labels + rows.indices for rows in (found, own))
        return found.indices, found.indices[find_sorted(np.sort(true_keys), keys)[1]]

    def scores(self, matches: Matches) -> sparse.csr_array:
        """How likely matches are right, N x L: by their rate, and more so the more often they occur."""
        labels = matches.places_NL.indices
        scores = self.rates(labels) * (1 + np.log1p(matches.counts_M[matches.places_NL.data]))
        return unchecked_csr(scores, labels, matches.places_NL.indptr, matches.places_NL.shape)

    def search(self, matches: Matches, k: int, hidden_L: NDArray[np.bool_] | None = None) -> TopK:
        """The k labels of each text whose matches have the highest scores."""
        found = self.scores(matches)
        if hidden_L is not None:
            found.data[hidden_L[found.indices]] = -np.inf
        return TopK.from_csr(found, k)

    def features(
        self, matches: Matches, ids_NK: NDArray[np.int64], room: NDArray[np.float32] | None = None
    ) -> dict[str, NDArray[np.float32]]:
        """The features of pairs of a text and a label, N x K each; 0, 1 or -1 for a label that does not match.

        They are written to ``room``, where it is given, one array after the other.
        """
        places_NL = matches.places_NL
        found, is_there = find_entries(places_NL, ids_NK)
        at = places_NL.data[found] if places_NL.nnz else found

        def of(values: NDArray[Any], without: float) -> NDArray[np.float32]:
            if not len(values):
                return np.full(ids_NK.shape, without, dtype=np.float32)
            return np.where(is_there, values[at], without).astype(np.float32)

        per_text = np.diff(places_NL.indptr).astype(np.float32)
        features = {
            "match_count": of(matches.counts_M, 0),
            "match_first": of(matches.firsts_M, 1),
            "match_rate": np.where(is_there, self.rates(ids_NK), 0).astype(np.float32),
            "match_texts": np.where(is_there, self.num_texts(ids_NK), -1).astype(np.float32),
            "match_words": of(self.num_words(matches.rows_M), 0),
            "match_ambiguity": of(self.ambiguities(matches.rows_M), 0),
            "num_matches": np.broadcast_to(per_text[:, None], ids_NK.shape),
        }
        if room is not None:
            for place, values in enumerate(features.values()):
                room[place] = values
        return features


def smoothed_rates(texts_2: NDArray[np.int64], total_2: NDArray[np.int64] | tuple[int, int]) -> NDArray[np.float32]:
    """Rates of labels from their training texts that match and are right, and from those of all labels."""
    matched, right = texts_2
    mean = total_2[1] / max(1, total_2[0])
    rates: NDArray[np.float32] = ((right + _SMOOTHING * mean) / (matched + _SMOOTHING)).astype(np.float32)
    return rates
