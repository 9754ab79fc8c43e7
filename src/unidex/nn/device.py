"""The device that torch computes on."""

from __future__ import annotations

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
