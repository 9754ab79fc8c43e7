"""Row tables and their optimisers against dense optimisers and hand-made steps."""

import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from unidex.nn.row_table import RowAdagrad, RowAdam, RowSGD, RowTable, Touched, merged
from unidex.storage.tensors import StoredTensors, save_tensors


def run(optimiser, ids, grads, lr=0.1):
    for grad in grads:
        rows = optimiser.table.gather(ids)
        (rows * grad).sum().backward()
        optimiser.step(ids, rows, lr)


def test_row_adam_equals_dense_adam_when_every_row_is_touched():
    torch.manual_seed(0)
    start = torch.randn(5, 3, dtype=torch.float64)
    grads = torch.randn(7, 5, 3, dtype=torch.float64)
    dense = torch.nn.Parameter(start.clone())
    reference = torch.optim.Adam([dense], lr=0.1)
    for grad in grads:
        reference.zero_grad()
        (dense * grad).sum().backward()
        reference.step()
    rows = RowAdam(RowTable(start.clone()))
    rows.times = rows.times.double()
    run(rows, torch.arange(5), grads)
    torch.testing.assert_close(rows.table.weight, dense.detach(), rtol=1e-10, atol=1e-10)


def test_row_adam_counts_steps_by_row():
    # A row touched for the first time moves by lr in each direction, however many steps others have made.
    optimiser = RowAdam(RowTable(torch.zeros(2, 2)))
    run(optimiser, torch.tensor([0]), torch.ones(9, 1, 2))
    before = optimiser.table.weight[0].clone()
    run(optimiser, torch.tensor([1]), torch.tensor([[[1.0, -2.0]]]))
    torch.testing.assert_close(optimiser.table.weight[1], torch.tensor([-0.1, 0.1]), rtol=1e-4, atol=0)
    assert torch.equal(optimiser.table.weight[0], before)


