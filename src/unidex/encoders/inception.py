"""The inception encoder: attention between the words of a text, then convolutions along the numbers of their vectors.

For short texts, such as titles and queries: the first words are read in order, and positions are channels.

Shapes: N texts, T words of a text (padded), D numbers of a word's vector, U distinct words of a step, R rows and C
columns of what attention sees, F filters.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn

from unidex.config import Config
from unidex.config import Encoder as Settings
from unidex.config import Features as FeatureSettings
from unidex.config.capabilities import EncoderCapabilities
from unidex.encoders.registry import RegisteredEncoder, check_any_features, register
from unidex.errors import ConfigError
from unidex.features.extractor import FeatureExtractor
from unidex.features.tokens import TokenRows
from unidex.features.word_rows import places_of_words, word_rows
from unidex.nn.classifier_parts import scaled_rows, text_rows
from unidex.nn.initialisation import random_vectors, xavier_matrix
from unidex.nn.row_table import RowTable, Touched
from unidex.nn.spectral import SpectralLinear
from unidex.nn.static_vectors import initialise_from

_FILTERS = 32
_KERNELS = (4, 8, 16)  # of the parallel convolutions
_LAST_KERNEL = 16
_STRIDE = 4
# Texts that go through the layers together outside of training; more only take memory.
_TEXTS_AT_ONCE = 256
# Random vectors are about as long as the trained word vectors (GloVe) that the paper starts with.
_INITIAL_LENGTH = 6.0


class InceptionEncoder(nn.Module):
    """Word ids -> vectors of words -> attention -> convolutions -> one residual dense layer.

    1. X, T x D, the vectors of the words, 0 behind the last; dropout.
    2. Attention over the words, then over the numbers (`CrossAttention`): H = A_T(X, X), H' = A_D(H^T, X^T)^T.
    3. Convolutions along the D numbers, with the T positions as channels: one of width 1 to 32 channels; side by side
       three of width 4, 8 and 16, stride 4, circular, to 96 x D/4; one of width 16, stride 4, to 32 channels.
       Behind each GELU, BatchNorm and dropout; no dropout behind the last.
    4. h, all of these numbers end to end; h + BatchNorm(GELU(linear(dropout(h)))).

    With D = 300 there are 32 x 15 = 480 numbers. In training BatchNorm uses the texts of a step; in search the
    running mean and variance that it has learned, which are part of the state.

    References: InceptionXML (Kharbanda et al., SIGIR 2023, arXiv 2109.07319), section 3.
    """

    def __init__(self, features: FeatureExtractor, settings: Settings) -> None:
        super().__init__()
        self.features, self.settings = features, settings
        self.dim = _FILTERS * num_places(settings.dim)
        self.cache: Path | None = None  # words are read quickly: nothing is stored
        length, size = settings.max_length, settings.dim
        self.table = RowTable(random_vectors(features.num_features, size, _INITIAL_LENGTH))
        share = settings.layer_dropout
        self.dropout = nn.Dropout(settings.dropout)
        self.over_words = CrossAttention(length)
        self.over_numbers = CrossAttention(size)
        self.first = nn.Sequential(nn.Conv1d(length, _FILTERS, 1), nn.GELU(), _Norm(_FILTERS), nn.Dropout(share))
        self.branches = nn.ModuleList(_branch(kernel) for kernel in _KERNELS)
        wide = _FILTERS * len(_KERNELS)
        self.behind_branches = nn.Sequential(nn.GELU(), _Norm(wide), nn.Dropout(share))
        self.last = nn.Sequential(
            nn.Conv1d(wide, _FILTERS, _LAST_KERNEL, stride=_STRIDE), nn.GELU(), _Norm(_FILTERS), nn.Flatten()
        )
        self.dense = nn.Sequential(nn.Dropout(share), nn.Linear(self.dim, self.dim), nn.GELU(), _Norm(self.dim))
        for module in self.modules():
            if isinstance(module, nn.Conv1d | nn.Linear) and not isinstance(module, SpectralLinear):
                nn.init.xavier_uniform_(module.weight)
                assert module.bias is not None
                nn.init.zeros_(module.bias)
        self.eval()

    @classmethod
    def build(cls, config: Config, texts: Sequence[str], label_texts: Sequence[str]) -> InceptionEncoder:
        """An encoder of the words of these texts, with random vectors or with the vectors of encoder.path."""
        num_places(config.encoder.dim)  # refused before words are counted, which takes a while
        kept = {key: getattr(config.features, key) for key in ("min_df", "max_features", "num_buckets")}
        features = FeatureExtractor.fit(texts, label_texts, FeatureSettings(parts=False, bigrams=False, **kept))
        check_any_features(config, features.num_features)
        encoder = cls(features, config.encoder)
        if config.encoder.path:
            initialise_from(encoder, config.encoder.path)
        return encoder

    @classmethod
    def load(cls, config: Config, folder: Path) -> InceptionEncoder:
        """An encoder of the words that ``save`` wrote, with random vectors and weights."""
        return cls(FeatureExtractor.load(folder), config.encoder)

    def set_dropout(self, dropout: float, layer_dropout: float) -> None:
        """Use these shares of words' numbers and of numbers between the layers from now on."""
        for module in self.modules():
            if isinstance(module, nn.Dropout):
                module.p = dropout if module is self.dropout else layer_dropout

    def word_counts(self, rows: Any) -> sparse.csr_array:
        """The shares of words in prepared texts, in rows that sum to 1."""
        return scaled_rows(text_rows(rows, self.table.num_rows), 1)

    def prepare(self, texts: Any) -> TokenRows:
        """Texts as the ids of their first words; ``forward`` takes rows of it."""
        return word_rows(self.features, texts, self.settings.max_length)

    def stack(self, parts: list[TokenRows]) -> TokenRows:
        """Prepared texts one after the other."""
        return TokenRows.stack(parts)

    def save(self, folder: Path) -> None:
        """Write the vocabulary; weights and vectors are the network's to save."""
        self.features.save(folder)

    def forward(
        self, rows: TokenRows, touched: list[Touched] | None = None, rng: np.random.Generator | None = None
    ) -> Tensor:
        """N x dim vectors. With ``touched``, the word vectors used are appended as leaves that get a gradient.

        In training mode all texts go through the layers at once, since BatchNorm reads all of them. Dropout draws
        from torch, not from ``rng``.
        """
        if self.training:
            return self.layers(self._embedded(rows, touched))
        starts = range(0, len(rows), _TEXTS_AT_ONCE)
        blocks = [self.layers(self._embedded(rows[start : start + _TEXTS_AT_ONCE], touched)) for start in starts]
        return torch.cat(blocks) if blocks else torch.empty(0, self.dim, device=self.table.weight.device)

    def layers(self, embedded_NTD: Tensor) -> Tensor:
        """From N x T x D vectors of words, 0 where there is no word, to N x dim vectors of texts."""
        dropped = self.dropout(embedded_NTD)
        attended = self.over_words(dropped, dropped)
        attended = self.over_numbers(attended.transpose(1, 2), dropped.transpose(1, 2)).transpose(1, 2)
        first = self.first(attended)
        beside = torch.cat([branch(first) for branch in self.branches], dim=1)
        flat: Tensor = self.last(self.behind_branches(beside))
        beside_flat: Tensor = self.dense(flat)
        return flat + beside_flat

    def from_embeddings(self, text: str, copies: int) -> tuple[Tensor, Tensor]:
        """Vectors of so many copies of one text, and the vectors of its words they were made from, as a leaf."""
        ids = torch.from_numpy(self.prepare([text]).flat().astype(np.int64)).to(self.table.weight.device)
        words_NTD = self.table.weight[ids].expand(copies, -1, -1).clone().requires_grad_()
        missing = self.settings.max_length - len(ids)
        return self.layers(nn.functional.pad(words_NTD, (0, 0, 0, missing))), words_NTD

    def token_places(self, text: str) -> list[tuple[int, int]]:
        """Where each word that is read starts and ends in a text."""
        return places_of_words(self.features, text, self.settings.max_length)

    def _embedded(self, rows: TokenRows, touched: list[Touched] | None) -> Tensor:
        """N x T x D vectors of words. Only the words of the step are gathered, however large the vocabulary is."""
        device = self.table.weight.device
        ids_U, places = np.unique(rows.flat(), return_inverse=True)
        ids = torch.from_numpy(ids_U.astype(np.int64)).to(device)
        if touched is None:
            vectors_UD = self.table.weight.index_select(0, ids)
        else:
            vectors_UD = self.table.gather(ids)
            touched.append(Touched(self.table, ids, vectors_UD))
        # Row 0 is the vector of padding, which is 0 and stays 0.
        places_NT = np.zeros((len(rows), self.settings.max_length), dtype=np.int64)
        places_NT[np.arange(places_NT.shape[1]) < rows.lengths[:, None]] = places + 1
        padded = nn.functional.pad(vectors_UD, (0, 0, 1, 0))
        return nn.functional.embedding(torch.from_numpy(places_NT).to(device), padded)


