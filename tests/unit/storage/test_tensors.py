import pytest
import torch
from safetensors.torch import load_file, save_file

from unidex.storage import tensors as stored
from unidex.storage.tensors import StoredTensors, copy_from, save_tensors


def test_the_file_is_the_one_that_safetensors_writes(tmp_path, monkeypatch):
    monkeypatch.setattr(stored, "_BYTES_AT_ONCE", 64)
    torch.manual_seed(0)
    given = {
        "weight": torch.randn(7, 5),
        "bías": torch.randn(3).to(torch.bfloat16),
        "numbers": torch.arange(11),
        "flags": torch.tensor([True, False]),
        "half": torch.randn(4, 2).half(),
        "one": torch.tensor(2.5),
        "none": torch.empty(0, 4),
        "turned": torch.randn(4, 6).T,
    }
    save_tensors(given, tmp_path / "ours")
    save_file({name: tensor.contiguous() for name, tensor in given.items()}, tmp_path / "theirs")
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
    read = load_file(tmp_path / "ours")
    assert all(torch.equal(read[name], tensor) for name, tensor in given.items())


def test_a_stored_tensor_is_read_into_the_memory_of_another(tmp_path):
    given = {"a": torch.randn(3, 4), "b": torch.arange(5), "c": torch.randn(2, 3).half()}
    save_tensors(given, tmp_path / "file")
    found = StoredTensors(tmp_path / "file", {name.upper(): name for name in given})
    for name, tensor in given.items():
        place = torch.zeros_like(tensor)
        copy_from(found, name.upper(), place)
        assert torch.equal(place, tensor)
        copy_from(given, name, place)
        assert torch.equal(place, tensor)
    turned = torch.zeros(4, 3).T
    copy_from(found, "A", turned)
    assert torch.equal(turned, given["a"])
    with pytest.raises(AssertionError):
        copy_from(found, "A", torch.zeros(3, 5))
