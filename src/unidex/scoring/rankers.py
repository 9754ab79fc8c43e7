"""Rankers: from the features of candidates to one score per candidate.

A ranker names the features it reads and gives the contribution of each part to the score. The score of a candidate is
the sum of the contributions, so that a prediction and its explanation come from the same numbers.

Shapes: N texts, K candidates.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from unidex.config.predict import Favour
from unidex.data.dataset import Propensity
from unidex.metrics.propensity import inverse_propensity
from unidex.scoring.layout import HEADS, Head, Layout, Mode, Weights
from unidex.topk import TopK

Features = Mapping[str, NDArray[Any]]
_MAX_TABLE = 1 << 20


class FeatureColumns(dict[str, NDArray[Any]]):
    """Features by name that are views of one array.

    Attributes:
        names: of its columns.
        columns_FNK: the array, feature after feature.
    """

    names: tuple[str, ...] = ()
    columns_FNK: NDArray[np.float32]


# The features of the lexical part.
LEXICAL = ("word_overlap", "char_overlap", "word_coverage")
# The power of the inverse propensity in the ranking, by what the user favours.
POWERS: dict[Favour, float] = {"accuracy": 0.0, "balanced": 0.05, "rare": 0.3}


@dataclass(frozen=True)
class Rarity:
    """What a learned ranker adds to the score of a label for being rare: power ln ip, ip the inverse propensity.

    Attributes:
        power: 0 ranks by the chance to be right, 1 by the expected propensity-scored gain.
        num_train: number of training texts.
        a: the constant A of the propensity.
        b: its constant B.
    """

    power: float
    num_train: int
    a: float
    b: float

    @classmethod
    def of(cls, favour: Favour, num_train: int, propensity: Propensity) -> Rarity:
        """What the user favours, on a data set."""
        return cls(POWERS[favour], num_train, propensity.a, propensity.b)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Rarity:
        """Read what ``vars`` gave; ValueError, TypeError or KeyError where it is something else."""
        return cls(float(values["power"]), int(values["num_train"]), float(values["a"]), float(values["b"]))

    def __call__(self, frequencies: NDArray[Any]) -> NDArray[Any]:
        """The added score by the number of training texts."""
        table = self.table(int(frequencies.max(initial=0)))
        found: NDArray[Any] = self._computed(frequencies) if table is None else table[frequencies]
        return found

    def table(self, highest: int) -> NDArray[Any] | None:
        """The added score by each number of training texts up to a number, and more; None for too many."""
        return None if highest >= _MAX_TABLE else _rarity_table(self, highest.bit_length())

    def _computed(self, frequencies: NDArray[Any]) -> NDArray[Any]:
        found: NDArray[Any] = self.power * np.log(self.inverse_propensities(frequencies))
        return found

    def inverse_propensities(self, frequencies: NDArray[Any]) -> NDArray[Any]:
        """The inverse propensity by the number of training texts."""
        found = inverse_propensity(np.ravel(frequencies), self.num_train, Propensity(self.a, self.b))
        return found.reshape(np.shape(frequencies))


@lru_cache
def _rarity_table(rarity: Rarity, num_bits: int) -> NDArray[Any]:
    """What is added for each number of training texts of so many bits: a table is read sooner than it is computed."""
    return rarity._computed(np.arange(1 << num_bits))


@dataclass(frozen=True, eq=False)
class Candidates:
    """Candidate labels of texts and their features.

    Attributes:
        ids_NK: label ids; an id of -1 is no candidate, and its features mean nothing.
        features: N x K arrays by name, as `unidex.scoring.ranking_features` computes them.
    """

    ids_NK: NDArray[np.int64]
    features: Features

    def take(self, rows: NDArray[Any]) -> Candidates:
        """The candidates of some of the texts."""
        return Candidates(self.ids_NK[rows], {name: values[rows] for name, values in self.features.items()})


@dataclass(frozen=True)
class CandidateCounts:
    """How many candidates a text has at most: of the index, the kNN part and the lexical part, matches, and links.

    A pretrained part finds as many by its kNN scores as the kNN part, and as many by cosines as the lexical part.
    """

    index: int = 100
    knn: int = 32
    lexical: int = 0
    matches: int = 0
    links: int = 0


class Ranker(ABC):
    """How the features of candidates become scores.

    Attributes:
        counts: how many candidates it orders.
        compares_candidates: whether a score depends on the other candidates of the text.
    """

    counts: ClassVar[CandidateCounts] = CandidateCounts()
    compares_candidates: ClassVar[bool] = False

    @property
    @abstractmethod
    def features(self) -> tuple[str, ...]:
        """The names of the features it reads."""

    @property
    @abstractmethod
    def head_weights(self) -> Mapping[Head, float]:
        """The factor of each head's score in the sum; explanations attribute these terms to words."""

    @abstractmethod
    def contributions(self, features: Features) -> dict[str, NDArray[Any]]:
        """The terms of the scores by name, N x K each."""

    def scores(self, features: Features) -> NDArray[Any]:
        """The scores of candidates, N x K: the sum of the contributions."""
        return sum_parts(self.contributions(features))

    def rank(self, candidates: Candidates, k: int) -> TopK:
        """The best k candidates of each text."""
        ids_NK = candidates.ids_NK
        scores_NK = np.where(ids_NK < 0, -np.inf, self.scores(candidates.features)).astype(np.float32)
        return TopK.rank(ids_NK, scores_NK, k)


