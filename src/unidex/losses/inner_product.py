"""A loss on the inner products of texts and labels, without a graph over the score matrix.

Shapes: B texts, P labels in the pool, D dimensions.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from unidex.losses.gradient import Loss
from unidex.losses.targets import Targets


def inner_product_loss(texts_BD: Tensor, labels_PD: Tensor, scale: Tensor, targets: Targets, loss: Loss) -> Tensor:
    """loss(scale * texts labels^T), differentiable in texts, labels and scale.

    The forward pass computes scores, loss and the gradients of both sides at once (three matrix products), so that
    nothing of size B x P is kept. With G the gradient of the loss with respect to the scores::

        d texts = scale G labels,  d labels = scale G^T texts,  d scale = sum(texts * (G labels))

    >>> from unidex.losses import decoupled_softmax
    >>> texts, labels = torch.tensor([[1.0, 0.0]], requires_grad=True), torch.eye(2)
    >>> targets = Targets.of([0], [0], shape=(1, 2))
    >>> inner_product_loss(texts, labels, torch.tensor(1.0), targets, decoupled_softmax).backward()
    >>> texts.grad
    tensor([[-0.2689,  0.2689]])
    """
    value: Tensor = _InnerProductLoss.apply(texts_BD, labels_PD, scale, targets, loss)  # type: ignore[no-untyped-call]
    return value


class _InnerProductLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, texts_BD: Tensor, labels_PD: Tensor, scale: Tensor, targets: Targets, loss: Loss) -> Tensor:
        scaled_BD = texts_BD * scale
        value, grad_BP = loss(scaled_BD @ labels_PD.T, targets)
        unscaled_BD = grad_BP @ labels_PD
        # Kept for the backward pass: small, and computed while the score matrix is still there.
        ctx.save_for_backward(unscaled_BD * scale, grad_BP.T @ scaled_BD, (unscaled_BD * texts_BD).sum())
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_value: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        grad_texts_BD, grad_labels_PD, grad_scale = ctx.saved_tensors
        return grad_texts_BD * grad_value, grad_labels_PD * grad_value, grad_scale * grad_value, None, None
