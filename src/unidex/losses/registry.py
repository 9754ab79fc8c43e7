"""The registered losses: what a recipe can name in ``loss.dual`` and ``loss.classifier``.

To add a loss, write one module that calls `register`, and import it before the recipe is read::

    def squared(scores_BP, targets): ...
    register(RegisteredLoss("squared", dense=lambda settings: squared))

That is enough to train with it in every way: on a pool, on all labels, with a gradient cache, on several processes.
A blocked form saves memory where the loss allows it (`unidex.losses.blocks`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from unidex.config import Loss as Settings
from unidex.config.names import LOSSES
from unidex.losses.blocks import BlockedLoss, LastPass
from unidex.losses.gradient import Loss, LossGrad
from unidex.losses.targets import Targets, draw_positives


def all_positives(targets: Targets, settings: Settings, generator: torch.Generator) -> Targets:
    """Train on every positive in the pool: the targets as they are."""
    return targets


def sampled_positives(targets: Targets, settings: Settings, generator: torch.Generator) -> Targets:
    """Train on at most ``loss.sampled_positives`` positives per text, drawn in each step; 0 for all."""
    return draw_positives(targets, settings.sampled_positives, generator) if settings.sampled_positives else targets


@dataclass(frozen=True)
class RegisteredLoss:
    """A loss and what the training step must know of it."""

    name: str  # its name in a recipe
    dense: Callable[[Settings], Loss]  # from the settings, the loss on a matrix of scores
    # From the settings, the loss on texts and labels, block by block. Without it the blocked form collects the scores
    # of all blocks and calls the dense form.
    blocked: Callable[[Settings], BlockedLoss] | None = None
    settings: tuple[str, ...] = ()  # the keys of the section [loss] that it reads
    # Which positives of a text it trains on in a step.
    sample: Callable[[Targets, Settings, torch.Generator], Targets] = all_positives
    # Whether it is also taken from labels to texts where ``loss.text_to_label`` is below 1.
    takes_text_to_label: bool = False
    takes_log_q: bool = False  # whether ``loss.log_q`` corrects its scores


_REGISTERED: dict[str, RegisteredLoss] = {}


def register_with_options(
    name: str,
    dense: Callable[..., LossGrad],
    blocked: Callable[..., LastPass],
    options: Mapping[str, str],
    *,
    samples_positives: bool = False,
) -> None:
    """Register a loss whose options are settings: ``options`` has the key of the section [loss] for each."""

    def chosen(settings: Settings) -> dict[str, Any]:
        return {option: getattr(settings, key) for option, key in options.items()}

    register(
        RegisteredLoss(
            name,
            dense=lambda settings: partial(dense, **chosen(settings)),
            blocked=lambda settings: partial(blocked, **chosen(settings)),
            settings=(*options.values(), *(["sampled_positives"] if samples_positives else [])),
            sample=sampled_positives if samples_positives else all_positives,
        )
    )


def register(loss: RegisteredLoss) -> None:
    """Make a loss known to recipes by its name."""
    if loss.name in _REGISTERED:
        raise ValueError(f"a loss must have a name of its own, but {loss.name!r} is registered already")
    unknown = [key for key in loss.settings if key not in Settings.model_fields]
    if unknown:
        raise ValueError(f"settings of a loss must be keys of the section [loss], but {unknown[0]!r} is not")
    _REGISTERED[loss.name] = loss
    LOSSES.add(loss.name)


def unregister(name: str) -> None:
    """Forget a loss."""
    del _REGISTERED[name]
    LOSSES.remove(name)


def get(name: str) -> RegisteredLoss:
    """The loss of a name.

    >>> get("bce").settings
    ('bce_reduction',)
    """
    if name not in _REGISTERED:
        raise ValueError(f"a loss must be one of {', '.join(names())}, but is {name!r}; register it first")
    return _REGISTERED[name]


def names() -> list[str]:
    """The names of all registered losses."""
    return list(_REGISTERED)