class FittedRanker(Protocol):
    """A ranker that was fitted to held-out texts, as a model folder stores it."""

    def ranker(self, layout: Layout) -> Ranker:
        """The ranker of a model with this layout."""
        ...

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        ...


@dataclass(frozen=True)
class WeightedSum(Ranker):
    """The sum of features, each times a weight.

    >>> ranker = WeightedSum({"dual": 0.5, "label_prior": 2.0})
    >>> features = {"dual": np.array([[0.5, 1.0]]), "label_prior": np.array([[1.0, 0.0]])}
    >>> ranker.rank(Candidates(np.array([[3, 7]]), features), k=1).scores.tolist()
    [[2.25]]
    """

    weights: Mapping[str, float]

    @classmethod
    def of(cls, layout: Layout, weights: Weights, mode: Mode = "both") -> WeightedSum:
        """The sum that a layout searches by, with these weights of its parts."""
        if mode != "both":
            return cls({"label_tree": 1.0} if layout.has_tree else {mode: layout.weight(mode)})
        found = dict.fromkeys(searched_parts(layout), 1.0)
        if len(found) == 2:
            found = {"dual": weights.fusion, "classifier": 1 - weights.fusion}
        return cls(found | added_weights(weights))

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features it reads."""
        return tuple(self.weights)

    @property
    def head_weights(self) -> Mapping[Head, float]:
        """The factor of each head's score in the sum."""
        return {head: self.weights[head] for head in HEADS if head in self.weights}

    def contributions(self, features: Features) -> dict[str, NDArray[Any]]:
        """The terms of the scores by name."""
        return {name: weight * features[name] for name, weight in self.weights.items()}


def searched_parts(layout: Layout) -> tuple[str, ...]:
    """The features that an index searches by: the heads, or the label tree."""
    return ("label_tree",) if layout.has_tree else layout.heads


def part_names(layout: Layout) -> tuple[str, ...]:
    """The features that a weighted sum can have."""
    return (*searched_parts(layout), "knn", "label_prior")


def added_weights(weights: Weights) -> dict[str, float]:
    """The weights of the parts that are added to the heads' score, without those of weight 0."""
    found = {"knn": weights.knn, "label_prior": weights.label_prior}
    return {name: weight for name, weight in found.items() if weight != 0}


def sum_parts(parts: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """The sum of the terms of scores, in their order."""
    first, *others = parts.values()
    for part in others:
        first = first + part
    return first
