"""The tensors at the end of a run, from its last checkpoint."""

import torch

from unidex.training import checkpoint


def test_the_best_network_takes_the_place_of_the_last(tmp_path):
    last, best, rows = torch.zeros(3), torch.ones(3), torch.arange(4.0)
    tensors = {"table.a": last, "best.table.a": best, "optimiser.a": rows}
    checkpoint.save(tmp_path, 7, tensors, {}, checkpoint.Shards())
    found = checkpoint.best_tensors(checkpoint.newest(tmp_path), checkpoint.Shards())
    assert found["table.a"].tolist() == [1, 1, 1]
    assert found["optimiser.a"].tolist() == [0, 1, 2, 3]
    assert set(found) == {*tensors}
    assert len(found) == 3


def test_without_a_better_one_it_is_the_last(tmp_path):
    checkpoint.save(tmp_path, 7, {"table.a": torch.full((2,), 5.0)}, {}, checkpoint.Shards())
    found = checkpoint.best_tensors(checkpoint.newest(tmp_path), checkpoint.Shards())
    assert dict(found)["table.a"].tolist() == [5, 5]
