"""The layout of the vectors that are searched: which columns belong to which part of a score, and with which weight.

The row of a label and the query of a text, with w the fusion weight and p the weight of the label prior:

    row   = [w dual | (1 - w) classifier | p ln(1 + n)]        n: training texts of the label
    query = [  dual |         classifier | 1          ]

Their inner product is the weighted sum of the parts, so that one index serves both heads, and either head alone where
the other's columns of the query are 0. A network with one head has its columns only, with weight 1. A weight p of 0
has no column. With a label tree, the query has the columns of the tree's levels behind those of the classifier, and
the label prior is no column: scores are probabilities, and the prior is added to them.

Vectors are arrays, or tensors where a network that learns is scored on its device.

Shapes: N texts or labels, K candidates, J columns of both heads, D columns of a row or a query.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from unidex.config.predict import Precision, Predict
from unidex.errors import DataError, quoted
from unidex.nn.vectors import Array, Vectors, as_array
from unidex.storage.eight_bits import BITS, rounded

Mode = Literal["both", "dual", "classifier"]
Head = Literal["dual", "classifier"]
HEADS: tuple[Head, ...] = ("dual", "classifier")
# Similarity of two texts for the kNN part: both heads with the same weight.
EVEN = 0.5


@dataclass(frozen=True)
class Weights:
    """The weights of the parts of a score.

    Attributes:
        fusion: of the dual encoder; the classifier has 1 minus this. A head alone has weight 1.
        knn: of the kNN part.
        label_prior: of the logarithm of a label's frequency.
    """

    fusion: float
    knn: float = 0.0
    label_prior: float = 0.0

    @classmethod
    def of(cls, predict: Predict) -> Weights:
        """The weights of a recipe."""
        return cls(predict.fusion, predict.knn, predict.label_prior)


@dataclass(frozen=True)
class Layout:
    """Which columns of a row or a query belong to which part.

    Attributes:
        dual: columns of the dual encoder; 0 without one.
        classifier: columns of the classifier; 0 without one.
        weights: of the parts.
        has_tree: whether labels are searched by a label tree.
        precision: of the rows of labels.

    >>> layout = Layout(dual=2, classifier=1, weights=Weights(0.25, label_prior=0.5))
    >>> labels = Vectors(np.array([[1.0, 2.0]]), np.array([[4.0]]))
    >>> layout.rows(labels, np.array([0])).tolist()
    [[0.25, 0.5, 3.0, 0.0]]
    >>> layout.queries(labels, "dual").tolist()
    [[1.0, 2.0, 0.0, 0.0]]
    """

    dual: int
    classifier: int
    weights: Weights
    has_tree: bool = False
    precision: Precision = "float32"

    @classmethod
    def of(cls, network: Any, weights: Weights, precision: Precision = "float32") -> Layout:
        """The layout of the vectors of a network, or of its form by arrays."""
        dual = 0 if network.dual is None else network.dual.dim
        classifier = 0 if network.classifier is None else network.classifier.dim
        return cls(dual, classifier, weights, network.tree is not None, precision)

    @cached_property
    def heads(self) -> tuple[Head, ...]:
        """The heads of the network."""
        return tuple(head for head in HEADS if getattr(self, head))

    @property
    def num_head_columns(self) -> int:
        """Columns of both heads side by side."""
        return self.dual + self.classifier

    @property
    def knn_scale(self) -> float:
        """The factor of both heads in the vectors of the kNN part."""
        return EVEN if len(self.heads) == 2 else 1.0

    @property
    def _has_prior(self) -> bool:
        return self.weights.label_prior != 0 and not self.has_tree

    def _columns(self, head: Head) -> slice:
        """The columns of a head."""
        return slice(0, self.dual) if head == "dual" else slice(self.dual, self.dual + self.classifier)

    def first_column(self, head: Head) -> int:
        """The first column of a head."""
        return 0 if head == "dual" else self.dual

    def weight(self, head: Head) -> float:
        """The weight of a head in the sum."""
        if len(self.heads) < 2:
            return 1.0
        return self.weights.fusion if head == "dual" else 1 - self.weights.fusion

    def queries(self, texts: Vectors, mode: Mode = "both") -> Array:
        """The queries of texts; in the mode of one head, the columns of the others are 0."""
        if mode != "both" and mode not in self.heads:
            raise DataError(f"mode must be one of the model's heads, but it was trained without {quoted(mode)}")
        parts = self._used_parts(texts, mode)
        if self._has_prior:
            ones = np.full((len(parts[0]), 1), 1.0 if mode == "both" else 0.0, dtype=np.float32)
            parts.append(_like(ones, parts[0]))
        if texts.levels is not None:
            parts.append(texts.levels)
        return _side_by_side(parts)

    def rows(self, labels: Vectors, frequencies: NDArray[np.integer[Any]]) -> Array:
        """The rows of labels."""
        parts = [_part(labels, head) for head in self.heads]
        if len(parts) == 2:
            parts = [part * self.weight(head) for head, part in zip(self.heads, parts, strict=True)]
        if self._has_prior:
            parts.append(_like(self._prior(frequencies)[:, None], parts[0]))
        found = _side_by_side(parts)
        return _like(self._rounded(as_array(found)), found) if self.precision != "float32" else found

    def with_head(self, rows_ND: NDArray[np.float32], head: Head, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """The rows of labels with other vectors of one head."""
        found = rows_ND.copy()
        found[:, self._columns(head)] = vectors * np.float32(self.weight(head))
        return self._rounded(found)

    def with_frequencies(
        self, rows_ND: NDArray[np.float32], frequencies_N: NDArray[np.integer[Any]]
    ) -> NDArray[np.float32]:
        """The rows of labels with the label prior of other frequencies."""
        if not self._has_prior:
            return rows_ND
        found = rows_ND.copy()
        found[:, -1] = self._prior(frequencies_N)
        return self._rounded(found)

    def vectors_of(self, rows_ND: NDArray[np.float32], head: Head) -> NDArray[np.float32]:
        """The vectors of one head in the rows of labels, without the weight; a head of weight 0 has left only zeros."""
        found: NDArray[np.float32] = rows_ND[:, self._columns(head)] / np.float32(self.weight(head) or 1.0)
        return found

    def head_queries(self, queries_ND: NDArray[np.float32], head: Head) -> NDArray[np.float32]:
        """The columns of one head in queries, divided by its weight: inner products are the head's scores."""
        found: NDArray[np.float32] = queries_ND[:, self._columns(head)] / np.float32(self.weight(head) or 1.0)
        return found

    def side_by_side(self, vectors: Vectors, mode: Mode = "both") -> Array:
        """The vectors of both heads side by side, N x J, without weights, label prior and tree levels."""
        return _side_by_side(self._used_parts(vectors, mode))

    def knn_vectors(self, texts: Vectors) -> Array:
        """The vectors of training texts for the kNN part."""
        found = self.side_by_side(texts)
        return found * EVEN if len(self.heads) == 2 else found

    def knn_queries(self, queries_ND: Any) -> Any:
        """The queries of texts for the kNN part, as an array or a tensor like the given one."""
        return queries_ND[:, : self.num_head_columns]

    def padded(self, vectors_NJ: NDArray[np.float32]) -> NDArray[np.float32]:
        """Vectors of both heads side by side as queries that leave the label prior out."""
        padding = np.zeros((len(vectors_NJ), int(self._has_prior)), dtype=np.float32)
        return np.concatenate([vectors_NJ, padding], axis=1)

    def head_part(self, vectors_NJ: NDArray[np.float32], head: Head) -> NDArray[np.float32]:
        """The vectors of one head in vectors of both heads side by side."""
        return np.ascontiguousarray(vectors_NJ[:, self._columns(head)])

    def one_head(self, vectors_ND: NDArray[np.float32], head: Head) -> NDArray[np.float32]:
        """Vectors of one head as vectors of both heads side by side, 0 for the other."""
        found = np.zeros((len(vectors_ND), self.num_head_columns), dtype=np.float32)
        found[:, self._columns(head)] = vectors_ND
        return found

    def priors(self, frequencies: NDArray[np.integer[Any]]) -> NDArray[np.float32]:
        """The label priors of labels with so many training texts; 0 without a label prior."""
        return self._prior(frequencies)

    def column_names(self) -> dict[str, list[int]]:
        """The first column of each part of a row, and the column after its last.

        >>> Layout(dual=2, classifier=1, weights=Weights(0.25, label_prior=0.5)).column_names()
        {'dual': [0, 2], 'classifier': [2, 3], 'prior': [3, 4]}
        """
        found = {str(head): [self._columns(head).start, self._columns(head).stop] for head in self.heads}
        return found | ({"prior": [self.num_head_columns, self.num_head_columns + 1]} if self._has_prior else {})

    def _rounded(self, rows_ND: NDArray[np.float32]) -> NDArray[np.float32]:
        return rows_ND if self.precision == "float32" else rounded(rows_ND, BITS[self.precision])

    def _used_parts(self, vectors: Vectors, mode: Mode) -> list[Array]:
        parts = {head: _part(vectors, head) for head in self.heads}
        # Not times 0, which infinite numbers survive.
        return [
            part if mode in ("both", head) else _like(np.zeros(tuple(part.shape), dtype=np.float32), part)
            for head, part in parts.items()
        ]

    def _prior(self, frequencies: NDArray[np.integer[Any]]) -> NDArray[np.float32]:
        prior: NDArray[np.float32] = (self.weights.label_prior * np.log1p(frequencies)).astype(np.float32)
        return prior


def _part(vectors: Vectors, head: Head) -> Array:
    part = getattr(vectors, head)
    assert part is not None
    return part


def _side_by_side(parts: list[Array]) -> Array:
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts, axis=1)
    import torch

    return torch.cat(parts, dim=1)


def _like(array: NDArray[np.float32], other: Array) -> Array:
    """The array, or a tensor of it where the other is a tensor."""
    if isinstance(other, np.ndarray):
        return array
    import torch

    return torch.from_numpy(array).to(other)
