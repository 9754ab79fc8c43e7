"""Lists of codes that faiss searches in a mapped file: nothing of them is read before a search asks for it.

Three files stand for an index of faiss (IVF, product quantiser, fast scan):

- ``lists.faiss``: centres of the lists and codebooks, without the lists.
- ``list_sizes.npy``: labels per list.
- ``lists.bin``: per list its codes and its ids (int64), each with room for whole blocks of 32.

faiss itself writes such lists into its own file, which it can read into memory only. Indexes of earlier versions have
them there.

Shapes: L vectors, W bytes of a code, N vectors of a list.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unidex.errors import ModelError
from unidex.index.faiss_library import library, reading
from unidex.storage.atomic import sync
from unidex.storage.disk_errors import writing
from unidex.storage.mapped import load_array

LISTS, SIZES, BLOCKS = "lists.faiss", "list_sizes.npy", "lists.bin"
BLOCK = 32  # codes that fast scan compares at a time
_ID_BYTES = 8
# The order in which a register holds the codes of half a block.
_ORDER = np.arange(BLOCK // 2).reshape(2, -1).T.ravel()


def write_lists(folder: Path, empty: Any, assigned_L: NDArray[np.int32], codes_LW: NDArray[np.uint8]) -> None:
    """Write ``lists.bin`` and ``list_sizes.npy``: the codes by list, in ascending order of id within a list."""
    sizes = np.bincount(assigned_L, minlength=empty.nlist)
    order = np.argsort(assigned_L, kind="stable")
    with writing(folder / BLOCKS):
        start = 0
        with (folder / BLOCKS).open("wb") as file:
            for size in sizes.tolist():
                ids = order[start : start + size]
                file.write(pack(codes_LW[ids]).data)
                file.write(np.pad(ids, (0, -size % BLOCK)).astype("<i8", copy=False).data)
                start += size
        sync(folder / BLOCKS)
    with writing(folder / SIZES):
        np.save(folder / SIZES, sizes)
        sync(folder / SIZES)


def pack(codes_NW: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Codes in the order of fast scan: of a block of 32, all first bytes, then all second ones.

    Half a byte is a piece of a code. Two codes share a byte: one of the first half of the block and its fellow in the
    second.

    >>> pack(np.array([[0x21], [0x43]], dtype=np.uint8))[[0, 2, 16, 18]].tolist()
    [1, 3, 2, 4]
    """
    number, width = codes_NW.shape
    blocks = np.pad(codes_NW, ((0, -number % BLOCK), (0, 0))).reshape(-1, 2, BLOCK // 2, width)[:, :, _ORDER]
    pieces = np.stack([blocks & 15, blocks >> 4])  # lower or upper half of a byte, block, half of it, code, byte
    joined = pieces[:, :, 0] | pieces[:, :, 1] << 4
    return np.ascontiguousarray(joined.transpose(1, 3, 0, 2)).reshape(-1)


def open_lists(folder: Path) -> tuple[Any, Any]:
    """The index of faiss, and what must live as long as it: its lists, of which it keeps no reference."""
    faiss = library()
    with reading(folder / LISTS):
        index = faiss.read_index(str(folder / LISTS), faiss.IO_FLAG_MMAP_IFC)
    if not (folder / SIZES).exists():
        return index, None
    sizes = load_array(folder / SIZES, (index.nlist,), np.int64)
    rooms = sizes + -sizes % BLOCK
    num_bytes = rooms * (index.code_size + _ID_BYTES)
    # faiss maps as much as it is told: the system would end the process that reads beyond the end of the file.
    wanted, file = int(num_bytes.sum()), folder / BLOCKS
    found = file.stat().st_size if file.is_file() else 0
    if sizes.min(initial=0) < 0 or wanted != found:
        raise ModelError(
            f"{file} must have {wanted} bytes as {SIZES} says, but has {found}; copy the model again, or build the "
            "index again"
        )
    lists = faiss.OnDiskInvertedLists(index.nlist, index.code_size, str(file))
    # Its threads, which read lists ahead, cost more than they save where the file is in memory.
    lists.read_only, lists.totsize, lists.prefetch_nthread = True, wanted, 0
    lists.lists.clear()
    entry = faiss.OnDiskOneList()
    for entry.size, entry.capacity, entry.offset in zip(
        sizes.tolist(), rooms.tolist(), (np.cumsum(num_bytes) - num_bytes).tolist(), strict=True
    ):
        lists.lists.push_back(entry)
    with reading(file):
        lists.do_mmap()
    index.replace_invlists(lists, False)
    index.ntotal = int(sizes.sum())
    return index, lists
