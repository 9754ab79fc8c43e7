"""A loss on the inner products of texts and labels, without a graph over the score matrix.

Shapes: B texts, P labels in the pool, D dimensions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from unidex.losses.blocks import BlockedGrad
from unidex.losses.gradient import Loss
from unidex.losses.targets import Targets


@torch.no_grad()
def inner_product_loss(texts_BD: Tensor, labels_PD: Tensor, scale: Tensor, targets: Targets, loss: Loss) -> BlockedGrad:
    """loss(scale * texts labels^T) and its gradients with respect to texts, labels and scale.

    Scores, loss and the gradients of both sides are computed at once (three matrix products), so that nothing of size
    B x P is kept. With G the gradient of the loss with respect to the scores::

        d texts = scale G labels,  d labels = scale G^T texts,  d scale = sum(texts * (G labels))

    >>> from unidex.losses import decoupled_softmax
    >>> texts, labels = torch.tensor([[1.0, 0.0]]), torch.eye(2)
    >>> targets = Targets.of([0], [0], shape=(1, 2))
    >>> inner_product_loss(texts, labels, torch.tensor(1.0), targets, decoupled_softmax).texts_BD
    tensor([[-0.2689,  0.2689]])
    """
    scaled_BD = texts_BD * scale
    value, grad_BP = loss(scaled_BD @ labels_PD.T, targets)
    unscaled_BD = grad_BP @ labels_PD
    return BlockedGrad(value, unscaled_BD * scale, grad_BP.T @ scaled_BD, (unscaled_BD * texts_BD).sum())