class CrossAttention(nn.Module):
    """A(X, Y) = gamma (X Y^T)(W X) + X, with W held to spectral norm 1 and gamma initially 0: it then changes nothing.

    Shapes: X and Y [N, R, C], W [R, R], gamma one number.
    """

    def __init__(self, num_rows: int) -> None:
        super().__init__()
        self.mixing = SpectralLinear(xavier_matrix(num_rows, num_rows, normal=True), bias=False)
        self.gamma = nn.Parameter(torch.zeros(1))

    def forward(self, x_NRC: Tensor, y_NRC: Tensor) -> Tensor:
        """N x R x C."""
        mixed_NRC = self.mixing.weight @ x_NRC
        turned_NCR = y_NRC.transpose(1, 2)
        # The product of three matrices by way of the smaller middle, R x R or C x C.
        is_wide = x_NRC.shape[1] <= x_NRC.shape[2]
        product = (x_NRC @ turned_NCR) @ mixed_NRC if is_wide else x_NRC @ (turned_NCR @ mixed_NRC)
        return self.gamma * product + x_NRC


class _Norm(nn.BatchNorm1d):
    """BatchNorm; a single value per channel has no variance, so it is normalised as in search."""

    def forward(self, input: Tensor) -> Tensor:
        if self.training and input.shape[0] * input.shape[2:].numel() < 2:
            return nn.functional.batch_norm(
                input, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        return super().forward(input)


def _branch(kernel: int) -> nn.Conv1d:
    # So much circular padding that D / 4 places are left, whatever the width.
    padding = (kernel - _STRIDE) // 2
    return nn.Conv1d(_FILTERS, _FILTERS, kernel, stride=_STRIDE, padding=padding, padding_mode="circular")


def num_places(dim: int) -> int:
    """How many places the last convolution has, for word vectors of so many numbers.

    >>> num_places(300), num_places(64)
    (15, 1)
    """
    smallest = _STRIDE * _LAST_KERNEL
    if dim % _STRIDE or dim < smallest:
        raise ConfigError(
            f"encoder.dim of the inception encoder must be a multiple of {_STRIDE} and at least {smallest}, so that "
            f"its convolutions fit, but is {dim}; the paper has 300"
        )
    return (dim // _STRIDE - _LAST_KERNEL) // _STRIDE + 1


register(
    RegisteredEncoder(
        "inception",
        build=InceptionEncoder.build,
        load=InceptionEncoder.load,
        must_match=("dim", "max_length"),
        can=EncoderCapabilities(has_table=True, needs_whole_batch=True, has_staged_dropout=True),
    )
)
