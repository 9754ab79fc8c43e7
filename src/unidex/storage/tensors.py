"""Tensors in a safetensors file, written and read one after the other: the file is never in memory as a whole."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

_NAMES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
}
_BYTES_AT_ONCE = 1 << 24


def save_tensors(tensors: Mapping[str, Tensor | NDArray[Any]], file: Path) -> None:
    """Write tensors or arrays as ``safetensors.torch.save_file`` does, byte for byte, without a copy of all of them."""
    # Wide numbers first, so that each tensor stands where its numbers are aligned.
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].itemsize, item[0]))
    header, end = {}, 0
    for name, tensor in ordered:
        start, end = end, end + math.prod(tensor.shape) * tensor.itemsize
        header[name] = {"dtype": _kind(tensor), "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with file.open("wb") as out:
        out.write(len(text).to_bytes(8, "little"))
        out.write(text)
        for _, tensor in ordered:
            for block in _blocks(tensor):
                out.write(block)


class StoredTensors(Mapping[str, "Tensor"]):
    """Tensors of a file by other names. Each is mapped when it is asked for, and its memory is free before the next.

    Attributes:
        file: a safetensors file.
        names: of the tensors -> in the file.
    """

    def __init__(self, file: Path, names: Mapping[str, str]) -> None:
        self.file, self.names = file, names

    def __getitem__(self, name: str) -> Tensor:
        # Later: files are also written without torch.
        from safetensors import safe_open

        with safe_open(self.file, framework="pt") as opened:
            found: Tensor = opened.get_tensor(self.names[name])
            return found

    def read_into(self, name: str, tensor: Tensor) -> None:
        """Read a tensor into the memory of another one of its kind, without a second copy."""
        if not tensor.is_contiguous() or tensor.device.type != "cpu":
            tensor.copy_(self[name])
            return
        with self.file.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            about = json.loads(file.read(size))[self.names[name]]
            start, end = about["data_offsets"]
            place = _bytes(tensor)
            assert (about["dtype"], end - start) == (_kind(tensor), len(place)), name
            file.seek(8 + size + start)
            file.readinto(place.data)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def copy_from(tensors: Mapping[str, Tensor], name: str, tensor: Tensor) -> None:
    """Give a tensor the numbers of one of these."""
    if isinstance(tensors, StoredTensors):
        tensors.read_into(name, tensor)
    else:
        tensor.copy_(tensors[name])


def _kind(tensor: Tensor | NDArray[Any]) -> str:
    return _NAMES[str(tensor.dtype).removeprefix("torch.")]


def _bytes(tensor: Tensor | NDArray[Any]) -> NDArray[np.uint8]:
    """The numbers as bytes; not a copy where they are contiguous in the memory of the processor."""
    if isinstance(tensor, np.ndarray):
        return np.ascontiguousarray(tensor).reshape(-1).view(np.uint8)
    import torch

    flat: NDArray[np.uint8] = tensor.detach().contiguous().cpu().reshape(-1).view(torch.uint8).numpy()
    return flat


def _blocks(tensor: Tensor | NDArray[Any]) -> list[memoryview]:
    flat = _bytes(tensor)
    return [flat[start : start + _BYTES_AT_ONCE].data for start in range(0, len(flat), _BYTES_AT_ONCE)]
