"""Checkpoints: everything a run needs to continue as if it had never stopped.

A checkpoint is a folder ``checkpoint-STEP`` with state.json and tensors.safetensors, written under another name and
renamed when it is complete, so that a crash leaves the old one or the new one. Several processes write a folder
``shards`` instead, each its own rows, with torch.distributed.checkpoint. Either kind can be read by any number of
processes.
"""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from unidex.distributed import ALONE, Processes
from unidex.errors import ModelError
from unidex.storage.atomic import replace_folder, sync_folder
from unidex.storage.disk_errors import writing
from unidex.storage.tensors import StoredTensors, save_tensors
from unidex.training.network_state import part

_PREFIX = "checkpoint-"
BEST = "best."  # before the names of the tensors of the best network
_WHOLE, _SHARDS = "tensors.safetensors", "shards"


@dataclass(frozen=True)
class Shards:
    """Which tensors of a checkpoint are split by rows over processes."""

    processes: Processes = ALONE  # the processes that train together
    num_rows: int = 0  # rows of a split tensor over all processes
    tables: tuple[str, ...] = ()  # names of the tables; a tensor is split when a part of its name is one of them

    def holds(self, name: str) -> bool:
        """Whether a tensor is split."""
        return self.processes.size > 1 and not set(self.tables).isdisjoint(name.split("."))

    def as_whole(self, local: Tensor) -> Any:
        """The rows of this process as a part of the whole, in the form torch.distributed.checkpoint saves and reads."""
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import DTensor, Shard

        mesh = init_device_mesh(local.device.type, (self.processes.size,))
        shape = torch.Size([self.num_rows, *local.shape[1:]])
        stride = torch.empty(shape, device="meta").stride()
        return DTensor.from_local(local, mesh, [Shard(0)], run_check=False, shape=shape, stride=stride)


def save(folder: Path, step: int, tensors: dict[str, Tensor], state: dict[str, Any], shards: Shards = Shards()) -> None:  # noqa: B008  # frozen
    """Write a checkpoint and take the older ones away. With several processes, all of them call this."""
    with writing(folder / f"{_PREFIX}{step}"):
        try:
            _save(folder, step, tensors, state, shards)
        except OSError:
            if shards.processes.size == 1:
                # On a full disk, its room is what the user needs next.
                shutil.rmtree(_unfinished(folder, step), ignore_errors=True)
            raise


def _unfinished(folder: Path, step: int) -> Path:
    return folder / f".{_PREFIX}{step}"


def _save(folder: Path, step: int, tensors: dict[str, Tensor], state: dict[str, Any], shards: Shards) -> None:
    unfinished = _unfinished(folder, step)
    if shards.processes.is_first:
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
    shards.processes.barrier()
    if shards.processes.size > 1:
        _save_shards(unfinished / _SHARDS, tensors, shards)
    else:
        save_tensors(tensors, unfinished / _WHOLE)
    if shards.processes.is_first:
        (unfinished / "state.json").write_text(json.dumps(state) + "\n", encoding="utf-8")
        _finish(folder, unfinished, step)
    shards.processes.barrier()


def _finish(folder: Path, unfinished: Path, step: int) -> None:
    sync_folder(unfinished)
    finished = folder / f"{_PREFIX}{step}"
    replace_folder(unfinished, finished)
    for old in _all(folder):
        if old != finished:
            shutil.rmtree(old, ignore_errors=True)


def newest(folder: Path) -> Path | None:
    """The checkpoint of the latest step, or None where there is none."""
    return max(_all(folder), key=_step, default=None)


def load(checkpoint: Path, shards: Shards = Shards()) -> tuple[dict[str, Tensor], dict[str, Any]]:  # noqa: B008  # frozen
    """The tensors and the state of a checkpoint; of tensors that are split, the rows of this process."""
    try:
        if (checkpoint / _SHARDS).is_dir():
            tensors = _load_shards(checkpoint / _SHARDS, shards)
        else:
            rows = shards.processes.shard(shards.num_rows)
            tensors = load_file(checkpoint / _WHOLE)
            tensors = {name: tensor[rows] if shards.holds(name) else tensor for name, tensor in tensors.items()}
        state = json.loads((checkpoint / "state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, SafetensorError) as error:
        raise ModelError(f"{checkpoint}: the checkpoint is damaged ({error}); delete it and train anew") from None
    return tensors, state


def best_tensors(checkpoint: Path, shards: Shards) -> Mapping[str, Tensor]:
    """The tensors of a checkpoint, with those of the best network in place of the last one's."""
    file = checkpoint / _WHOLE
    if shards.processes.size > 1 or not file.exists():
        tensors, _ = load(checkpoint, shards)
        return tensors | part(tensors, BEST)
    with safe_open(file, framework="pt") as opened:
        names = {name: name for name in opened.keys()}  # noqa: SIM118  # it is no mapping
    return StoredTensors(file, names | {name.removeprefix(BEST): name for name in names if name.startswith(BEST)})


def _save_shards(folder: Path, tensors: dict[str, Tensor], shards: Shards) -> None:
    from torch.distributed.checkpoint.state_dict_saver import save as save_shards

    parts = {
        name: shards.as_whole(tensor) if shards.holds(name) else tensor.contiguous() for name, tensor in tensors.items()
    }
    save_shards(parts, checkpoint_id=str(folder))


def _load_shards(folder: Path, shards: Shards) -> dict[str, Tensor]:
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata
    from torch.distributed.checkpoint.state_dict_loader import load as load_shards

    with warnings.catch_warnings():
        # One process may read what several have written; the engine warns that it is alone.
        warnings.simplefilter("ignore")
        written = FileSystemReader(str(folder)).read_metadata().state_dict_metadata
        rows = shards.processes.shard(shards.num_rows)
        places: dict[str, Any] = {}
        for name, about in written.items():
            assert isinstance(about, TensorStorageMetadata)
            if shards.holds(name):
                local = torch.empty(rows.stop - rows.start, *about.size[1:], dtype=about.properties.dtype)
                places[name] = shards.as_whole(local)
            else:
                places[name] = torch.empty(about.size, dtype=about.properties.dtype)
        load_shards(places, checkpoint_id=str(folder))
    return {name: place.to_local() if shards.holds(name) else place for name, place in places.items()}


def _all(folder: Path) -> list[Path]:
    return [path for path in folder.glob(f"{_PREFIX}*") if path.name.removeprefix(_PREFIX).isdigit()]


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix(_PREFIX))
