"""The links of a score: labels whose own train text has the label that a text is named like.

Where texts and labels are things of one kind, as pages that refer to pages, a train text may be a label too. If the
train text of label y has label z, and a new text is named z, y is likely its label: pages refer to each other.

    named(x)    = the labels of which the text begins with all words and no others, those with the most words
    links(x, y) = number of train texts t with y in named(t) and a label of named(x), other than y

Shapes: N texts, T train texts, L labels, P pairs of labels, Z labels that links start at.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex.errors import ModelError
from unidex.scoring.match_finder import MatchFinder
from unidex.scoring.matches import Matches
from unidex.sparse_rows import csr_from_counts, find_sorted, row_of_entries, sparse_product, unchecked_csr
from unidex.storage.small_numbers import load_numbers, save_numbers
from unidex.topk import TopK

# The ranking feature of this part.
LINKS = ("links",)
_STARTS, _ENDS, _COUNTS = "starts", "ends", "counts"
# A text with the name of more labels says nothing of one of them, and thousands of labels may share a name.
_MAX_NAMES = 8
# Nor does a label that more others refer to tell which of them a text refers to.
_MAX_ENDS = 1000


class Links:
    """How often the train text of one label has another one.

    Args:
        starts_P: the label that a train text has, ascending.
        ends_P: the label that the train text is named like; ascending for the same start.
        counts_P: number of such train texts.
        num_labels: number of labels.
    """

    def __init__(
        self, starts_P: NDArray[np.int64], ends_P: NDArray[np.int64], counts_P: NDArray[np.int64], num_labels: int
    ) -> None:
        self._starts_P, self._ends_P, self._counts_P, self.num_labels = starts_P, ends_P, counts_P, num_labels

    @classmethod
    def of(cls, names_TL: sparse.csr_array, positives_TL: sparse.csr_array) -> Links:
        """The links of train texts with these names and labels.

        >>> names = sparse.csr_array(np.array([[1, 0, 0], [0, 0, 0]], dtype=np.float32))
        >>> links = Links.of(names, sparse.csr_array(np.array([[0, 1, 1], [1, 1, 0]])))
        >>> links.of_texts(sparse.csr_array(np.array([[0, 0, 1]], dtype=np.float32))).toarray().tolist()
        [[1.0, 0.0, 0.0]]
        """
        no_pairs = np.empty(0, dtype=np.int64)
        return cls(no_pairs, no_pairs, no_pairs, positives_TL.shape[1]).with_texts(names_TL, positives_TL)

    def with_texts(self, names_TL: sparse.csr_array, positives_TL: sparse.csr_array) -> Links:
        """These links and those of further train texts."""
        named = np.flatnonzero(np.diff(names_TL.indptr))
        names, own = names_TL[named], positives_TL[named]
        # Every name of a text with every label of it.
        counts = np.diff(own.indptr)
        rows = row_of_entries(names)
        lengths = counts[rows]
        firsts = np.repeat(own.indptr[rows] - (np.cumsum(lengths) - lengths), lengths)
        starts = own.indices[firsts + np.arange(len(firsts))].astype(np.int64)
        ends = np.repeat(names.indices.astype(np.int64), lengths)
        others = starts != ends
        keys = np.concatenate(
            [self._starts_P * self.num_labels + self._ends_P, starts[others] * self.num_labels + ends[others]]
        )
        weights = np.concatenate([self._counts_P, np.ones(int(others.sum()), dtype=np.int64)])
        distinct, places = np.unique(keys, return_inverse=True)
        totals = np.bincount(places, weights=weights, minlength=len(distinct)).astype(np.int64)
        return Links(distinct // self.num_labels, distinct % self.num_labels, totals, self.num_labels)

    def grown(self, num_labels: int) -> Links:
        """The same links among more labels."""
        return Links(self._starts_P, self._ends_P, self._counts_P, num_labels)

    def __len__(self) -> int:
        return len(self._counts_P)

    def of_texts(self, names_NL: sparse.csr_array) -> sparse.csr_array:
        """The links of texts with these names, N x L."""
        starts_Z, counts_ZL = self._by_start
        places, are_there = find_sorted(starts_Z, names_NL.indices)
        if are_there.all():
            kept, ends = names_NL.data, names_NL.indptr
        else:
            kept, places = names_NL.data[are_there], places[are_there]
            ends = np.append(0, np.cumsum(are_there))[names_NL.indptr]
        names_NZ = unchecked_csr(
            kept, places.astype(np.int32), ends.astype(np.int32, copy=False), (names_NL.shape[0], len(starts_Z))
        )
        return sparse_product(names_NZ, counts_ZL)

    @cached_property
    def _by_start(self) -> tuple[NDArray[np.int64], sparse.csr_array]:
        """The labels that links start at, and a row of counts for each."""
        starts_Z, counts_Z = np.unique(self._starts_P, return_counts=True)
        is_few_Z = counts_Z <= _MAX_ENDS
        kept_P = np.repeat(is_few_Z, counts_Z)
        ends, counts = self._ends_P[kept_P].astype(np.int32), self._counts_P[kept_P].astype(np.float32)
        return starts_Z[is_few_Z], csr_from_counts(counts, ends, counts_Z[is_few_Z], self.num_labels)

    def save(self, folder: Path) -> None:
        """Write all pairs."""
        folder.mkdir(parents=True)
        for name, values in ((_STARTS, self._starts_P), (_ENDS, self._ends_P), (_COUNTS, self._counts_P)):
            save_numbers(folder / name, values)

    @classmethod
    def load(cls, folder: Path, num_labels: int) -> Links:
        """Read what ``save`` wrote, of so many labels or fewer."""
        starts = load_numbers(folder / _STARTS, (None,), np.int64)
        ends, counts = (load_numbers(folder / name, (len(starts),), np.int64) for name in (_ENDS, _COUNTS))
        for labels in (starts, ends):
            if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < num_labels:
                raise ModelError(f"{folder}: links must be between labels below {num_labels}; copy the model again")
        keys = starts.astype(np.int64) * num_labels + ends
        if (np.diff(keys) <= 0).any() or (counts <= 0).any():
            raise ModelError(f"{folder}: pairs must ascend and counts be above 0, but are not; copy the model again")
        return cls(starts.astype(np.int64), ends.astype(np.int64), counts.astype(np.int64), num_labels)


def named_labels(finder: MatchFinder, matches: Matches) -> sparse.csr_array:
    """The labels that texts are named like, N x L, each 1: of the matches that are names, those with the most words.

    A text with the name of very many labels is named like none.
    """
    places_NL = matches.places_NL
    at = places_NL.data
    entries = np.flatnonzero(matches.names_M[at]) if len(at) else np.empty(0, dtype=np.int64)
    words = finder.num_words(matches.rows_M[at[entries]])
    texts = np.searchsorted(places_NL.indptr, entries, side="right") - 1
    most_N = np.zeros(places_NL.shape[0], dtype=np.int64)
    np.maximum.at(most_N, texts, words)
    longest = np.flatnonzero(words == most_N[texts])
    counts = np.bincount(texts[longest], minlength=len(most_N))
    if counts.max(initial=0) > _MAX_NAMES:
        longest = longest[counts[texts[longest]] <= _MAX_NAMES]
        counts[counts > _MAX_NAMES] = 0
    labels = places_NL.indices[entries[longest]]
    starts = np.append(0, np.cumsum(counts)).astype(np.int32)
    return unchecked_csr(np.ones(len(labels), dtype=np.float32), labels.astype(np.int32), starts, places_NL.shape)


def best_links(links_NL: sparse.csr_array, k: int, hidden_L: NDArray[np.bool_] | None = None) -> TopK:
    """The k labels of each text that most links lead to."""
    if hidden_L is not None:
        counts = np.where(hidden_L[links_NL.indices], np.float32(-np.inf), links_NL.data)
        links_NL = unchecked_csr(counts, links_NL.indices, links_NL.indptr, links_NL.shape)
    return TopK.from_csr(links_NL, k)


def count_true_links(links_TL: sparse.csr_array, positives_TL: sparse.csr_array) -> tuple[int, int]:
    """The number of links of train texts that are labels of the text, and of all their links.

    No text counts for itself: the labels that link to it are those of other texts.
    """
    return int(links_TL.astype(bool).multiply(positives_TL.astype(bool)).nnz), int(links_TL.nnz)
