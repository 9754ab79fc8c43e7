"""Model folders and devices, as every verb opens them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from unidex.errors import UnidexError
from unidex.nn.device import choose_device
from unidex.storage.locks import locked

if TYPE_CHECKING:
    from unidex.model.model import Model

__all__ = ["choose_device", "load_model", "model_to_change"]


def load_model(folder: Path, device: str = "auto") -> Model:
    """Read a model folder."""
    from unidex.verbs.registered_methods import Model

    # "auto" is looked up only for a network that torch runs: to look loads torch.
    return Model.load(folder, device if device in ("auto", "cpu") else str(choose_device(device)))


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
