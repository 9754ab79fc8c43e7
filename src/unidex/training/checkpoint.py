"""Checkpoints: everything a run needs to go on as if it had never stopped.

A checkpoint is a folder ``checkpoint-STEP`` with state.json and tensors.safetensors, written under another name and
renamed when it is complete, so that a crash leaves the old one or the new one.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from unidex.errors import ModelError

_PREFIX = "checkpoint-"


def save(folder: Path, step: int, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    """Write a checkpoint and take the older ones away."""
    unfinished = folder / f".{_PREFIX}{step}"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, unfinished / "tensors.safetensors")
    (unfinished / "state.json").write_text(json.dumps(state) + "\n", encoding="utf-8")
    for file in unfinished.iterdir():
        _to_disk(file)
    finished = folder / f"{_PREFIX}{step}"
    shutil.rmtree(finished, ignore_errors=True)
    unfinished.rename(finished)
    _to_disk(folder)
    for old in _all(folder):
        if old != finished:
            shutil.rmtree(old, ignore_errors=True)


def newest(folder: Path) -> Path | None:
    """The checkpoint of the latest step, or None where there is none."""
    return max(_all(folder), key=_step, default=None)


def load(checkpoint: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the state of a checkpoint."""
    try:
        tensors = load_file(checkpoint / "tensors.safetensors")
        state = json.loads((checkpoint / "state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, SafetensorError) as error:
        raise ModelError(f"{checkpoint}: the checkpoint is damaged ({error}); delete it and train anew") from None
    return tensors, state


def _all(folder: Path) -> list[Path]:
    return [path for path in folder.glob(f"{_PREFIX}*") if path.name.removeprefix(_PREFIX).isdigit()]


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix(_PREFIX))


def _to_disk(path: Path) -> None:
    """Make sure that what was written is on the disk, not only in the system's memory."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
