import torch
from safetensors.torch import load_file, save_file

from unidex.storage import tensors as stored
from unidex.storage.tensors import save_tensors


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
