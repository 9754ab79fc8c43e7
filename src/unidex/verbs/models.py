"""Model folders and devices, as every verb opens them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from unidex.errors import UnidexError
from unidex.storage.locks import locked

if TYPE_CHECKING:
    import torch

    from unidex.model.model import Model


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


def load_model(folder: Path, device: str = "auto") -> Model:
    """Read a model folder."""
    from unidex.verbs.registered_methods import Model

    return Model.load(folder, str(choose_device(device)))


@contextmanager
def model_to_change(folder: Path, out: Path | None = None) -> Iterator[Model]:
    """Load a model, let the caller change it, then save it in its folder, or in the new folder ``out``.

    The folder is locked from loading to saving, so that no label that another process adds is lost.
    """
    if out is not None and out.exists():
        raise UnidexError(f"{out}: the model folder must be new, but exists; name another or remove it")
    with locked(folder) if out is None else nullcontext():
        model = load_model(folder)
        yield model
        model.save(out or folder)
