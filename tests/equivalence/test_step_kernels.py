"""The kernels of a training step compute what torch and SciPy compute, bit for bit, and refuse other arrays."""

import numpy as np
import pytest
import torch
from scipy import sparse

from unidex import native
from unidex.nn.row_table import RowAdagrad, RowTable
from unidex.nn.sparse_product import used_columns

pytestmark = pytest.mark.skipif(native.kernels is None, reason="the kernels are not compiled")


def without_kernels(monkeypatch, compute):
    with monkeypatch.context() as patch:
        patch.setattr(native, "kernels", None)
        return compute()


@pytest.mark.parametrize("shape", [(7, 40), (1, 3), (5, 1), (0, 4), (3, 0)])
def test_used_columns(shape, monkeypatch):
    rng = np.random.default_rng(3)
    rows = sparse.csr_array(sparse.random(*shape, 0.3, "csr", dtype=np.float32, random_state=rng))
    rows.indices = rows.indices.astype(np.int32)
    rows.indptr = rows.indptr.astype(np.int32)
    ids, transposed = used_columns(rows)
    slow_ids, slow = without_kernels(monkeypatch, lambda: used_columns(rows))
    np.testing.assert_array_equal(ids, slow_ids)
    assert transposed.shape == slow.shape == (len(ids), shape[0])
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(transposed, name), getattr(slow, name))


# Fewer numbers than lanes, a whole number of lanes, and some more.
@pytest.mark.parametrize("dim", [1, 5, 16, 128, 131])
@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_adagrad(dim, decay, monkeypatch):
    generator = torch.Generator().manual_seed(1)
    start = torch.randn(50, dim, generator=generator)
    steps = [
        (torch.randperm(50, generator=generator)[:20], torch.randn(20, dim, generator=generator)) for _ in range(4)
    ]

    def moved():
        optimiser = RowAdagrad(RowTable(start.clone()), decay=decay)
        for ids, gradient in steps:
            rows = optimiser.table.gather(ids)
            rows.grad = gradient.clone()
            optimiser.step(ids, rows, 0.1)
        return optimiser.table.weight, optimiser.sum

    for fast, slow in zip(moved(), without_kernels(monkeypatch, moved), strict=True):
        assert not torch.equal(fast, start[:, :1])
        assert torch.equal(fast, slow)


def adagrad_arrays():
    sums, table = np.zeros(4, np.float32), np.ones((4, 3), np.float32)
    return [np.ones(1, np.float32), np.array([0, 2]), np.ones((2, 3), np.float32), sums, table, 3]


@pytest.mark.parametrize(
    ("place", "wrong"),
    [
        (0, np.ones(2, np.float32)),
        (1, np.array([0])),
        (1, np.array([0, 4])),
        (1, np.array([-1, 0])),
        (2, np.ones((2, 2), np.float32)),
        (3, np.zeros(5, np.float32)),
        (4, np.ones((3, 3), np.float32)),
        (5, 0),
        (5, 2),
    ],
)
def test_adagrad_refuses_arrays_that_do_not_fit(place, wrong):
    arrays = adagrad_arrays()
    native.kernels.adagrad_rows(*arrays)
    assert arrays[4][0, 0] != 1
    before = arrays[4].copy()
    with pytest.raises(ValueError, match=r"arrays?"):
        native.kernels.adagrad_rows(*arrays[:place], wrong, *arrays[place + 1 :])
    np.testing.assert_array_equal(arrays[4], before)


def used_columns_arrays():
    rows = sparse.csr_array(np.array([[0, 2, 0], [1, 0, 3]], dtype=np.float32))
    ids, starts = np.empty(3, np.int64), np.empty(4, np.int32)
    return [*native.arrays_of(rows), ids, np.empty(3, np.float32), np.empty(3, np.int32), starts, 3]


@pytest.mark.parametrize(
    ("place", "wrong"),
    [
        (1, np.array([1, 0, 3], np.int32)),
        (1, np.array([1, 0, -1], np.int32)),
        (2, np.array([0, 1, 4], np.int32)),
        (2, np.array([0, 1, 2], np.int32)),
        (3, np.empty(2, np.int64)),
        (4, np.empty(2, np.float32)),
        (5, np.empty(4, np.int32)),
        (6, np.empty(3, np.int32)),
        (7, -1),
        (7, 2),
    ],
)
def test_used_columns_refuses_arrays_that_do_not_fit(place, wrong):
    arrays = used_columns_arrays()
    assert native.kernels.used_columns(*arrays) == 3
    with pytest.raises(ValueError, match=r"arrays?"):
        native.kernels.used_columns(*arrays[:place], wrong, *arrays[place + 1 :])
