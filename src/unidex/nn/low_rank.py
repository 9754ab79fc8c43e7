"""Low-rank training of a large encoder: its weights stay, and each linear layer learns a small change beside them.

    y = x W^T + b + s (x A^T) B^T        W: O x I and b as they were; A: R x I, B: O x R learn; s = 2

B starts at 0, so that training starts from the pretrained encoder (Hu et al., "LoRA", arXiv 2106.09685). With rank R, a
layer learns R (I + O) numbers in place of I O, and only those have gradients and moments of an optimiser. After
training the change is added to W, so that what is saved, searched and exported is a plain encoder again.

Shapes: N rows, I inputs, O outputs, R rank.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

# The usual choice: alpha is twice the rank.
_SCALE = 2.0


class LowRankLinear(nn.Module):
    """A linear layer that does not learn, and its change of low rank, which does.

    >>> layer = LowRankLinear(nn.Linear(3, 2), rank=1)
    >>> x = torch.ones(1, 3)
    >>> bool((layer(x) == layer.linear(x)).all())
    True
    >>> [name for name, parameter in layer.named_parameters() if parameter.requires_grad]
    ['down_RI', 'up_OR']
    """

    def __init__(self, linear: nn.Linear, rank: int) -> None:
        super().__init__()
        self.linear = linear.requires_grad_(False)
        self.down_RI = nn.Parameter(torch.empty(rank, linear.in_features, dtype=torch.float32))
        self.up_OR = nn.Parameter(torch.zeros(linear.out_features, rank, dtype=torch.float32))
        nn.init.kaiming_uniform_(self.down_RI, a=math.sqrt(5))

    def forward(self, inputs_NI: Tensor) -> Tensor:
        """N x O."""
        changed: Tensor = self.linear(inputs_NI) + _SCALE * (inputs_NI @ self.down_RI.T) @ self.up_OR.T
        return changed

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        """The layer with its change added to the weights; it learns as any other."""
        self.linear.weight += _SCALE * self.up_OR @ self.down_RI
        return self.linear.requires_grad_(True)


def add_low_rank(model: nn.Module, rank: int) -> int:
    """Freeze a model, and give each of its linear layers a change of low rank; the number of these layers."""
    model.requires_grad_(False)
    return _replace(model, nn.Linear, lambda layer: LowRankLinear(layer, rank))


def merge_low_rank(model: nn.Module) -> None:
    """Add all changes to the weights they belong to; all weights may learn again."""
    if _replace(model, LowRankLinear, LowRankLinear.merged):
        model.requires_grad_(True)


def _replace(model: nn.Module, kind: type[nn.Module], by: Callable[[Any], nn.Module]) -> int:
    # A list: a layer that was put there must not be found again.
    places = [
        (parent, name, child)
        for parent in model.modules()
        if not isinstance(parent, LowRankLinear)
        for name, child in parent.named_children()
        if type(child) is kind
    ]
    for parent, name, child in places:
        setattr(parent, name, by(child))
    return len(places)
