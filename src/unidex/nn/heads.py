"""Heads: from an encoder's vector to the vectors that are scored.

The dual head makes unit vectors of texts and of label texts; the classifier head makes vectors of texts, which are
scored with one free vector per label; the heads of a label tree make vectors of texts for its clusters.

Shapes: N texts, C clusters of a level, D dimensions of a level.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn

from unidex.config.tree import Tree, at_level
from unidex.nn.array_network import ArrayHead, Linear
from unidex.nn.initialisation import orthogonal_linear
from unidex.nn.label_tree import LabelTree
from unidex.nn.row_table import RowTable
from unidex.nn.sentence_modules import Dense, Normalize
from unidex.nn.spectral import SpectralLinear
from unidex.nn.unit_rows import unit_rows
from unidex.nn.vectors import as_array


class _Head(nn.Module):
    """A linear layer, or none, and dropout."""

    def __init__(self, dim_in: int, dim: int, *, dropout: float = 0.1, projection: bool = True) -> None:
        super().__init__()
        self.dim = dim if projection else dim_in
        self.linear = orthogonal_linear(dim_in, dim) if projection else None
        self.dropout = nn.Dropout(dropout)


def _array_linear(linear: nn.Linear | None) -> Linear | None:
    return None if linear is None else Linear(as_array(linear.weight), as_array(linear.bias))


class DualHead(_Head):
    """g1: L2norm(dropout(tanh(linear(x)))); without a projection only the norm (UniDEC, arXiv 2405.03714).

    Without the norm, DEXML's second regime (arXiv 2310.10636): vectors of any length, temperature 1.
    """

    def __init__(self, dim_in: int, dim: int, *, normalised: bool = True, **options: Any) -> None:
        super().__init__(dim_in, dim, **options)
        self.normalised = normalised

    def arrays(self) -> ArrayHead:
        """The head by array operations, with the weights as they are now."""
        linear = _array_linear(self.linear)
        return ArrayHead(self.dim, linear, is_bent=linear is not None, is_unit=self.normalised, bias=False)

    def forward(self, encoded: Tensor) -> Tensor:
        """N x dim_in -> N x dim, of length 1 where normalised."""
        if self.linear is not None:
            encoded = torch.tanh(self.linear(encoded))
        dropped: Tensor = self.dropout(encoded)
        return unit_rows(dropped) if self.normalised else dropped

    def sentence_modules(self) -> list[nn.Module]:
        """The head as modules of sentence-transformers."""
        modules: list[nn.Module] = [] if self.linear is None else [Dense(self.linear, nn.Tanh())]
        return [*modules, Normalize()] if self.normalised else modules


class ClassifierHead(_Head):
    """g2: dropout(linear(x)), not normalised in training (UniDEC, arXiv 2405.03714).

    UniDEC searches unit vectors all the same; Renee searches classifiers with the lengths they have (``plain``).

    With ``bias`` a 1 follows the vector of a text, and the last number of a label's vector is its bias.
    """

    def __init__(self, dim_in: int, dim: int, *, searched: str = "unit", bias: bool = False, **options: Any) -> None:
        super().__init__(dim_in, dim, **options)
        self.searched, self.bias = searched, bias
        self.dim += bias

    def arrays(self) -> ArrayHead:
        """The head by array operations, with the weights as they are now, up to the vectors that are searched."""
        is_unit = self.searched == "unit"
        return ArrayHead(self.dim, _array_linear(self.linear), is_bent=False, is_unit=is_unit, bias=self.bias)

    def forward(self, encoded: Tensor) -> Tensor:
        """N x dim_in -> N x dim, and one more with a bias."""
        if self.linear is not None:
            encoded = self.linear(encoded)
        dropped: Tensor = self.dropout(encoded)
        return nn.functional.pad(dropped, (0, 1), value=1.0) if self.bias else dropped

    def as_searched(self, vectors: Tensor) -> Tensor:
        """Vectors of texts or of classifiers as a search scores them."""
        return self.unit(vectors) if self.searched == "unit" else vectors

    def sentence_modules(self) -> list[nn.Module]:
        """The head, as its vectors are searched, as modules of sentence-transformers."""
        modules: list[nn.Module] = [] if self.linear is None else [Dense(self.linear)]
        if self.searched == "unit":
            modules.append(Normalize())
        if self.bias:
            dim = self.dim - 1
            one_more = nn.Linear(dim, dim + 1)
            with torch.no_grad():
                one_more.weight.copy_(torch.eye(dim + 1, dim))
                one_more.bias.copy_(torch.eye(dim + 1)[dim])
            modules.append(Dense(one_more))
        return modules

    def unit(self, vectors: Tensor) -> Tensor:
        """Vectors of length 1; a bias, or the 1 in its place, stays as it is."""
        return self.beside_bias(unit_rows, vectors)

    def beside_bias(self, change: Callable[[Tensor], Tensor], vectors: Tensor) -> Tensor:
        """Vectors with a change of all but the bias."""
        if not self.bias:
            return change(vectors)
        return torch.cat([change(vectors[:, :-1]), vectors[:, -1:]], dim=1)


class TreeHeads(nn.Module):
    """Per level a meta-classifier: dropout and cluster vectors; with tree.residual, x + gelu(W x + b) comes first.

    W has spectral norm 1. With a bias, a 1 follows the vector of a text, and the last number of a cluster's vector is
    its bias.

    Attributes:
        layers: per level, the layers of the encoder that it reads; empty where every level reads the encoder's vector.
        tables: per level, one vector per cluster, C x D, or one number more with a bias; initially 0.
        learns: whether the heads learn, or only make shortlists.

    References: InceptionXML (arXiv 2109.07319), section 4; CascadeXML (arXiv 2211.00640).
    """

    def __init__(self, shape: LabelTree, settings: Tree, dim: int, *, bias: bool) -> None:
        super().__init__()
        self.shape, self.settings, self.bias = shape, settings, bias
        self.layers = [settings.layers[level] for level in shape.levels] if settings.layers else []
        self.learns = settings.losses != "labels"
        dims = [dim * len(layers) for layers in self.layers] or [dim] * len(shape.levels)
        self.residual = nn.ModuleList(SpectralLinear(torch.eye(size)) for size in dims if settings.residual)
        self.dropout = nn.ModuleList(nn.Dropout(at_level(settings.dropout, level)) for level in shape.levels)
        pairs = zip(shape.num_clusters, dims, strict=True)
        self.tables = [RowTable(torch.zeros(count, size + bias)) for count, size in pairs]
        # Heads that do not learn stay as they are, the estimate of a spectral norm included.
        self.requires_grad_(self.learns)

    def train(self, mode: bool = True) -> Self:
        """As any module; heads that do not learn make shortlists without dropout."""
        return super().train(mode and self.learns)

    def forward(self, read: list[Tensor]) -> list[Tensor]:
        """From the encoder's vectors for each level to the vectors that its clusters are scored with."""
        found = []
        for number, vectors in enumerate(read):
            if len(self.residual):
                vectors = vectors + nn.functional.gelu(self.residual[number](vectors))
            dropped: Tensor = self.dropout[number](vectors)
            found.append(nn.functional.pad(dropped, (0, 1), value=1.0) if self.bias else dropped)
        return found
