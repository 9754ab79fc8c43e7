"""Ids of labels by uid, without an object per label: sorted hashes find rows, whose uids are compared.

Shapes: L labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from unidex.data.growing_texts import GrowingTexts, Numbers
from unidex.storage.mapped import load_array

_MAX_DIGITS = 18
_HASHES, _ROWS = "uid_hashes.npy", "uid_rows.npy"


class UidTable:
    """Rows by uid; of rows with one uid, only one is not removed.

    >>> table = UidTable(GrowingTexts(["s", "h", "s"]))
    >>> table.rows_of(["h", "x", "s"], np.array([True, False, False])).tolist()
    [1, -1, 2]
    """

    def __init__(
        self,
        uids: GrowingTexts,
        hashes_L: NDArray[np.uint32] | None = None,
        rows_L: NDArray[np.int64] | None = None,
    ) -> None:
        self._uids = uids
        # Of packed uids that are not numbers; made where a uid is first looked up.
        self._hashes_L, self._rows_L = hashes_L, rows_L
        self._added: dict[str, list[int]] = {}
        self._note(len(uids.packed), uids.added)

    def of(self, uids: GrowingTexts) -> UidTable:
        """A table for another set of labels, which may grow by itself; packed uids that are the same share hashes."""
        is_same = uids.packed is self._uids.packed
        return UidTable(uids, *((self._hashes_L, self._rows_L) if is_same else ()))

    @classmethod
    def read(cls, folder: Path, uids: GrowingTexts) -> UidTable:
        """The table that ``write`` has written for these uids, mapped."""
        if isinstance(uids.packed, Numbers):
            return cls(uids)
        shape = (len(uids.packed),)
        hashes = load_array(folder / _HASHES, shape, np.uint32, mapped="always")
        return cls(uids, hashes, load_array(folder / _ROWS, shape, mapped="always"))

    @classmethod
    def write(cls, folder: Path, uids: Sequence[str]) -> None:
        """Write the table of uids; of numbers, nothing."""
        table = cls(GrowingTexts(uids))
        if not isinstance(table._uids.packed, Numbers):
            hashes_L, rows_L = table._sorted()
            np.save(folder / _HASHES, hashes_L)
            np.save(folder / _ROWS, rows_L)

    def add(self, first: int, uids: Sequence[str]) -> None:
        """Note uids that were appended; the first of them has this row."""
        self._note(first, uids)

    def _note(self, first: int, uids: Sequence[str]) -> None:
        for row, uid in enumerate(uids, first):
            self._added.setdefault(uid, []).append(row)

    def rows_of(self, uids: Sequence[str], removed_L: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The row of each uid that is not removed; -1 where there is none."""
        found = np.full(len(uids), -1, dtype=np.int64)
        for place, rows in enumerate(self._candidates(uids)):
            for row in (*rows, *self._added.get(uids[place], ())):
                if not removed_L[row] and self._uids[row] == uids[place]:
                    found[place] = row
        return found

    def _candidates(self, uids: Sequence[str]) -> list[Sequence[int]]:
        """Rows of packed uids that may be each of these."""
        packed = self._uids.packed
        if isinstance(packed, Numbers):
            numbers = [int(uid) if uid.isdecimal() and len(uid) <= _MAX_DIGITS else -1 for uid in uids]
            return [(number,) if 0 <= number < len(packed) else () for number in numbers]
        hashes_L, rows_L = self._sorted()
        asked = np.array([crc32(uid.encode("utf-8", "surrogatepass")) for uid in uids], dtype=np.uint32)
        starts, ends = (np.searchsorted(hashes_L, asked, side) for side in ("left", "right"))
        return [rows_L[start:end].tolist() for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]

    def _sorted(self) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        if self._hashes_L is None or self._rows_L is None:
            packed = self._uids.packed
            assert not isinstance(packed, Numbers)
            hashes_L = np.fromiter(map(crc32, packed.encoded()), dtype=np.uint32, count=len(packed))
            order = np.argsort(hashes_L, kind="stable")
            few = len(packed) <= np.iinfo(np.int32).max
            self._hashes_L, self._rows_L = hashes_L[order], order.astype(np.int32 if few else np.int64)
        return self._hashes_L, self._rows_L
