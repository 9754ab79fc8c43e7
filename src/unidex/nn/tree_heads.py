"""The heads of a label tree: per level, a vector of a text and one vector per cluster.

Shapes: B texts, C clusters of a level, D dimensions of a level.
"""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn

from unidex.config.tree import Tree, at_level
from unidex.nn.label_tree import LabelTree
from unidex.nn.row_table import RowTable
from unidex.nn.spectral import SpectralLinear


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
