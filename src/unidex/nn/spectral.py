"""Spectral norm: linear layers whose largest singular value is held at 1, so that they make no vector longer."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm


class SpectralLinear(nn.Linear):
    """x W^T / s + b with s = u^T W v, an estimate of W's largest singular value.

    u and v are found by power iteration: v = W^T u and u = W v, each scaled to length 1. That is torch's own, but for
    its time: torch moves u and v whenever the weights are read in training mode, so that two passes of one step see
    two layers; here ``sharpen`` moves them, once per step, after the weights have moved. u and v are part of the
    state.

    ``start`` is the initial W, out x in; b is initially 0.

    References: spectral normalisation (Miyato et al., arXiv 1802.05957).

    >>> layer = SpectralLinear(3 * torch.eye(2))
    >>> layer.weight.detach().round(decimals=4)
    tensor([[1., 0.],
            [0., 1.]])
    """

    def __init__(self, start: Tensor, *, bias: bool = True) -> None:
        super().__init__(start.shape[1], start.shape[0], bias=bias)
        with torch.no_grad():
            self.weight.copy_(start)
            if bias:
                self.bias.zero_()
        spectral_norm(self)
        self.train(self.training)

    @property
    def _norm(self) -> Any:
        norms: Any = self.parametrizations
        return norms.weight

    def train(self, mode: bool = True) -> Self:
        """As any module, except that reading the weights does not move u and v."""
        super().train(mode)
        if hasattr(self, "parametrizations"):
            self._norm.eval()
        return self

    @torch.no_grad()
    def sharpen(self) -> None:
        """One power iteration towards the weights as they are now; none where the weights do not learn."""
        if self._norm.original.requires_grad:
            self._norm.train()
            self.weight  # noqa: B018  # read in training mode
            self._norm.eval()


def spectral_layers(network: nn.Module) -> list[SpectralLinear]:
    """All such layers inside a network."""
    return [module for module in network.modules() if isinstance(module, SpectralLinear)]
