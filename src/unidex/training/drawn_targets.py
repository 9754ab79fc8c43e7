"""Which positives of a text a loss trains on in a step."""

from __future__ import annotations

import torch

from unidex.config import Loss, LossName
from unidex.losses import Targets, draw_positives, one_positive


def drawn_targets(targets: Targets, name: LossName, settings: Loss, seed: int) -> Targets:
    """Targets as a loss wants them: one drawn positive a text, up to k of them, or all.

    The same seed draws the same, so that both heads, and all processes before they split the labels, agree.

    >>> targets = Targets.of([0, 0], [0, 1], shape=(1, 2))
    >>> drawn_targets(targets, "one-positive", Loss(), seed=0).weights.sum()
    tensor(1.)
    >>> drawn_targets(targets, "decoupled-softmax", Loss(), seed=0) is targets
    True
    """
    generator = torch.Generator(targets.rows.device).manual_seed(seed)
    if name == "one-positive":
        return one_positive(targets, generator)
    if name == "soft-top-k" and settings.k:
        return draw_positives(targets, settings.k, generator)
    if name in ("triplet", "contrastive") and settings.sampled_positives:
        return draw_positives(targets, settings.sampled_positives, generator)
    return targets
