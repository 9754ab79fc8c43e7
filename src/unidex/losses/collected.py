"""The blocked form of a loss that has only a dense one: it collects the scores of all labels."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from unidex.losses.blocked import check_sides
from unidex.losses.blocks import ALONE, BlockedGrad, Ranks, Sink
from unidex.losses.gradient import Loss
from unidex.losses.targets import Targets


@torch.no_grad()
def collected(
    dense: Callable[[Tensor | None], Loss],
    texts_BD: Tensor,
    labels_LD: Tensor,
    scale: Tensor,
    targets: Targets,
    *,
    log_q_L: Tensor | None = None,
    ranks: Ranks = ALONE,
    sink: Sink | None = None,
) -> BlockedGrad:
    """Collect the scores of all labels of all processes, call the dense loss, keep the gradient of the own labels.

    Memory, in numbers: B x L over the labels of all processes, once, and what the dense loss takes.
    """
    check_sides(texts_BD, labels_LD, scale, targets)
    scaled_BD = texts_BD * scale
    sizes = ranks.gather(torch.tensor([len(labels_LD)], device=texts_BD.device)).tolist()
    first = sum(sizes[: ranks.rank])
    everywhere = Targets(
        ranks.gather(targets.rows),
        ranks.gather(targets.columns + first),
        ranks.gather(targets.weights),
        ranks.gather(targets.ignored_rows),
        ranks.gather(targets.ignored_columns + first),
        (len(texts_BD), sum(sizes)),
    )
    loss = dense(None if log_q_L is None else ranks.gather(log_q_L))
    value, grad_BP = loss(ranks.gather(labels_LD @ scaled_BD.T).T, everywhere)
    grad_BL = grad_BP[:, first : first + len(labels_LD)]
    unscaled_BD = grad_BL @ labels_LD
    labels: Tensor | None = grad_BL.T @ scaled_BD
    if sink is not None and labels is not None:
        sink(slice(0, len(labels_LD)), labels)
        labels = None
    return BlockedGrad(value, unscaled_BD * scale, labels, (unscaled_BD * texts_BD).sum().to(scale.dtype))
