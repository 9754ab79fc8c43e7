"""Heads: from an encoder's vector to the vectors that are scored.

The dual head makes unit vectors of texts and of label texts; the classifier head makes vectors of texts that meet one
free vector a label.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class _Head(nn.Module):
    """A linear layer, or none, and dropout."""

    def __init__(self, dim_in: int, dim: int, *, dropout: float = 0.1, projection: bool = True) -> None:
        super().__init__()
        self.linear = _linear(dim_in, dim) if projection else None
        self.dropout = nn.Dropout(dropout)


class DualHead(_Head):
    """g1: L2norm(dropout(tanh(linear(x)))); without a projection only the norm (UniDEC, arXiv 2405.03714)."""

    def forward(self, encoded: Tensor) -> Tensor:
        """N x dim_in -> N x dim of length 1."""
        if self.linear is not None:
            encoded = torch.tanh(self.linear(encoded))
        return nn.functional.normalize(self.dropout(encoded), dim=1)


class ClassifierHead(_Head):
    """g2: dropout(linear(x)), not normalised in training (UniDEC, arXiv 2405.03714)."""

    def forward(self, encoded: Tensor) -> Tensor:
        """N x dim_in -> N x dim."""
        if self.linear is not None:
            encoded = self.linear(encoded)
        dropped: Tensor = self.dropout(encoded)
        return dropped


def _linear(dim_in: int, dim: int) -> nn.Linear:
    linear = nn.Linear(dim_in, dim)
    nn.init.orthogonal_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear
