"""The bag encoder by array operations alone, for prediction without torch: `unidex.encoders.bag` has its formulas.

Shapes: N texts, F features, U features of some texts, L labels, D dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex import native
from unidex.config import Config
from unidex.features.cache import cached_transform
from unidex.features.extractor import FeatureExtractor
from unidex.nn.array_network import Linear, Weights
from unidex.nn.unit_arrays import unit_rows
from unidex.sparse_rows import unchecked_csr
from unidex.storage.eight_bits import BLOCK as EIGHT_BIT_BLOCK
from unidex.storage.eight_bits import EightBitRows, Table, read_table, table_arrays

FEW_TEXTS = 64
FEW_CHARACTERS = 1 << 15  # words never seen before are taken apart one by one: not a book of them
_SHORTEST = 1e-12  # torch's minimum of a length that it divides by
# Up to so many entries, the vector of each is gathered; of more, the vector of each feature once.
_FEW_ENTRIES = 1 << 10


@dataclass(frozen=True, eq=False)
class BagArrays:
    """Features, their vectors, and the layer behind their sum.

    Attributes:
        features: from texts to sparse rows.
        table: F x D vectors of features, as float32 or as codes of 8 bits.
        layer: the residual layer, or None.
        feature_weights_F: factors of the features in every text, or None.
        is_rectified: whether a rectifier takes the place of unit length (Astec).
    """

    features: FeatureExtractor
    table: Table
    layer: Linear | None = None
    feature_weights_F: NDArray[np.float32] | None = None
    is_rectified: bool = False

    @classmethod
    def load(cls, config: Config, folder: Path) -> Callable[[Weights, str, str], BagArrays] | None:
        """What makes encoders of the features in a folder; None where torch is needed, for a spectral norm.

        It takes the weights of a network, the name of the encoder among them and the name of its table.
        """
        if config.encoder.spectral:
            return None
        features = FeatureExtractor.load(folder)

        def read(weights: Weights, name: str, table: str) -> BagArrays:
            found = cls(
                features,
                read_table(weights, table),
                Linear.read(weights, f"{name}.layer"),
                weights.get(f"{name}.feature_weights_F"),
            )
            if len(found.table) != features.num_features or found.dim != config.encoder.dim:
                raise ValueError(
                    f"there must be {features.num_features} vectors of features of {config.encoder.dim} numbers, but "
                    f"there are {len(found.table)} of {found.dim}"
                )
            return found

        return read

    @property
    def dim(self) -> int:
        """D."""
        return self.table.dim if isinstance(self.table, EightBitRows) else int(self.table.shape[1])

    def weights(self) -> dict[str, NDArray[Any]]:
        """Everything that is learned but the table, by name."""
        found = {} if self.layer is None else self.layer.weights("layer")
        return found if self.feature_weights_F is None else found | {"feature_weights_F": self.feature_weights_F}

    def table_weights(self, name: str) -> dict[str, NDArray[Any]]:
        """The table by name: one array of float32, or codes and scales."""
        return table_arrays(self.table, name)

    def prepare(self, texts: Any) -> sparse.csr_array:
        """Texts as sparse rows."""
        return prepare_texts(self.features, texts)

    def save(self, folder: Path) -> None:
        """Write the vocabulary."""
        self.features.save(folder)

    def vectors(self, ids_U: NDArray[np.integer[Any]]) -> NDArray[np.float32]:
        """The vectors of features."""
        return self.table.take(ids_U) if isinstance(self.table, EightBitRows) else self.table[ids_U]

    def __call__(self, rows_NF: sparse.csr_array) -> NDArray[np.float32]:
        """N x D vectors of prepared texts."""
        values = rows_NF.data
        if self.feature_weights_F is not None:
            values = values * self.feature_weights_F.take(rows_NF.indices)
        summed = self._sums(values, rows_NF.indices, rows_NF.indptr)
        vectors = np.maximum(summed, 0) if self.is_rectified else unit_rows(summed)
        if self.layer is not None:
            vectors = vectors + np.maximum(self.layer(vectors), 0)
        return vectors

    def _sums(self, values: NDArray[Any], columns: NDArray[Any], starts: NDArray[Any]) -> NDArray[np.float32]:
        """The weighted sum of the vectors that each row names."""
        if native.kernels is not None and isinstance(self.table, EightBitRows) and self.dim % EIGHT_BIT_BLOCK == 0:
            table, dim = self.table, self.dim
            sums = np.empty((len(starts) - 1, dim), dtype=np.float32)
            entries = values.astype("f", copy=False), columns.astype("i", copy=False), starts.astype("i", copy=False)
            native.kernels.sum_rows(*entries, table.codes_RD, table.scales_RG, sums, dim, EIGHT_BIT_BLOCK)
            return sums
        if len(columns) <= _FEW_ENTRIES:
            places: NDArray[Any] = np.arange(len(columns))
            ids = columns
        else:
            # By marks: sorting so many would take longer.
            places_F = np.zeros(self.features.num_features, dtype=np.int32)
            places_F[columns] = 1
            ids = np.flatnonzero(places_F)
            places_F[ids] = np.arange(len(ids), dtype=np.int32)
            places = places_F.take(columns)
        # One after the other in the order of the entries, so that the sum of a text does not depend on its batch.
        rows = unchecked_csr(values, places.astype(starts.dtype, copy=False), starts, (len(starts) - 1, len(ids)))
        summed: NDArray[np.float32] = rows @ self.vectors(ids)
        return summed

    def linearised(
        self, ids_U: NDArray[np.integer[Any]], weights_U: NDArray[np.floating[Any]]
    ) -> tuple[NDArray[np.float64], Callable[[NDArray[np.float64]], tuple[NDArray[np.float64], NDArray[np.float64]]]]:
        """The vector of a text with these features, and the attribution of its inner products to them.

        With x_u the weight of feature u and t_u its row, s = sum_u x_u t_u. Division by a length, a rectifier and a
        linear layer are, at this very text, a matrix and perhaps a bias. So the vector is B s + b, and::

            <v, B s + b> = sum_u x_u <v, B t_u> + <v, b>

        exactly: the shares of the features, and the share of none. The attribution takes L x D vectors v to both, L x U
        and L.
        """
        if self.feature_weights_F is not None:
            weights_U = weights_U * self.feature_weights_F[ids_U].astype(np.float64)
        brought_UD = self.vectors(ids_U).astype(np.float64) * weights_U[:, None]
        summed = brought_UD.sum(axis=0)
        # What the sum is multiplied with: one number, or Astec's rectifier.
        scales = summed > 0 if self.is_rectified else 1 / max(float(np.linalg.norm(summed)), _SHORTEST)
        encoded: NDArray[np.float64] = summed * scales
        layer = None
        if self.layer is not None:
            weight, bias = self.layer.weight.astype(np.float64), self.layer.bias.astype(np.float64)
            is_open = weight @ encoded + bias > 0
            layer = weight * is_open[:, None], bias * is_open
            encoded = encoded + layer[0] @ encoded + layer[1]

        def attribute(vectors_LD: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
            rest_L = np.zeros(len(vectors_LD))
            if layer is not None:
                rest_L += vectors_LD @ layer[1]
                vectors_LD = vectors_LD + vectors_LD @ layer[0]
            return (vectors_LD * scales) @ brought_UD.T, rest_L

        return encoded, attribute


def prepare_texts(features: FeatureExtractor, texts: Any, cache: Path | None = None) -> sparse.csr_array:
    """Texts as sparse rows; ``cache`` is a folder where rows are stored between runs."""
    if cache is not None:
        return cached_transform(features, texts, cache)
    if not isinstance(texts, str) and len(texts) <= FEW_TEXTS and sum(map(len, texts)) <= FEW_CHARACTERS:
        # The same rows to the last bit, in a fraction of the time.
        return features.transform_few(texts)
    return features.transform(texts)
