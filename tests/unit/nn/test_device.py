import pytest
import torch

from unidex.nn.device import seed_torch


def test_seeds_draw_what_torch_draws():
    drawn = []
    for seed in (seed_torch, torch.manual_seed):
        seed(2**62 + 3)
        drawn.append([torch.rand(5), torch.randperm(9), torch.nn.functional.dropout(torch.ones(20))])
        assert torch.initial_seed() == 2**62 + 3
    assert all(torch.equal(own, expected) for own, expected in zip(*drawn, strict=True))


@pytest.mark.skipif(torch.cuda.is_available(), reason="the GPU is in use")
def test_no_stack_is_described_for_devices_that_are_not_in_use(monkeypatch):
    """It took half a millisecond of every training step."""

    def describe(*_):
        raise AssertionError("a stack was described")

    monkeypatch.setattr("traceback.format_stack", describe)
    seed_torch(1)
