"""Saved arrays, read into memory or mapped from the disk, with their shape and type checked."""

from __future__ import annotations

import math
import mmap
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from unidex.errors import ModelError

if TYPE_CHECKING:
    from torch import Tensor

Shape = tuple[int | None, ...]
Type = type[np.generic] | None
Mode = Literal["r", "c"] | None
_MAX_HEADER = 128  # bytes of a saved array before its numbers
_maps: ContextVar[bool] = ContextVar("maps", default=True)


@contextmanager
def in_memory() -> Iterator[None]:
    """Read files whole in this block instead of mapping them.

    The system kills a process that reads a mapped file beyond an end that another process has moved. A command can
    be started again; a service must survive it.
    """
    token = _maps.set(False)
    try:
        yield
    finally:
        _maps.reset(token)


def reserve(file: Path) -> None:
    """Take the disk that a file will need, up to its size: a full disk is an error here.

    Later, the system would kill a process that writes to a page of a mapped file for which there is no room.
    """
    if hasattr(os, "posix_fallocate") and file.stat().st_size:
        descriptor = os.open(file, os.O_RDWR)
        try:
            os.posix_fallocate(descriptor, 0, file.stat().st_size)
        finally:
            os.close(descriptor)


def map_privately(file: Path) -> NDArray[Any]:
    """An array that ``numpy.save`` wrote, mapped copy-on-write: it may be written to, and the file stays as it is.

    The system reserves no memory for it. numpy's own mode "c" lets it reserve as much as the file has bytes, which it
    refuses for a file that is larger than the memory of the machine.
    """
    saved: NDArray[Any] = np.load(file, mmap_mode="r", allow_pickle=False)
    if not isinstance(saved, np.memmap) or not saved.size or not hasattr(mmap, "MAP_PRIVATE"):
        plain: NDArray[Any] = np.load(file, mmap_mode="c", allow_pickle=False)
        return plain
    with file.open("rb") as opened:
        size, protection = saved.offset + saved.nbytes, mmap.PROT_READ | mmap.PROT_WRITE
        pages = mmap.mmap(opened.fileno(), size, flags=mmap.MAP_PRIVATE | _NO_RESERVE, prot=protection)
    order: Literal["C", "F"] = "C" if saved.flags.c_contiguous else "F"
    return np.ndarray(saved.shape, saved.dtype, buffer=pages, offset=saved.offset, order=order)


def expect_random_reads(array: NDArray[Any]) -> None:
    """Tell the system that rows of an array of `map_privately` are read here and there.

    Otherwise it reads 32 pages where one is asked for, which are in the way if the file is larger than memory.
    """
    if isinstance(array.base, mmap.mmap) and hasattr(mmap, "MADV_RANDOM"):
        array.base.madvise(mmap.MADV_RANDOM)


def fetch_rows(array: NDArray[Any], rows: NDArray[np.int64]) -> None:
    """Start to read rows of an array of `map_privately` that are needed next: at once, not one after the other.

    It costs a microsecond per row, and saves nothing where the file is in memory anyway.
    """
    pages = array.base
    if not isinstance(pages, mmap.mmap) or not hasattr(mmap, "MADV_WILLNEED") or not len(rows):
        return
    row_bytes, before = array.strides[0], len(pages) - array.nbytes
    firsts = (before + rows * row_bytes) // mmap.PAGESIZE * mmap.PAGESIZE
    num_bytes = row_bytes + mmap.PAGESIZE
    for first in np.unique(firsts).tolist():
        pages.madvise(mmap.MADV_WILLNEED, first, num_bytes)


def fetch_spans(array: NDArray[Any], starts: NDArray[np.integer[Any]], ends: NDArray[np.integer[Any]]) -> None:
    """Start to read parts of a mapped array of one dimension, and no more than these.

    Where a page is read because it is asked for, the system reads 31 others beside it. Of short parts all over a file
    that is larger than memory, that is a hundred times what is needed.
    """
    pages: Any = array
    while isinstance(pages, np.ndarray):
        pages = pages.base
    if not isinstance(pages, mmap.mmap) or not hasattr(mmap, "MADV_WILLNEED"):
        return
    before = array.ctypes.data - np.frombuffer(pages, dtype=np.uint8).ctypes.data
    for first, end in page_ranges(before + starts * array.itemsize, before + ends * array.itemsize):
        pages.madvise(mmap.MADV_WILLNEED, first, end - first)


