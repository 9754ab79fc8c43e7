"""Arrays that are collected in pieces: the same in memory and in a file."""

import numpy as np
import pytest

from unidex.data.text_packer import Packer
from unidex.data.texts import Texts
from unidex.storage import spilled_array
from unidex.storage.spilled_array import SpilledArray


@pytest.mark.parametrize("bound", [0, 100, 1 << 20])
def test_pieces_are_one_array_wherever_they_are(bound, monkeypatch):
    monkeypatch.setattr(spilled_array, "LARGE", bound)
    pieces = [np.arange(size) for size in (0, 7, 0, 30, 1)]
    numbers = SpilledArray(np.int32)
    for piece in pieces:
        numbers.append(piece)
    found = numbers.array()
    assert found.tolist() == np.concatenate(pieces).tolist()
    assert isinstance(found, np.memmap) == (bound < 38 * 4)
    numbers.append(np.array([5]))
    assert numbers.array()[-2:].tolist() == [0, 5]


def test_texts_in_files_are_the_same(monkeypatch):
    packers = [Packer(), Packer()]
    for packer, bound in zip(packers, (1 << 20, 10), strict=True):
        monkeypatch.setattr(spilled_array, "LARGE", bound)
        packer.add(["größe", "", "hat"])
        packer.add_pairs(["Hut", "", "Schuh"], ["blau", "schlicht", ""])
        packer.add(["z"])
    in_memory, in_files = (Texts.packed(packer) for packer in packers)
    assert not in_memory.is_mapped
    assert in_files.is_mapped
    assert list(in_files.fields()) == list(in_memory.fields())
    assert list(in_files) == ["größe", "", "hat", "Hut blau", "schlicht", "Schuh", "z"]
