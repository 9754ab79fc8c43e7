"""Hashes of the files of a model folder: of large files, the size and parts all over the file."""

import hashlib

import pytest

from unidex.model import folder


@pytest.fixture(autouse=True)
def _large_files_are_small(monkeypatch):
    monkeypatch.setattr(folder, "HASHED_WHOLE", 100)
    monkeypatch.setattr(folder, "NUM_PARTS", 4)
    monkeypatch.setattr(folder, "PART_SIZE", 10)


def test_a_large_file_is_known_by_its_size_and_by_parts_from_its_first_byte_to_its_last(tmp_path):
    file, content = tmp_path / "large", bytes(range(130))
    file.write_bytes(content)
    before = folder._hash(file)
    assert before.startswith("parts:")
    changed = {}
    for at in (0, 25, 45, 85, 129):
        file.write_bytes(content[:at] + b"\xff" + content[at + 1 :])
        changed[at] = folder._hash(file) != before
    # Parts start at 0, 40, 80 and 120; what lies between them is not read.
    assert changed == {0: True, 25: False, 45: True, 85: True, 129: True}
    file.write_bytes(content[:-1])
    assert folder._hash(file) != before


def test_a_file_that_is_not_large_is_hashed_whole(tmp_path):
    file = tmp_path / "small"
    file.write_bytes(bytes(100))
    assert len(folder._hash(file)) == 64


def test_a_hash_of_an_earlier_version_is_made_in_its_form(tmp_path):
    file, content = tmp_path / "large", bytes(range(130))
    file.write_bytes(content)
    whole = hashlib.sha256(content).hexdigest()
    assert folder._hash(file, whole) == whole
    parts = folder._hash(file)
    assert folder._hash(file, parts) == parts
    file.write_bytes(content[:5])
    assert folder._hash(file, parts) != parts
