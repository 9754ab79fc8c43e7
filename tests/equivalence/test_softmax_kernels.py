"""The kernels of a softmax in both directions compute what torch computes, bit for bit, and refuse other arrays."""

import numpy as np
import pytest
import torch

from unidex import native
from unidex.losses import Targets, symmetric
from unidex.losses.exponentials import exponentials_, highest, multiply_pushes_

pytestmark = pytest.mark.skipif(native.kernels is None, reason="the kernels are not compiled")

# One number, fewer numbers than lanes, powers of two, and some more; fewer rows than a block, whole blocks, and more.
shapes = pytest.mark.parametrize("shape", [(1, 1), (3, 2), (5, 7), (32, 16), (33, 64), (70, 131)])


def scores_of(shape, *, seed=0, is_padded=False):
    """Scores up to 0, of all sizes, some of them masked; with more numbers between two rows."""
    generator = torch.Generator().manual_seed(seed)
    width = shape[1] + 5 * is_padded
    whole = -(torch.rand(shape[0], width, generator=generator) * 6).exp()
    whole[torch.rand(shape[0], width, generator=generator) < 0.1] = -torch.inf
    whole[0, 0] = 0.0
    return whole[:, : shape[1]]


def without_kernels(monkeypatch, compute):
    with monkeypatch.context() as patch:
        patch.setattr(native, "kernels", None)
        return compute()


def counted(monkeypatch, name):
    """The calls of a kernel."""
    calls, kernel = [], getattr(native.kernels, name)

    class Counting:
        def __getattr__(self, other):
            found = getattr(kernels, other)
            return (lambda *given: calls.append(other) or kernel(*given)) if other == name else found

    kernels = native.kernels
    monkeypatch.setattr(native, "kernels", Counting())
    return calls


@shapes
@pytest.mark.parametrize("is_padded", [False, True])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_all_passes(shape, is_padded, is_weighted, monkeypatch):
    generator = torch.Generator().manual_seed(2)
    factors = torch.rand(shape[1], generator=generator) if is_weighted else None
    pushes = torch.rand(shape[0], generator=generator), torch.rand(shape[1], generator=generator)

    def passes():
        scores = scores_of(shape, is_padded=is_padded)
        most = highest(scores)
        sums = exponentials_(scores, 0.25, factors)
        exponentials = scores.clone()
        multiply_pushes_(scores, *pushes, factors)
        return *most, *sums, exponentials, scores

    calls = counted(monkeypatch, "exponentials")
    fast = passes()
    assert calls
    slow = without_kernels(monkeypatch, passes)
    for one, other in zip(fast, slow, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("is_compiled", [False, True])
def test_exponentials_are_exact(dtype, is_compiled, monkeypatch):
    scores = scores_of((70, 131)).to(dtype)
    if not is_compiled:
        monkeypatch.setattr(native, "kernels", None)
    found, factors = scores.clone(), torch.rand(131, dtype=dtype, generator=torch.Generator().manual_seed(1))
    sums = exponentials_(found, 0.0, factors)
    # What is below the smallest normal number becomes that one.
    expected = (scores.double()).exp()
    near = 2e-7 if dtype == torch.float32 else 1e-14
    torch.testing.assert_close(found.double(), expected, rtol=near, atol=2 * torch.finfo(dtype).tiny)
    assert (found == 0).equal(scores == -torch.inf)
    torch.testing.assert_close(sums[0].double(), expected @ factors.double(), rtol=4 * near, atol=0)
    torch.testing.assert_close(sums[1].double(), expected.sum(0), rtol=4 * near, atol=2 * torch.finfo(dtype).tiny)


def test_a_score_that_is_no_number_stays_none(monkeypatch):
    def sums():
        scores = scores_of((5, 40))
        scores[2, 3] = torch.nan
        return exponentials_(scores, 0.0)

    for of_texts, of_labels in (sums(), without_kernels(monkeypatch, sums)):
        assert of_texts.isnan().nonzero().tolist() == [[2]]
        assert of_labels.isnan().nonzero().tolist() == [[3]]


@pytest.mark.parametrize("has_log_q", [False, True])
@pytest.mark.parametrize("is_padded", [False, True])
def test_the_loss(has_log_q, is_padded, monkeypatch):
    generator = torch.Generator().manual_seed(5)
    rows, columns = torch.arange(48), torch.randint(0, 77, (48,), generator=generator)
    ignored = torch.arange(10)
    ignored_columns = (columns[:10] + 1) % 77
    targets = Targets.of(rows, columns, ignored_rows=ignored, ignored_columns=ignored_columns, shape=(48, 77))
    log_q = -torch.rand(77, generator=generator) if has_log_q else None

    def loss():
        scores = torch.randn(48, 77 + 3 * is_padded, generator=torch.Generator().manual_seed(6))[:, :77] * 10
        return symmetric(scores, targets, log_q_P=log_q)

    calls = counted(monkeypatch, "multiply_pushes")
    fast = loss()
    assert calls
    slow = without_kernels(monkeypatch, loss)
    assert torch.equal(fast.value, slow.value)
    assert torch.equal(fast.gradient, slow.gradient)


def arrays_of(name):
    """Arguments of a kernel for two rows of three numbers that start four apart."""
    scores, rows, columns = np.zeros(7, np.float32), np.zeros(2, np.float32), np.zeros(3, np.float32)
    if name == "highest":
        return [scores, rows, columns, 4]
    if name == "exponentials":
        bounds, factors = np.array([0, -80], np.float32), np.ones(3, np.float32)
        return [bounds, factors, scores, rows, np.zeros(6, np.float32), columns, 4, 1]
    return [rows, np.ones(3, np.float32), columns, scores, 4]


@pytest.mark.parametrize(
    ("name", "place", "wrong"),
    [
        ("highest", 0, np.zeros(8, np.float32)),
        ("highest", 1, np.zeros(3, np.float32)),
        ("highest", 2, np.zeros(0, np.float32)),
        ("highest", 3, 2),
        ("exponentials", 0, np.zeros(1, np.float32)),
        ("exponentials", 1, np.zeros(2, np.float32)),
        ("exponentials", 2, np.zeros(6, np.float32)),
        ("exponentials", 3, np.zeros(1, np.float32)),
        ("exponentials", 4, np.zeros(5, np.float32)),
        ("exponentials", 5, np.zeros(2, np.float32)),
        ("exponentials", 6, 2),
        ("exponentials", 7, 0),
        ("multiply_pushes", 0, np.zeros(3, np.float32)),
        ("multiply_pushes", 1, np.zeros(2, np.float32)),
        ("multiply_pushes", 2, np.zeros(0, np.float32)),
        ("multiply_pushes", 3, np.zeros(8, np.float32)),
        ("multiply_pushes", 4, -4),
    ],
)
def test_arrays_that_do_not_fit_are_refused(name, place, wrong):
    arrays = arrays_of(name)
    kernel = getattr(native.kernels, name)
    kernel(*arrays)
    with pytest.raises(ValueError, match="arrays"):
        kernel(*arrays[:place], wrong, *arrays[place + 1 :])
