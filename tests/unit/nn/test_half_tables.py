"""Row tables of float16: rounding at random, the room they take, and steps that compute in float32."""

import pytest
import torch

from unidex.config import Loss
from unidex.losses import HeadLoss, Targets
from unidex.nn.row_table import RowAdagrad, RowAdam, RowSGD, RowTable, rounded_at_random

VALUES = [0.1, -0.1, 1.0003, -3.7, 1e-3, 5.1e-5, -2e-6, 3e-8, 900.3, 1 - 2**-13]


@pytest.mark.parametrize("value", VALUES)
def test_the_mean_of_many_roundings_is_the_value(value):
    torch.manual_seed(0)
    number = 200_000
    values = torch.full((number,), value)
    found = rounded_at_random(values)
    assert found.dtype == torch.float16
    neighbours = found.unique().float()
    # Both neighbours come up, and no number between them is one of float16.
    assert len(neighbours) == 2
    below, above = neighbours.double().tolist()
    assert below < float(values[0]) < above
    assert torch.nextafter(neighbours[0].half(), torch.tensor(torch.inf, dtype=torch.float16)).float() == neighbours[1]
    share = (float(values[0]) - below) / (above - below)
    error = (above - below) * (share * (1 - share) / number) ** 0.5
    assert abs(float(found.double().mean()) - float(values[0])) < 5 * error + (above - below) * 2**-11


def test_numbers_of_float16_stay_and_large_ones_do_not_become_infinite():
    every = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(torch.float16)
    finite = every[every.isfinite()]
    for _ in range(20):
        assert torch.equal(rounded_at_random(finite.float()), finite)
    assert rounded_at_random(torch.tensor([1e6, -1e6])).tolist() == [65504.0, -65504.0]


def test_changes_below_the_distance_of_two_numbers_add_up():
    """Rounded to the nearest number, a thousand of them would change nothing."""
    torch.manual_seed(0)
    table, ids = RowTable(torch.ones(1, 4000, dtype=torch.float16)), torch.tensor([0])
    for _ in range(1000):
        table.subtract(ids, torch.full((1, 4000), 1e-5))
    assert float(table.weight.double().mean()) == pytest.approx(0.99, abs=3e-4)


@pytest.mark.parametrize(("kind", "numbers"), [(RowAdam, 9), (RowAdagrad, 1), (RowSGD, 4)])
def test_a_table_takes_half_the_room_and_its_state_is_float32(kind, numbers, tmp_path):
    half = RowTable.mapped(tmp_path / "half", 100, 4, torch.float16)
    assert (tmp_path / "half").stat().st_size == 100 * 4 * 2
    for table in (half, RowTable(half.weight.clone())):
        state = kind(table).state().values()
        assert {tensor.dtype for tensor in state} == {torch.float32}
        assert sum(tensor.shape[1] for tensor in state) == numbers


@pytest.mark.parametrize("kind", [RowAdam, RowAdagrad, RowSGD])
def test_steps_are_those_of_float32_but_for_rounding(kind):
    torch.manual_seed(3)
    start, ids = torch.randn(20, 8).half(), torch.tensor([2, 5, 19])
    tables = [RowTable(start.clone()), RowTable(start.float())]
    for optimiser in [kind(table, decay=0.1, has_bias=True) for table in tables]:
        gradients = torch.Generator().manual_seed(4)
        for _ in range(10):
            rows = optimiser.table.gather(ids)
            assert rows.dtype == torch.float32
            (rows * torch.randn(3, 8, generator=gradients)).sum().backward()
            optimiser.step(ids, rows, lr=0.01)
    torch.testing.assert_close(tables[0].weight.float(), tables[1].weight, rtol=0, atol=0.02)
    untouched = torch.tensor([row for row in range(20) if row not in ids.tolist()])
    assert torch.equal(tables[0].weight[untouched], start[untouched])


def test_a_loss_over_all_labels_reads_them_in_float32():
    torch.manual_seed(5)
    texts, labels = torch.randn(6, 8), torch.randn(50, 8).half()
    targets, scale = Targets.of([0, 1, 5], [4, 0, 49], shape=(6, 50)), torch.tensor(2.0)
    for name in ("decoupled-softmax", "supcon", "bce", "soft-top-k"):
        loss = HeadLoss.of(name, Loss())
        found, wanted = (loss.blocked(texts, some, scale, targets, block_size=7) for some in (labels, labels.float()))
        for one, other in zip(found, wanted, strict=True):
            assert one.dtype == torch.float32
            assert torch.equal(one, other), name
