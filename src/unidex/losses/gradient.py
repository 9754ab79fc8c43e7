"""What a loss is: a function that turns scores into a value and a gradient, and two ways to use it.

Shapes: B texts, P labels in the pool, D dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from unidex.losses.blocks import BlockedGrad
from unidex.losses.products import PairProducts
from unidex.losses.targets import Targets


class LossGrad(NamedTuple):
    """The value of a loss, a scalar tensor, and its gradient with respect to the scores."""

    value: Tensor
    gradient: Tensor


class Loss(Protocol):
    """A loss consumes its B x P scores: their memory holds the gradient when it returns."""

    def __call__(self, scores_BP: Tensor, targets: Targets) -> LossGrad:
        """Value and gradient for B texts and a pool of P labels."""


def differentiable(loss: Loss) -> Callable[[Tensor, Targets], Tensor]:
    """The same loss as a function that autograd can differentiate; the scores are copied once and stay as they are.

    The gradient is the closed form, computed together with the value; it can be taken once, not differentiated again.

    >>> from unidex.losses import decoupled_softmax
    >>> scores = torch.tensor([[2.0, 1.0]], requires_grad=True)
    >>> differentiable(decoupled_softmax)(scores, Targets.of([0], [0], shape=(1, 2))).backward()
    >>> scores.grad
    tensor([[-0.2689,  0.2689]])
    """

    def value(scores_BP: Tensor, targets: Targets) -> Tensor:
        result: Tensor = _ClosedForm.apply(scores_BP, loss, targets)  # type: ignore[no-untyped-call]
        return result

    return value


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
    products = PairProducts(scaled_BD, labels_PD)
    value, grad_BP = loss(products.scores_BP, targets)
    unscaled_BD, grad_PD = products.gradients(grad_BP)
    return BlockedGrad(value, unscaled_BD * scale, grad_PD, (unscaled_BD * texts_BD).sum())


def check_scores(scores_BP: Tensor, targets: Targets) -> None:
    """Refuse scores a loss cannot consume. Looks at shape and type only, so it never waits for a device."""
    if tuple(scores_BP.shape) != targets.shape:
        raise ValueError(
            f"scores must have the shape of the targets, {targets.shape[0]} texts x {targets.shape[1]} labels, "
            f"but have {tuple(scores_BP.shape)}"
        )
    if scores_BP.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"scores must be float32 or float64, but are {scores_BP.dtype}; call scores.float() first")
    if scores_BP.requires_grad and torch.is_grad_enabled():
        raise ValueError(
            "a loss consumes its scores, so they must not require a gradient, but these do; "
            "compute them under torch.no_grad(), or use differentiable(loss)"
        )


class _ClosedForm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, scores_BP: Tensor, loss: Loss, targets: Targets) -> Tensor:
        value, grad_BP = loss(scores_BP.detach().clone(memory_format=torch.contiguous_format), targets)
        ctx.save_for_backward(grad_BP)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_value: Tensor) -> tuple[Tensor, None, None]:
        (grad_BP,) = ctx.saved_tensors
        # Not in place: the graph may be kept for a second backward pass.
        return grad_BP * grad_value, None, None
