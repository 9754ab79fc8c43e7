"""What an encoder offers to the rest of the package.

Shapes: N texts, D dimensions of an encoder's vectors, W words with a vector, L labels, U features of one text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn

from unidex.config import Config
from unidex.nn.onnx_graph import OnnxGraph
from unidex.nn.row_table import RowTable, Touched


class Encoder(Protocol):
    """Texts -> vectors. Texts and label texts share it. An encoder is also a torch module.

    Attributes:
        dim: D.
        cache: a folder where prepared texts are stored between runs, or None.
    """

    dim: int
    cache: Path | None

    def prepare(self, texts: Any) -> Any:
        """N texts in the form that the encoder reads, made once: ``shape[0]`` is N; an array or a slice takes some."""

    def stack(self, parts: list[Any]) -> Any:
        """Prepared texts one after the other."""

    def __call__(
        self, prepared: Any, touched: list[Touched] | None = None, rng: np.random.Generator | None = None
    ) -> Tensor:
        """N x D vectors of prepared texts.

        In a training step ``touched`` is a list: the encoder appends the rows of its tables that it used. ``rng`` is
        for dropout that does not draw from torch.
        """

    def save(self, folder: Path) -> None:
        """Write what ``load`` reads to a folder that is there.

        The network saves the weights, unless the encoder does (capability ``saves_weights``).
        """


class HasTable(Protocol):
    """An encoder with a row table of word vectors (capability ``has_table``)."""

    table: RowTable

    def word_counts(self, prepared: Any) -> sparse.csr_array:
        """How much each word counts in each prepared text, N x W, scaled as the encoder scales texts."""


class HasLayers(Protocol):
    """An encoder whose layers the levels of a label tree can read (capability ``has_layers``)."""

    num_layers: int
    layer_dim: int  # numbers per token vector

    def at_layers(self, prepared: Any, layers: list[list[int]]) -> tuple[Tensor, list[Tensor]]:
        """The vectors, N x D, and per list of layers, counted from 1, their vectors side by side; in one pass."""


class HasTwin(Protocol):
    """An encoder that can make a second one of the same features (capability ``has_twin``)."""

    def twin(self, config: Config) -> Any:
        """An encoder of the same features with other random weights; the caller seeds torch."""

    def smooth_rare_features(self, prepared: Any, smoothing: float) -> None:
        """Multiply the weight of a feature that n of these texts have by n / (n + smoothing)."""


class HasStagedDropout(Protocol):
    """An encoder whose dropout may differ between the stages of a recipe (capability ``has_staged_dropout``)."""

    def set_dropout(self, dropout: float, layer_dropout: float) -> None:
        """Use these shares from now on."""


@runtime_checkable
class HasFold(Protocol):
    """An encoder that is trained in another form than it is saved in."""

    def fold(self) -> None:
        """Take the saved form; the vectors stay the same."""


@runtime_checkable
class HasRecentVectors(Protocol):
    """An encoder that remembers vectors while it is trained, so that they are not made twice."""

    def forget_vectors(self) -> None:
        """Free their memory: training has ended."""


@runtime_checkable
class HasSentenceModules(Protocol):
    """An encoder that can be written as a sentence-transformers folder."""

    def write_sentence_modules(self, folder: Path, head: Sequence[nn.Module], similarity: str) -> list[str]:
        """Write the encoder with the modules of a head behind it; the result names what is lost."""


@runtime_checkable
class HasOnnxGraph(Protocol):
    """An encoder that can be a part of an ONNX graph."""

    def onnx_vectors(self, graph: OnnxGraph, folder: Path) -> str:
        """Add the encoder to a graph, and write what makes its inputs to a folder; the name of its vectors, N x D."""


@runtime_checkable
class HasExactAttribution(Protocol):
    """An encoder whose vector of one text is a sum over features of that text."""

    features: Any

    def linearised(
        self, ids_U: NDArray[np.integer[Any]], weights_U: NDArray[np.floating[Any]]
    ) -> tuple[NDArray[np.float64], Callable[[NDArray[np.float64]], tuple[NDArray[np.float64], NDArray[np.float64]]]]:
        """The vector of a text with these features, D, and the attribution of its inner products.

        The attribution takes L x D vectors to the share of each feature, L x U, and the share of none, L. Both sum to
        the inner products.
        """


@runtime_checkable
class HasGradientAttribution(Protocol):
    """An encoder that can differentiate its vector by the vectors of the tokens of one text."""

    def from_embeddings(self, text: str, copies: int) -> tuple[Tensor, Tensor]:
        """Vectors of so many copies of a text, and the vectors of their tokens, a leaf that wants a gradient.

        Each copy has a gradient of its own, so one backward pass serves as many scores as there are copies.
        """

    def token_places(self, text: str) -> list[tuple[int, int]]:
        """Where each token starts and ends in the text; -1, -1 for a token without a place."""
