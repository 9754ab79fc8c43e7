"""The bag encoder: a text is the weighted sum of the vectors of its features. The encoder for CPUs.

Shapes: N texts, F features, U features of a step, D dimensions.
"""

from __future__ import annotations

from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn

from unidex.features.cache import cached_transform
from unidex.features.extractor import Features
from unidex.nn.row_table import RowTable, Touched
from unidex.nn.spectral import SpectralLinear

FEW_TEXTS = 64
FEW_CHARACTERS = 1 << 15  # words never seen before are taken apart one by one: not a book of them


class BagEncoder(nn.Module):
    """Sparse features -> sum of their vectors -> unit length -> one residual layer.

    With ``spectral`` it is Astec's (DeepXML, arXiv 2111.06685): with s the sum, x = dropout(relu(s)) in place of unit
    length, and the layer is x + dropout(relu(W x + b)) with W held to spectral norm 1, from the identity.
    """

    def __init__(
        self,
        features: Features,
        dim: int,
        *,
        dropout: float = 0.0,
        residual: bool = True,
        spectral: bool = False,
        layer_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.spectral, self.layer_dropout = spectral, layer_dropout
        self.features = features
        self.dim = dim
        self.dropout = dropout
        self.cache: Path | None = None  # a folder where the rows of texts are kept between runs
        # Rows of length about 1 that point anywhere: texts that share no feature begin unrelated.
        self.table = RowTable(torch.randn(features.num_features, dim) / dim**0.5)
        self.layer: nn.Linear | None = None
        if residual and spectral:
            self.layer = SpectralLinear(torch.eye(dim))
        elif residual:
            self.layer = nn.Linear(dim, dim)
            # Small, not zero: the encoder begins as the plain sum, and every weight gets a gradient.
            nn.init.normal_(self.layer.weight, std=0.1 / dim**0.5)
            nn.init.zeros_(self.layer.bias)
        self.feature_weights_F: Tensor | None
        self.register_buffer("feature_weights_F", None)

    def weigh(self, weights_F: Tensor) -> None:
        """Let features count more or less than their rows say, from now on."""
        self.register_buffer("feature_weights_F", weights_F.to(self.table.weight.device))

    def prepare(self, texts: Any) -> sparse.csr_array:
        """Texts as sparse rows, made once; ``forward`` takes rows of it."""
        if self.cache is not None:
            return cached_transform(self.features, texts, self.cache)
        if not isinstance(texts, str) and len(texts) <= FEW_TEXTS and sum(map(len, texts)) <= FEW_CHARACTERS:
            # The same rows to the last bit, in a fraction of the time.
            return self.features.transform_few(texts)
        return self.features.transform(texts)

    def save(self, folder: Path) -> None:
        """Write the vocabulary; the vectors are the network's to save."""
        self.features.save(folder)

    def stack(self, parts: list[sparse.csr_array]) -> sparse.csr_array:
        """Prepared texts one after the other."""
        return sparse.vstack(parts, format="csr")

    def forward(
        self, rows_NF: sparse.csr_array, touched: list[Touched] | None = None, rng: np.random.Generator | None = None
    ) -> Tensor:
        """N x D vectors. With ``touched``, the feature vectors used are noted there as leaves that get a gradient."""
        if self.feature_weights_F is not None:
            rows_NF = _weighed(rows_NF, self.feature_weights_F)
        if touched is not None and self.dropout and rng is not None:
            rows_NF = drop_features(rows_NF, self.dropout, rng)
        summed = weighted_sum(rows_NF, self.table, touched)
        if self.spectral:
            return self._astec(summed, learns=touched is not None)
        unit = nn.functional.normalize(summed, dim=1)
        if self.layer is None:
            return unit
        return unit + torch.relu(self.layer(unit))

    def _astec(self, summed_ND: Tensor, *, learns: bool) -> Tensor:
        share = self.layer_dropout if learns and self.training else 0.0
        vectors_ND = nn.functional.dropout(torch.relu(summed_ND), share)
        if self.layer is None:
            return vectors_ND
        return vectors_ND + nn.functional.dropout(torch.relu(self.layer(vectors_ND)), share)


def weighted_sum(rows_NF: sparse.csr_array, table: RowTable, touched: list[Touched] | None = None) -> Tensor:
    """The sum of feature vectors that each row asks for, N x D; with ``touched``, those used are noted there."""
    if touched is None:
        return _product(rows_NF, table.weight)
    ids_U, places = used_columns(rows_NF)
    ids = torch.from_numpy(ids_U).to(table.weight.device)
    vectors_UD = table.gather(ids)
    touched.append(Touched(table, ids, vectors_UD))
    narrow = sparse.csr_array((rows_NF.data, places, rows_NF.indptr), shape=(rows_NF.shape[0], len(ids_U)))
    summed: Tensor = _SparseProduct.apply(narrow, vectors_UD)  # type: ignore[no-untyped-call]
    return summed


def drop_features(rows_NF: sparse.csr_array, share: float, rng: np.random.Generator) -> sparse.csr_array:
    """The rows without a random share of their entries. A row keeps its direction on average, so none is scaled."""
    kept = rng.random(rows_NF.nnz, dtype=np.float32) >= share
    before = np.concatenate([[0], np.cumsum(kept)])
    return sparse.csr_array((rows_NF.data[kept], rows_NF.indices[kept], before[rows_NF.indptr]), shape=rows_NF.shape)


def rare_weights(rows_NF: sparse.csr_array, rare: float) -> NDArray[np.float32]:
    """How much each feature counts, n / (n + rare), where n is the number of texts that have it.

    What a feature of one or two texts has learned is mostly those texts; a new text that has it should heed its other
    features more.

    >>> rare_weights(sparse.csr_array(np.array([[1, 1, 0], [1, 0, 0], [1, 0, 0]])), rare=1.0).tolist()
    [0.75, 0.5, 0.0]
    """
    counts_F = np.bincount(rows_NF.indices, minlength=rows_NF.shape[1])
    weights_F: NDArray[np.float32] = (counts_F / (counts_F + rare)).astype(np.float32)
    return weights_F


def _weighed(rows_NF: sparse.csr_array, weights_F: Tensor) -> sparse.csr_array:
    # Another matrix of the same places, which need no check.
    weighed = copy(rows_NF)
    weighed.data = rows_NF.data * weights_F.cpu().numpy()[rows_NF.indices]
    return weighed


def used_columns(rows_NF: sparse.csr_array) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The columns that hold an entry, ascending, and the place of each entry's column among them.

    >>> ids, places = used_columns(sparse.csr_array(np.array([[0, 2, 0, 1], [0, 0, 0, 3]])))
    >>> ids.tolist(), places.tolist()
    ([1, 3], [0, 1, 1])
    """
    used = np.zeros(rows_NF.shape[1], dtype=bool)
    used[rows_NF.indices] = True
    ids = np.flatnonzero(used)
    place_of = np.empty(rows_NF.shape[1], dtype=np.int32)
    place_of[ids] = np.arange(len(ids), dtype=np.int32)
    return ids, place_of[rows_NF.indices]


def _product(rows_NF: sparse.csr_array, table_FD: Tensor) -> Tensor:
    if table_FD.device.type == "cpu":
        # SciPy's product costs about 0.6 of torch's embedding_bag in CPU time.
        return torch.from_numpy(rows_NF @ table_FD.detach().numpy())
    return nn.functional.embedding_bag(
        torch.from_numpy(rows_NF.indices.astype(np.int64)).to(table_FD.device),
        table_FD,
        torch.from_numpy(rows_NF.indptr[:-1].astype(np.int64)).to(table_FD.device),
        mode="sum",
        per_sample_weights=torch.from_numpy(rows_NF.data).to(table_FD.device),
    )


class _SparseProduct(torch.autograd.Function):
    """rows_NU @ vectors_UD; the gradient is rows_NU^T @ grad_ND."""

    @staticmethod
    def forward(ctx: Any, rows_NU: sparse.csr_array, vectors_UD: Tensor) -> Tensor:
        ctx.rows_NU = rows_NU
        return _product(rows_NU, vectors_UD)

    @staticmethod
    def backward(ctx: Any, grad_ND: Tensor) -> tuple[None, Tensor]:
        if grad_ND.device.type == "cpu":
            return None, torch.from_numpy(ctx.rows_NU.T @ grad_ND.contiguous().numpy())
        transposed = sparse.csr_array(ctx.rows_NU.T)
        return None, _product(transposed, grad_ND.contiguous())