def page_ranges(
    starts: NDArray[np.integer[Any]], ends: NDArray[np.integer[Any]], page: int = mmap.PAGESIZE
) -> list[tuple[int, int]]:
    """The whole pages of parts of a file, ascending and without overlaps, as bytes from and to.

    >>> page_ranges(np.array([9000, 0, 4000, 50]), np.array([9000, 10, 4200, 60]), 4096)
    [(0, 8192)]
    >>> page_ranges(np.array([0, 40_000]), np.array([10, 50_000]), 4096)
    [(0, 4096), (36864, 53248)]
    """
    has_bytes = ends > starts
    firsts, lasts = starts[has_bytes] // page * page, -(-ends[has_bytes] // page) * page
    order = np.argsort(firsts, kind="stable")
    firsts, reached = firsts[order], np.maximum.accumulate(lasts[order])
    # A range ends where the next part starts behind all parts before it.
    breaks = np.flatnonzero(firsts[1:] > reached[:-1])
    begins, ends_of = np.append(firsts[:1], firsts[breaks + 1]), np.append(reached[breaks], reached[-1:])
    return list(zip(begins.tolist(), ends_of.tolist(), strict=True))


# Python names the flag from 3.13 on.
_NO_RESERVE = 0x4000 if sys.platform == "linux" else 0


def load_tensors(file: Path, device: str = "cpu") -> dict[str, Tensor]:
    """The tensors of a safetensors file, mapped from the disk except `in_memory`."""
    # Later: data sets are read without torch.
    from safetensors.torch import load, load_file

    if _maps.get():
        return load_file(file, device=device)
    return {name: tensor.to(device) for name, tensor in load(file.read_bytes()).items()}


def load_arrays(file: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a safetensors file, in memory."""
    from safetensors.numpy import load

    return load(file.read_bytes())


def load_array(
    file: Path, shape: Shape, dtype: Type = None, *, mapped: bool | Literal["always"] = False
) -> NDArray[Any]:
    """Load an array of a model folder that ``numpy.save`` wrote; None in the expected shape is any length.

    A mapped array is copy-on-write, because torch warns of read-only arrays. One that may be larger than memory is
    mapped always, also `in_memory`.
    """
    try:
        return read_array(file, shape, dtype, "c" if mapped else None, always=mapped == "always")
    except ValueError as error:
        raise ModelError(f"{file}: {error}; copy the model again, or build it again") from None


def map_array(file: Path, shape: Shape, dtype: Type = None) -> NDArray[Any]:
    """Map an array of a model folder, always; one without numbers cannot be mapped, and is read."""
    has_numbers = file.is_file() and file.stat().st_size > _MAX_HEADER
    return load_array(file, shape, dtype, mapped="always" if has_numbers else False)


def new_array(file: Path, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """An array of zeros in a new file that ``numpy.load`` reads; what is written to it goes to the file.

    The disk that it needs is taken at once.
    """
    if not math.prod(shape):
        np.save(file, np.empty(shape, dtype=dtype))
        return np.empty(shape, dtype=dtype)
    array: NDArray[Any] = np.lib.format.open_memmap(file, mode="w+", dtype=np.dtype(dtype), shape=shape)
    reserve(file)
    return array


def link_file(source: Path, target: Path) -> None:
    """The same file under another name, or a copy on another disk; for files that nobody writes to any more."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def read_array(
    file: Path, shape: Shape, dtype: Type = None, mode: Mode = None, *, always: bool = False
) -> NDArray[Any]:
    """Read an array that ``numpy.save`` wrote, with ``mode`` mapped from the disk.

    If it is missing, damaged or another array, a ValueError says so without the name of the file.
    """
    maps = mode is not None and (always or _maps.get())
    try:
        array = np.load(file, mmap_mode="r" if maps else None, allow_pickle=False)
        if maps and mode == "c":
            array = map_privately(file)
    # A damaged header raises almost any error.
    except Exception as error:
        raise ValueError(f"a saved array cannot be read ({error})") from None
    if not isinstance(array, np.ndarray):
        array.close()
        raise ValueError("a saved array must be here, but this is an archive")
    is_shape = array.ndim == len(shape) and all(w in (None, n) for w, n in zip(shape, array.shape, strict=True))
    if not is_shape or (dtype is not None and array.dtype != dtype):
        kind = "" if dtype is None else f" and type {np.dtype(dtype)}"
        sizes = " x ".join("any length" if length is None else str(length) for length in shape)
        raise ValueError(
            f"a saved array must have shape {sizes}{kind}, but has {' x '.join(map(str, array.shape))} of {array.dtype}"
        )
    return array
