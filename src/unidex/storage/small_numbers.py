"""Numbers in a file as small as they are: counts, places, ids, sorted hashes, scales of few digits.

They are written as they are or as differences, whichever is smaller. The lowest bytes of all numbers come first, then
the next ones: many are 0, or repeat, and are compressed; bytes that do not get smaller are written as they are. Numbers
of one byte are codes of vectors, where nothing repeats: frequent ones are written shorter.

The file has the length of a header as eight bytes, the header as JSON, and the bytes.
"""

from __future__ import annotations

import json
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unidex.errors import ModelError
from unidex.storage.huffman import compress, decompress
from unidex.storage.mapped import load_array

# So many numbers and more are written by numpy.save, so that they can be mapped.
MAPPED_FROM = 1 << 24
_SUFFIX = ".numbers"


def save_numbers(file: Path, values: NDArray[np.number[Any]]) -> None:
    """Write numbers under this name with a suffix; very many of them as ``numpy.save`` does."""
    if values.size >= MAPPED_FROM:
        np.save(_old(file), values)
        return
    flat = np.ascontiguousarray(values).reshape(-1).view(_unsigned(values.dtype))
    forms = {False: _parts(flat)}
    if flat.itemsize > 1:
        forms[True] = _parts(np.diff(flat, prepend=flat.dtype.type(0)))
    is_difference = min(forms, key=lambda form: sum(map(len, forms[form])))
    parts = forms[is_difference]
    about = {"type": values.dtype.name, "shape": values.shape, "differences": is_difference}
    header = json.dumps(about | {"sizes": [len(part) for part in parts]}).encode()
    _new(file).write_bytes(b"".join([len(header).to_bytes(8, "little"), header, *parts]))


def load_numbers(
    file: Path, shape: tuple[int | None, ...], dtype: type[np.number[Any]], *, mapped: bool = False
) -> NDArray[Any]:
    """Read what ``save_numbers`` wrote, or ``numpy.save`` in folders of earlier versions, of this type and shape."""
    new = _new(file)
    if not new.is_file():
        return load_array(_old(file), shape, dtype, mapped=mapped)
    try:
        values = _decoded(new.read_bytes(), np.dtype(dtype))
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError, zlib.error, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ModelError(f"{new}: numbers must be here, but cannot be read ({reason}); copy it again") from None
    fits = values.ndim == len(shape) and all(w in (None, n) for w, n in zip(shape, values.shape, strict=True))
    if not fits:
        wanted = " x ".join("any length" if length is None else str(length) for length in shape)
        found = " x ".join(map(str, values.shape))
        raise ModelError(f"{new}: there must be {wanted} numbers, but there are {found}; copy the model again")
    return values


def has_numbers(file: Path) -> bool:
    """Whether there are numbers of this name."""
    return _new(file).is_file() or _old(file).is_file()


def _decoded(content: bytes, dtype: np.dtype[Any]) -> NDArray[Any]:
    end = 8 + int.from_bytes(content[:8], "little")
    about = json.loads(content[8:end])
    shape = tuple(about["shape"])
    if about["type"] != dtype.name:
        raise ValueError(f"they are of type {about['type']}, not {dtype.name}")
    if not all(isinstance(length, int) and 0 <= length < MAPPED_FROM for length in shape):
        raise ValueError(f"their shape is {shape}")
    number = math.prod(shape)
    if number >= MAPPED_FROM or len(about["sizes"]) != dtype.itemsize:
        raise ValueError(f"they are {number}, in {len(about['sizes'])} parts")
    planes = np.empty((number, dtype.itemsize), dtype=np.uint8)
    for place, size in enumerate(about["sizes"]):
        part = content[end : end + size]
        end += size
        planes[:, place] = np.frombuffer(part, dtype=np.uint8) if len(part) == number else decompress(part, number)
    unsigned = _unsigned(dtype)
    values = planes.view(unsigned.newbyteorder("<")).reshape(number).astype(unsigned, copy=False)
    if about["differences"]:
        values = np.cumsum(values, dtype=unsigned)
    return values.view(dtype).reshape(shape)


def _unsigned(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The whole numbers of as many bytes, whose differences and sums are exact."""
    return np.dtype(f"u{dtype.itemsize}")


def _parts(flat: NDArray[Any]) -> list[bytes]:
    """The bytes of the numbers, the lowest of all first; compressed, or as they are where that is no smaller."""
    planes = flat.astype(flat.dtype.newbyteorder("<"), copy=False).view(np.uint8).reshape(len(flat), flat.itemsize)
    found = []
    for place in range(flat.itemsize):
        plain = np.ascontiguousarray(planes[:, place]).tobytes()
        packed = compress(plain) if flat.itemsize == 1 else zlib.compress(plain, 1)
        found.append(packed if len(packed) < len(plain) else plain)
    return found


def _new(file: Path) -> Path:
    return file.with_name(f"{file.name}{_SUFFIX}")


def _old(file: Path) -> Path:
    return file.with_name(f"{file.name}.npy")
