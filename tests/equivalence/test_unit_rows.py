"""Rows of length 1 and their gradient are the same by compiled code and by NumPy, bit for bit."""

import numpy as np
import pytest
import torch

from unidex import native
from unidex.nn import unit_arrays
from unidex.nn.unit_rows import unit_rows

pytestmark = pytest.mark.skipif(native.kernels is None, reason="the kernels are not compiled")


# Fewer numbers than lanes, some more than lanes, and more than NumPy adds at once.
@pytest.mark.parametrize("shape", [(1, 1), (7, 5), (40, 128), (3, 131), (2, 300), (0, 4)])
@pytest.mark.parametrize("is_slice", [False, True])
def test_values_and_gradients(shape, is_slice, monkeypatch):
    generator = torch.Generator().manual_seed(3)
    whole = torch.randn(shape[0], shape[1] + 1, generator=generator)
    gradient = torch.randn(shape[1], shape[0], generator=generator).T
    whole[2:3] = 0

    def computed():
        rows = (whole[:, :-1] if is_slice else whole[:, :-1].contiguous()).detach().requires_grad_()
        unit = unit_rows(rows)
        unit.backward(gradient)
        return unit.detach(), rows.grad

    fast = computed()
    monkeypatch.setattr(native, "kernels", None)
    slow = computed()
    expected = torch.nn.functional.normalize(whole[:, :-1], dim=1)
    torch.testing.assert_close(fast[0], expected)
    for one, other in zip(fast, slow, strict=True):
        assert torch.equal(one, other)
    assert torch.equal(fast[0], torch.from_numpy(unit_arrays.unit_rows(whole[:, :-1].numpy())))


ARRAYS = {
    "unit_rows": [np.ones((2, 3), np.float32), np.empty(2, np.float32), np.empty((2, 3), np.float32), 3, 1e-12],
    "unit_gradient": [*np.ones((2, 2, 3), np.float32), np.ones(2, np.float32), np.empty((2, 3), np.float32), 3],
}


@pytest.mark.parametrize(
    ("name", "place", "wrong"),
    [
        ("unit_rows", 0, np.ones(5, np.float32)),
        ("unit_rows", 1, np.empty(3, np.float32)),
        ("unit_rows", 2, np.empty(5, np.float32)),
        ("unit_rows", 3, 0),
        ("unit_gradient", 0, np.ones(5, np.float32)),
        ("unit_gradient", 1, np.ones(5, np.float32)),
        ("unit_gradient", 2, np.ones(3, np.float32)),
        ("unit_gradient", 3, np.empty(5, np.float32)),
        ("unit_gradient", 4, 0),
    ],
)
def test_arrays_that_do_not_fit_are_refused(name, place, wrong):
    arrays, kernel = ARRAYS[name], getattr(native.kernels, name)
    kernel(*arrays)
    with pytest.raises(ValueError, match="arrays"):
        kernel(*arrays[:place], wrong, *arrays[place + 1 :])
