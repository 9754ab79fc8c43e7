import torch

from unidex.nn.unit_rows import unit_rows


def test_values_and_gradients_are_those_of_torch():
    rows = torch.randn(6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows[2] = 0
    gradient = torch.linspace(-1, 2, 30, dtype=torch.float64).view(6, 5)
    found, known = rows.clone().requires_grad_(), rows.clone().requires_grad_()
    unit, expected = unit_rows(found), torch.nn.functional.normalize(known, dim=1)
    assert torch.equal(unit, expected)
    unit.backward(gradient)
    expected.backward(gradient)
    torch.testing.assert_close(found.grad, known.grad, rtol=1e-12, atol=1e-12)


def test_a_row_keeps_its_length_along_the_gradient():
    rows = torch.tensor([[3.0, 4.0]], requires_grad=True)
    unit_rows(rows).backward(torch.tensor([[5.0, 0.0]]))
    # (g - y <y, g>) / |x| = ((5, 0) - (0.6, 0.8) 3) / 5
    torch.testing.assert_close(rows.grad, torch.tensor([[0.64, -0.48]]))
