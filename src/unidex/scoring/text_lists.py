"""Lists of very many training texts in files that are mapped: nothing of them is read before a search asks for it.

The codes in lists are in the files of `unidex.index.mapped_lists`, and the codes of 8 bits that rank candidates in
``ranking.faiss``, which faiss itself can map.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from unidex.index.faiss_library import library, reading
from unidex.index.mapped_lists import BLOCK, BLOCKS, LISTS, SIZES, open_lists
from unidex.storage.disk_errors import writing
from unidex.storage.mapped import link_file

_RANKING = "ranking.faiss"
_FILES = (LISTS, SIZES, BLOCKS, _RANKING)


class TextLists:
    """Lists and codes of a folder.

    Attributes:
        index: what faiss searches.
    """

    def __init__(self, folder: Path) -> None:
        faiss = library()
        # faiss keeps no reference to these from Python.
        lists, self._mapped = open_lists(folder)
        with reading(folder / _RANKING):
            ranking = faiss.read_index(str(folder / _RANKING), faiss.IO_FLAG_MMAP_IFC)
        self._parts, self._folder = (lists, ranking), folder
        self.index = faiss.IndexRefine(lists, ranking)

    @staticmethod
    def are_in(folder: Path) -> bool:
        """Whether a folder has the files."""
        return (folder / _RANKING).exists()

    def link(self, folder: Path) -> None:
        """The same files in another folder."""
        for name in _FILES:
            link_file(self._folder / name, folder / name)

    def in_memory(self) -> Any:
        """The same index in memory, to which texts can be added."""
        faiss, mapped = library(), self._parts[0].invlists
        # Read anew: these lists are still searched, perhaps.
        lists, ranking = (faiss.read_index(str(self._folder / name)) for name in (LISTS, _RANKING))
        blocks = faiss.downcast_InvertedLists(lists.invlists)
        for number in range(lists.nlist):
            if size := mapped.list_size(number):
                blocks.add_entries(number, size, mapped.get_ids(number), mapped.get_codes(number))
        lists.ntotal = self._parts[0].ntotal
        found = faiss.IndexRefine(lists, ranking)
        found.own_fields = found.own_refine_index = True
        for part in (lists, ranking):
            part.this.disown()
        return found


def write_text_lists(folder: Path, index: Any) -> None:
    """Write an index in memory."""
    faiss = library()
    lists = faiss.downcast_index(index.base_index)
    blocks = faiss.downcast_InvertedLists(lists.invlists)
    sizes = np.array([blocks.list_size(number) for number in range(lists.nlist)], dtype=np.int64)
    with writing(folder / BLOCKS), (folder / BLOCKS).open("wb") as file:
        for number, size in enumerate(sizes.tolist()):
            room = size + -size % BLOCK
            if size:
                file.write(faiss.rev_swig_ptr(blocks.get_codes(number), room * lists.code_size).data)
                ids = faiss.rev_swig_ptr(blocks.get_ids(number), size)
                file.write(np.pad(ids, (0, room - size)).astype("<i8", copy=False).data)
    with writing(folder / LISTS):
        np.save(folder / SIZES, sizes)
        # With empty lists: the others are in their own file.
        empty = faiss.BlockInvertedLists(lists.nlist, BLOCK, BLOCK * lists.code_size)
        lists.own_invlists, lists.invlists = False, empty
        try:
            faiss.write_index(lists, str(folder / LISTS))
        finally:
            lists.invlists, lists.own_invlists = blocks, True
        faiss.write_index(index.refine_index, str(folder / _RANKING))
