"""The device that torch computes on, and the seed of its random numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from unidex.errors import UnidexError

if TYPE_CHECKING:
    import torch


def choose_device(name: str) -> torch.device:
    """Return a torch device by name; "auto" takes a GPU if the machine has one."""
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UnidexError(f"--device must be one that this machine has, but {name!r} is not: {error}") from None
    return device


def seed_torch(seed: int) -> None:
    """Seed torch's own random numbers, as torch.manual_seed does, on the devices that are in use.

    For each kind of device that is not, torch.manual_seed describes the stack of calls: half a millisecond per step.
    """
    import torch

    is_initialized: tuple[Callable[[], bool], ...] = (torch.cuda.is_initialized, torch.xpu.is_initialized)
    if any(asked() for asked in is_initialized) or torch.backends.mps.is_available():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)
