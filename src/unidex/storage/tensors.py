"""Tensors in a safetensors file, written one after the other: the file is never in memory as a whole."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
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
        kind = _NAMES[str(tensor.dtype).removeprefix("torch.")]
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with file.open("wb") as out:
        out.write(len(text).to_bytes(8, "little"))
        out.write(text)
        for _, tensor in ordered:
            for block in _blocks(tensor):
                out.write(block)


def _blocks(tensor: Tensor | NDArray[Any]) -> list[memoryview]:
    if isinstance(tensor, np.ndarray):
        flat = np.ascontiguousarray(tensor).reshape(-1).view(np.uint8)
    else:
        import torch

        flat = tensor.detach().contiguous().cpu().reshape(-1).view(torch.uint8).numpy()
    return [flat[start : start + _BYTES_AT_ONCE].data for start in range(0, len(flat), _BYTES_AT_ONCE)]
