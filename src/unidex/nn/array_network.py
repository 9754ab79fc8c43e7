"""A trained network by array operations alone: what prediction needs, without loading torch.

Its numbers are those of `unidex.nn.network.Network` up to the rounding of sums, and saved weights have the same names.

Shapes: N texts or labels, D dimensions of an encoder's vectors or of a head's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from unidex.config import Config
from unidex.nn.unit_arrays import unit_rows
from unidex.nn.vectors import Vectors
from unidex.storage.eight_bits import table_names

# Vectors are made in blocks of so many texts, so that memory does not grow with their number.
BLOCK = 4096
Weights = Mapping[str, NDArray[Any]]
# The encoders of a network, and the names of their row tables among saved weights.
ENCODER_TABLES = {"encoder": "features", "classifier_encoder": "classifier_features"}


class ArrayEncoder(Protocol):
    """An encoder by array operations: prepared texts -> vectors."""

    dim: int

    def prepare(self, texts: Any) -> Any:
        """N texts in the form that the encoder reads."""

    def __call__(self, prepared: Any) -> NDArray[np.float32]:
        """N x D vectors of prepared texts."""

    def weights(self) -> dict[str, NDArray[Any]]:
        """Everything that is learned but the table, by name."""

    def table_weights(self, name: str) -> dict[str, NDArray[Any]]:
        """The table by name."""


@dataclass(frozen=True, eq=False)
class Linear:
    """x W^T + b."""

    weight: NDArray[np.float32]
    bias: NDArray[np.float32]

    @classmethod
    def read(cls, weights: Weights, name: str) -> Linear | None:
        """The layer of a name; None where the weights have none."""
        if f"{name}.weight" not in weights:
            return None
        return cls(weights[f"{name}.weight"], weights[f"{name}.bias"])

    def weights(self, name: str) -> dict[str, NDArray[Any]]:
        """Both arrays by name."""
        return {f"{name}.weight": self.weight, f"{name}.bias": self.bias}

    def __call__(self, vectors_ND: NDArray[np.float32]) -> NDArray[np.float32]:
        """N x D vectors of each row."""
        # One product of the matrix and a vector per row: one of two matrices rounds a row differently by the number of
        # rows, so that the vector of a text would depend on the texts beside it.
        found: NDArray[np.float32] = np.matmul(self.weight, vectors_ND[:, :, None])[:, :, 0] + self.bias
        return found


@dataclass(frozen=True, eq=False)
class ArrayHead:
    """From an encoder's vectors to those that are searched, as `unidex.nn.heads` says.

    Attributes:
        dim: D, with the bias.
        linear: a projection, or None.
        is_bent: whether tanh follows the projection.
        is_unit: whether vectors have length 1.
        bias: whether a 1 follows them.
    """

    dim: int
    linear: Linear | None
    is_bent: bool
    is_unit: bool
    bias: bool

    def __call__(self, encoded_ND: NDArray[np.float32]) -> NDArray[np.float32]:
        """Vectors as they are searched."""
        vectors = encoded_ND if self.linear is None else self.linear(encoded_ND)
        if self.is_bent:
            vectors = np.tanh(vectors)
        if self.is_unit:
            vectors = unit_rows(vectors)
        return np.pad(vectors, ((0, 0), (0, 1)), constant_values=1) if self.bias else vectors


@dataclass(frozen=True, eq=False)
class ArrayNetwork:
    """Encoders and heads of a trained network.

    Attributes:
        encoder: of both heads, unless the classifier has its own.
        classifier_encoder: the classifier's own, or None.
        dual: the head of the dual encoder, or None.
        classifier: the head of the classifier, or None.
        log_scales: minus the logarithms of the temperatures.
    """

    encoder: Any
    classifier_encoder: Any
    dual: ArrayHead | None
    classifier: ArrayHead | None
    log_scales: NDArray[np.float32]
    tree: None = None  # a network with a label tree is searched by torch

    @classmethod
    def load(cls, config: Config, read: Callable[[Weights, str, str], Any], weights: Weights) -> ArrayNetwork:
        """A network from its saved weights, and what reads an encoder of a name and a table of a name from them.

        KeyError or ValueError where the weights are not those of the recipe.
        """
        encoder = read(weights, "encoder", ENCODER_TABLES["encoder"])
        heads, own = config.heads, None
        if heads.separate_encoders:
            own = read(weights, "classifier_encoder", ENCODER_TABLES["classifier_encoder"])
        dim = heads.dim if heads.projection else encoder.dim
        dual = classifier = None
        if heads.dual:
            linear = Linear.read(weights, "dual.linear")
            dual = ArrayHead(dim, linear, is_bent=linear is not None, is_unit=heads.dual_normalised, bias=False)
        if heads.classifier:
            bias, is_unit = heads.classifier_bias != "none", heads.classifier_search_vectors == "unit"
            linear = Linear.read(weights, "classifier.linear")
            classifier = ArrayHead(dim + bias, linear, is_bent=False, is_unit=is_unit, bias=bias)
        network = cls(encoder, own, dual, classifier, weights["log_scales"])
        tables = [table for name, table in ENCODER_TABLES.items() if getattr(network, name) is not None]
        known = network._dense_weights().keys() | {part for table in tables for part in table_names(table)}
        if unknown := weights.keys() - known:
            raise ValueError(f"there must be the weights of the recipe alone, but there are {sorted(unknown)} too")
        return network

    def text_vectors(self, prepared: Any) -> Vectors:
        """Vectors of texts as they are searched."""
        dual = classifier = None
        if self.dual is not None or self.classifier_encoder is None:
            encoded = _encoded(self.encoder, prepared)
            dual = None if self.dual is None else self.dual(encoded)
        if self.classifier is not None:
            own = self.classifier_encoder
            classifier = self.classifier(encoded if own is None else _encoded(own, prepared))
        return Vectors(dual, classifier)

    def weights(self) -> dict[str, NDArray[Any]]:
        """Everything that is learned but the classifiers, by name."""
        found = self._dense_weights()
        for name, table in ENCODER_TABLES.items():
            encoder = getattr(self, name)
            if encoder is not None:
                found |= encoder.table_weights(table)
        return found

    def _dense_weights(self) -> dict[str, NDArray[Any]]:
        """Everything but the tables: to compress those takes a while."""
        found: dict[str, NDArray[Any]] = {"log_scales": self.log_scales}
        for name in ENCODER_TABLES:
            encoder = getattr(self, name)
            if encoder is not None:
                found |= {f"{name}.{own}": values for own, values in encoder.weights().items()}
        for name in ("dual", "classifier"):
            head: ArrayHead | None = getattr(self, name)
            if head is not None and head.linear is not None:
                found |= head.linear.weights(f"{name}.linear")
        return found


def _encoded(encoder: ArrayEncoder, prepared: Any) -> NDArray[np.float32]:
    num_texts = prepared.shape[0]
    if num_texts <= BLOCK:
        return encoder(prepared)
    return np.concatenate([encoder(prepared[start : start + BLOCK]) for start in range(0, num_texts, BLOCK)])