def test_row_sgd_equals_dense_sgd_with_momentum():
    torch.manual_seed(0)
    start = torch.randn(5, 3, dtype=torch.float64)
    grads = torch.randn(7, 5, 3, dtype=torch.float64)
    dense = torch.nn.Parameter(start.clone())
    reference = torch.optim.SGD([dense], lr=0.1, momentum=0.9)
    for grad in grads:
        reference.zero_grad()
        (dense * grad).sum().backward()
        reference.step()
    rows = RowSGD(RowTable(start.clone()))
    run(rows, torch.arange(5), grads)
    torch.testing.assert_close(rows.table.weight, dense.detach(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("kind", "reference"), [(RowAdam, torch.optim.AdamW), (RowSGD, torch.optim.SGD)])
def test_weight_decay_equals_that_of_torch_and_leaves_biases_alone(kind, reference):
    torch.manual_seed(0)
    start, grads = torch.randn(5, 4, dtype=torch.float64), torch.randn(7, 5, 4, dtype=torch.float64)
    decayed, bias = torch.nn.Parameter(start[:, :3].clone()), torch.nn.Parameter(start[:, 3:].clone())
    groups = [{"params": [decayed], "weight_decay": 0.3}, {"params": [bias], "weight_decay": 0.0}]
    dense = reference(groups, lr=0.1, **({"momentum": 0.9} if reference is torch.optim.SGD else {}))
    for grad in grads:
        dense.zero_grad()
        ((decayed * grad[:, :3]).sum() + (bias * grad[:, 3:]).sum()).backward()
        dense.step()
    rows = kind(RowTable(start.clone()), decay=0.3, has_bias=True)
    run(rows, torch.arange(5), grads)
    wanted = torch.cat([decayed.detach(), bias.detach()], dim=1)
    torch.testing.assert_close(rows.table.weight, wanted, rtol=1e-4, atol=1e-5)


def test_rows_used_by_several_parts_of_a_step_move_once_along_the_sum():
    torch.manual_seed(0)
    table, other = RowTable(torch.randn(6, 2)), RowTable(torch.randn(3, 2))
    uses = [(table, [4, 1]), (other, [0]), (table, [1, 5]), (table, [1])]
    parts = [Touched(owner, torch.tensor(ids), owner.gather(torch.tensor(ids))) for owner, ids in uses]
    for number, part in enumerate(parts):
        (part.rows * (number + 1)).sum().backward()
    found = {id(part.table): part for part in merged(parts)}
    assert len(found) == 2
    assert found[id(table)].ids.tolist() == [1, 4, 5]
    assert found[id(table)].rows.grad[:, 0].tolist() == [1.0 + 3.0 + 4.0, 1.0, 3.0]
    assert found[id(other)] is parts[1]
    before = table.weight.clone()
    RowSGD(table).step(found[id(table)].ids, found[id(table)].rows, lr=1.0)
    moved = torch.tensor([0.0, 8.0, 0.0, 0.0, 1.0, 3.0])[:, None].expand(6, 2)
    torch.testing.assert_close(before - table.weight, moved)


def test_row_adagrad_by_hand():
    # Gradient (3, 4): mean square 12.5; the second step adds 12.5 again.
    optimiser = RowAdagrad(RowTable(torch.zeros(1, 2, dtype=torch.float64)))
    optimiser.sum = optimiser.sum.double()
    run(optimiser, torch.tensor([0]), torch.tensor([[[3.0, 4.0]]] * 2, dtype=torch.float64), lr=1.0)
    moved = -(1 / 12.5**0.5 + 1 / 25**0.5)
    torch.testing.assert_close(optimiser.table.weight, torch.tensor([[3 * moved, 4 * moved]], dtype=torch.float64))
    assert optimiser.sum.item() == pytest.approx(25.0)


@pytest.mark.parametrize("kind", [RowAdam, RowAdagrad, RowSGD])
def test_only_the_rows_of_a_step_change(kind):
    start = torch.randn(6, 4)
    optimiser = kind(RowTable(start.clone()))
    run(optimiser, torch.tensor([4, 1]), torch.randn(3, 2, 4))
    changed = (optimiser.table.weight != start).any(dim=1)
    assert changed.tolist() == [False, True, False, False, True, False]


@pytest.mark.parametrize("kind", [RowAdam, RowAdagrad, RowSGD])
def test_a_restored_optimiser_state_continues_as_if_never_stopped(kind):
    torch.manual_seed(1)
    ids, grads = torch.tensor([0, 2]), torch.randn(6, 2, 4)
    unbroken = kind(RowTable(torch.ones(3, 4)))
    run(unbroken, ids, grads)
    first = kind(RowTable(torch.ones(3, 4)))
    run(first, ids, grads[:3])
    second = kind(RowTable(first.table.weight.clone()))
    second.load({name: value.clone() for name, value in first.state().items()})
    run(second, ids, grads[3:])
    assert torch.equal(second.table.weight, unbroken.table.weight)


@pytest.mark.parametrize("kind", [RowAdam, RowAdagrad, RowSGD])
def test_a_mapped_table_learns_like_one_in_memory(kind, tmp_path):
    torch.manual_seed(2)
    start, grads, ids = torch.randn(50, 3), torch.randn(4, 2, 3), torch.tensor([7, 49])
    mapped = RowTable.mapped(tmp_path / "table", 50, 3)
    mapped.weight.copy_(start)
    inside = RowTable(start.clone())
    run(kind(mapped), ids, grads)
    run(kind(inside), ids, grads)
    assert torch.equal(mapped.weight, inside.weight)
    again = RowTable.mapped(tmp_path / "table", 50, 3)
    assert torch.equal(again.weight, inside.weight)


@pytest.mark.skipif(sys.platform != "linux", reason="what the system knows of a map is told by Linux alone")
def test_tables_in_files_and_their_states_expect_rows_here_and_there(tmp_path):
    """Otherwise a write costs 16 times as much after the system has written the pages around it."""
    table = RowTable.mapped(tmp_path / "table", 50_000, 3)
    optimiser = RowSGD(table)
    maps = Path("/proc/self/smaps").read_text().split("VmFlags:")
    for name in ("table", "table.velocity"):
        flags = [after for before, after in pairwise(maps) if f"{tmp_path / name}\n" in before]
        assert flags, name
        assert all(" rr " in after.splitlines()[0] for after in flags), name
    assert optimiser.velocity.shape == (50_000, 3)


def test_one_number_per_row_stays_in_memory(tmp_path):
    """In a file, each row of a step would be a page of its own."""
    optimiser = RowAdagrad(RowTable.mapped(tmp_path / "table", 50, 3))
    assert optimiser.sum.shape == (50, 1)
    assert [file.name for file in tmp_path.iterdir()] == ["table"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_neighbouring_rows_of_a_file_are_those_of_the_table(dtype, tmp_path):
    table = RowTable.mapped(tmp_path / "table", 5_000, 3, dtype)
    table.weight.copy_(torch.arange(15_000).view(5_000, 3) / 16)
    for rows in (slice(None), slice(1_500, 3_000), slice(4_990, 6_000), slice(7, 7), slice(6_000, 7_000)):
        assert torch.equal(table.rows(rows), table.weight[rows].float())


def test_a_table_in_a_file_may_have_no_rows(tmp_path):
    table = RowTable.mapped(tmp_path / "table", 0, 3)
    assert table.weight.shape == (0, 3)
    assert table.rows(slice(None)).shape == (0, 3)


def test_grow_appends_rows():
    table = RowTable(torch.zeros(2, 3))
    table.grow(torch.ones(1, 3))
    assert table.weight.tolist() == [[0, 0, 0], [0, 0, 0], [1, 1, 1]]


def test_a_table_whose_memory_was_freed_takes_saved_rows(tmp_path):
    rows = torch.arange(6.0).view(3, 2)
    save_tensors({"a": rows, "b": rows + 1}, tmp_path / "saved")
    table = RowTable(rows.clone())
    for tensors in ({"a": rows, "b": rows + 1}, StoredTensors(tmp_path / "saved", {"a": "a", "b": "b"})):
        table.free()
        assert table.weight.numel() == 0
        table.load(tensors, "b")
        assert torch.equal(table.weight, rows + 1)
        # Its memory stays where it is.
        place = table.weight.data_ptr()
        table.load(tensors, "a")
        assert torch.equal(table.weight, rows)
        assert table.weight.data_ptr() == place


def test_a_table_in_a_file_is_not_freed(tmp_path):
    table = RowTable.mapped(tmp_path / "table", 2, 3)
    table.free()
    assert table.weight.shape == (2, 3)
