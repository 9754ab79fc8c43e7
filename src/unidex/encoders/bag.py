"""The bag encoder: a text is the weighted sum of the vectors of its features. The encoder for CPUs.

Shapes: N texts, F features, U features of one text, L labels, D dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn

from unidex.config import Config
from unidex.config import Encoder as Settings
from unidex.config.capabilities import EncoderCapabilities
from unidex.config.predict import Precision
from unidex.encoders.registry import RegisteredEncoder, check_any_features, register
from unidex.errors import ModelError
from unidex.features.extractor import FeatureExtractor
from unidex.features.frozen_encoder import load_frozen
from unidex.features.pretrained_columns import PretrainedColumns
from unidex.features.static_tokens import lost_features, static_tokens
from unidex.nn.array_network import Linear
from unidex.nn.bag_arrays import BagArrays, prepare_texts
from unidex.nn.classifier_parts import scaled_rows
from unidex.nn.initialisation import orthogonal_rows, random_vectors, small_linear
from unidex.nn.onnx_graph import OnnxGraph
from unidex.nn.row_table import RowTable, Touched
from unidex.nn.sentence_modules import Dense, Normalize, write_static_modules
from unidex.nn.sparse_product import weighted_sum
from unidex.nn.spectral import SpectralLinear
from unidex.nn.static_vectors import initialise_from
from unidex.nn.unit_rows import unit_rows
from unidex.nn.vectors import as_array
from unidex.sparse_rows import column_counts, unchecked_csr
from unidex.storage.eight_bits import BITS, EightBitRows


class BagEncoder(nn.Module):
    """Sparse features -> sum of their vectors -> unit length -> one residual layer.

    With ``spectral`` it is Astec's (DeepXML, arXiv 2111.06685): with s the sum, x = dropout(relu(s)) in place of unit
    length, and the layer is x + dropout(relu(W x + b)) with W held to spectral norm 1, from the identity.
    """

    def __init__(self, features: FeatureExtractor, settings: Settings) -> None:
        super().__init__()
        self.features, self.dim, self.spectral = features, settings.dim, settings.spectral
        self.dropout, self.layer_dropout = settings.dropout, settings.layer_dropout
        self.cache: Path | None = None
        self.table = RowTable(random_vectors(features.num_features, self.dim))
        if features.columns is not None:
            self.table.weight[-features.columns.dim :] = orthogonal_rows(features.columns.dim, self.dim)
        self.layer: nn.Linear | None = None
        if settings.residual:
            self.layer = SpectralLinear(torch.eye(self.dim)) if self.spectral else small_linear(self.dim)
        self.feature_weights_F: Tensor | None
        self.register_buffer("feature_weights_F", None)

    @classmethod
    def build(cls, config: Config, texts: Sequence[str], label_texts: Sequence[str]) -> BagEncoder:
        """A bag of the features of these texts, with random vectors or with the vectors of encoder.path."""
        columns = _columns_of(config)
        features = FeatureExtractor.fit(texts, label_texts, config.features, columns=columns)
        check_any_features(config, features.num_features)
        encoder = cls(features, config.encoder)
        if config.encoder.path:
            initialise_from(encoder, config.encoder.path)
        return encoder

    @classmethod
    def load(cls, config: Config, folder: Path) -> BagEncoder:
        """A bag of the features that ``save`` wrote, with random vectors."""
        return cls(FeatureExtractor.load(folder), config.encoder)

    @classmethod
    def of_arrays(cls, config: Config, arrays: BagArrays) -> BagEncoder:
        """A bag of the same features, with random vectors."""
        encoder = cls(arrays.features, config.encoder)
        if arrays.feature_weights_F is not None:
            encoder.weigh(torch.from_numpy(arrays.feature_weights_F.copy()))
        return encoder

    def twin(self, config: Config) -> BagEncoder:
        """An encoder of the same features with other random vectors, or with the same ones where they were given."""
        own = BagEncoder(self.features, config.encoder)
        if config.encoder.path:
            own.table.weight = self.table.weight.clone()
            own.load_state_dict(self.state_dict())
        if config.heads.classifier_feature_smoothing > 0:
            own.weigh(torch.ones(self.features.num_features))
        return own

    def smooth_rare_features(self, rows_NF: sparse.csr_array, smoothing: float) -> None:
        """Multiply the weight of a feature that n of these texts have by n / (n + smoothing), from now on.

        What a feature of one or two texts has learned is mostly those texts; a new text that has it should rely on its
        other features more.
        """
        counts_F = column_counts(rows_NF)
        self.weigh(torch.from_numpy((counts_F / (counts_F + smoothing)).astype(np.float32)))

    def weigh(self, weights_F: Tensor) -> None:
        """Multiply the weights of features in every text from now on."""
        self.register_buffer("feature_weights_F", weights_F.to(self.table.weight.device))

    def set_dropout(self, dropout: float, layer_dropout: float) -> None:
        """Use these shares of features and of numbers between the layers from now on."""
        self.dropout, self.layer_dropout = dropout, layer_dropout

    def prepare(self, texts: Any) -> sparse.csr_array:
        """Texts as sparse rows, made once; ``forward`` takes rows of it."""
        return prepare_texts(self.features, texts, self.cache)

    def save(self, folder: Path) -> None:
        """Write the vocabulary; the network saves the vectors."""
        self.features.save(folder)

    def stack(self, parts: list[sparse.csr_array]) -> sparse.csr_array:
        """Prepared texts one after the other."""
        return sparse.vstack(parts, format="csr")

    def word_counts(self, rows_NF: sparse.csr_array) -> sparse.csr_array:
        """The weights of features in prepared texts, in rows of length 1."""
        return scaled_rows(rows_NF, 2)

    def forward(
        self, rows_NF: sparse.csr_array, touched: list[Touched] | None = None, rng: np.random.Generator | None = None
    ) -> Tensor:
        """N x D vectors. With ``touched``, the feature vectors used are appended as leaves that get a gradient."""
        if self.feature_weights_F is not None:
            rows_NF = _weighted(rows_NF, self.feature_weights_F)
        if touched is not None and self.dropout and rng is not None:
            rows_NF = drop_features(rows_NF, self.dropout, rng)
        summed = weighted_sum(rows_NF, self.table, touched)
        if self.spectral:
            return self._astec(summed, learns=touched is not None)
        unit = unit_rows(summed)
        if self.layer is None:
            return unit
        return unit + torch.relu(self.layer(unit))

    def _astec(self, summed_ND: Tensor, *, learns: bool) -> Tensor:
        share = self.layer_dropout if learns and self.training else 0.0
        vectors_ND = nn.functional.dropout(torch.relu(summed_ND), share)
        if self.layer is None:
            return vectors_ND
        return vectors_ND + nn.functional.dropout(torch.relu(self.layer(vectors_ND)), share)

    def linearised(
        self, ids_U: NDArray[np.integer[Any]], weights_U: NDArray[np.floating[Any]]
    ) -> tuple[NDArray[np.float64], Callable[[NDArray[np.float64]], tuple[NDArray[np.float64], NDArray[np.float64]]]]:
        """The vector of a text with these features, and the attribution of its inner products to them."""
        return self.arrays().linearised(ids_U, weights_U)

    @property
    def has_arrays(self) -> bool:
        """Whether a model predicts by its arrays: their weights do not tell those under a spectral norm."""
        return not self.spectral

    def arrays(self, precision: Precision = "float32") -> BagArrays:
        """The encoder by array operations, with the vectors as they are now; float32 is not copied on a CPU."""
        table = as_array(self.table.weight)
        layer = self.layer
        return BagArrays(
            self.features,
            table if precision == "float32" else EightBitRows.of(table, BITS[precision]),
            None if layer is None else Linear(as_array(layer.weight), as_array(layer.bias)),
            None if self.feature_weights_F is None else as_array(self.feature_weights_F),
            is_rectified=self.spectral,
        )

    def write_sentence_modules(self, folder: Path, head: Sequence[nn.Module], similarity: str) -> list[str]:
        """Write a sentence-transformers folder: token vectors, and the layers of the encoder and of a head behind.

        The result names what of the features is lost. The length of the sum must not count, as it is not kept.
        """
        if self.spectral:
            raise ModelError(
                "the spectral bag (encoder.spectral) cannot be exported to sentence-transformers, which keeps no "
                "lengths of texts; train with --set encoder.spectral=false"
            )
        self._check_words_alone()
        tokens = static_tokens(self.features)
        tail = self._layers()
        if len(tail) == 1 and head and isinstance(head[0], Normalize):
            tail = []
        vectors_VD = self._token_vectors(tokens.weights_VF)
        write_static_modules(folder, tokens.tokenizer, vectors_VD, [*tail, *head], similarity)
        return lost_features(self.features)

    def onnx_vectors(self, graph: OnnxGraph, folder: Path) -> str:
        """The encoder as a part of an ONNX graph, with what makes its inputs written to a folder.

        Its inputs are the tokens of a tokenizer where these are all there is, else feature ids and weights.
        """
        self._check_words_alone()
        # The spectral bag reads the length of a row, which tokens alone do not give.
        if self.spectral or lost_features(self.features):
            self.features.save(folder / "features")
            ids_NU = graph.input("feature_ids", np.int64, ["texts", "features"])
            weights_NU = graph.input("feature_weights", np.float32, ["texts", "features"])
            table = self.table.weight
            if self.feature_weights_F is not None:
                table = table * self.feature_weights_F[:, None]
        else:
            tokens = static_tokens(self.features)
            padded = type(tokens.tokenizer).from_str(tokens.tokenizer.to_str())
            padded.enable_padding()
            padded.save(str(folder / "tokenizer.json"))
            ids_NU = graph.input("input_ids", np.int64, ["texts", "tokens"])
            mask_NU = graph.input("attention_mask", np.int64, ["texts", "tokens"])
            weights_NU = graph.node("Cast", mask_NU, to=1)
            table = self._token_vectors(tokens.weights_VF)
        summed_ND = graph.weighted_sum(table, ids_NU, weights_NU)
        if not self.spectral:
            return graph.modules(summed_ND, self._layers())
        rectified_ND = graph.node("Relu", summed_ND)
        return graph.modules(rectified_ND, self._layers()[1:])

    def _check_words_alone(self) -> None:
        """Refuse to export a part of what the encoder reads."""
        if self.features.columns is not None:
            raise ModelError(
                "a bag beside a frozen encoder (features.pretrained) cannot be exported in this format, which has no "
                "place for a second encoder; train with --set features.pretrained='', or use --to parquet"
            )

    def _token_vectors(self, weights_VF: sparse.csr_array) -> Tensor:
        """The vectors of tokens that bring features with these weights, V x D."""
        if self.feature_weights_F is not None:
            weights_VF = _weighted(weights_VF, self.feature_weights_F)
        return torch.from_numpy(weights_VF @ self.table.weight.cpu().numpy())

    def _layers(self) -> list[nn.Module]:
        """What stands behind the sum."""
        layer = [] if self.layer is None else [Dense(self.layer, nn.ReLU(), residual=True)]
        return [Normalize(), *layer]


def _columns_of(config: Config) -> PretrainedColumns | None:
    """The columns of the recipe's frozen encoder, which is loaded before anything is trained."""
    source = config.features.pretrained
    if not source:
        return None
    encoder = load_frozen("features.pretrained", source, config.encoder.max_length)
    return PretrainedColumns(encoder, config.features.pretrained_weight)


def drop_features(rows_NF: sparse.csr_array, share: float, rng: np.random.Generator) -> sparse.csr_array:
    """The rows without a random share of their entries. A row keeps its direction on average, so none is scaled."""
    kept = rng.random(rows_NF.nnz, dtype=np.float32) >= share
    before = np.concatenate([[0], np.cumsum(kept)])
    return sparse.csr_array((rows_NF.data[kept], rows_NF.indices[kept], before[rows_NF.indptr]), shape=rows_NF.shape)


def _weighted(rows_NF: sparse.csr_array, weights_F: Tensor) -> sparse.csr_array:
    values = rows_NF.data * weights_F.cpu().numpy().take(rows_NF.indices)
    return unchecked_csr(values, rows_NF.indices, rows_NF.indptr, rows_NF.shape)


register(
    RegisteredEncoder(
        "bag",
        build=BagEncoder.build,
        load=BagEncoder.load,
        must_match=("dim", "residual", "spectral"),
        can=EncoderCapabilities(has_table=True, has_twin=True, has_staged_dropout=True, reads_weights=True),
        of_arrays=BagEncoder.of_arrays,
    )
)
