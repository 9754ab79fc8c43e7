"""The soft top-k loss against its formula, in decimals of 900 digits where floats have too few."""

import itertools
import math
import sys
from dataclasses import replace
from decimal import Decimal, localcontext
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from helpers.blocked import as_function
from helpers.simulated_ranks import Threads
from unidex.losses import (
    BlockedSoftTopk,
    Targets,
    differentiable,
    draw_positives,
    log_soft_topk,
    soft_topk,
    soft_topk_loss,
    topk_thresholds,
)
from unidex.losses.blocks import LabelBlocks
from unidex.losses.topk_threshold import Cut, solve

INF = float("inf")


# The formulas.


def exact(scores, positives, k, alpha):
    """The value, the gradient and log p of a text with plain positives, in decimals.

    Where the k-th score is 1000 above the next, p differs from 0 and 1 in the 435th digit.
    """
    with localcontext(prec=900, Emin=-(10**9)):
        alpha = Decimal(alpha)
        odds = [(alpha * Decimal(x)).exp() for x in scores]

        def p_at(factor):
            return [factor * o / (1 + factor * o) for o in odds]

        # Bisection on exp(alpha t): all p are below k / n at the one end, and above at the other.
        low, high = 1 / max(odds) / len(odds) ** 2, len(odds) ** 2 / min(odds)
        for _ in range(120):
            middle = (low * high).sqrt()
            low, high = (middle, high) if sum(p_at(middle)) < k else (low, middle)
        p = p_at(low)
        v = [alpha * p_j * (1 - p_j) for p_j in p]
        u = [-alpha * (1 - p_j) / len(positives) if j in positives else Decimal(0) for j, p_j in enumerate(p)]
        gradient = [float(u_j - v_j * sum(u) / sum(v)) for u_j, v_j in zip(u, v, strict=True)]
    with localcontext(prec=30, Emin=-(10**9)):
        log_p = [float(p_j.ln()) for p_j in p]
        return -sum(log_p[j] for j in positives) / len(positives), gradient, log_p


def naive(scores, targets, k=5, alpha=2.0):
    """The loss text by text. One Newton step from the solution, which moves nothing, lets autograd through it."""
    y = torch.zeros(targets.shape, dtype=torch.float64)
    y[targets.rows, targets.columns] = targets.weights.double()
    out = torch.zeros(targets.shape, dtype=torch.bool)
    out[targets.rows, targets.columns] = targets.weights == 0
    out[targets.ignored_rows, targets.ignored_columns] = True
    losses = []
    for s, y_i, out_i in zip(scores, y, out, strict=True):
        if y_i.sum() == 0:
            continue
        x, y_i = s[~out_i], y_i[~out_i]
        k_i = max(1, math.ceil(y_i.sum().item() - 1e-5)) if k == "positives" else k
        if k_i >= len(x):
            losses.append(0 * s.sum())
            continue
        low, high = -x.max().item() - 50 / alpha, -x.min().item() + 50 / alpha
        for _ in range(200):
            t = (low + high) / 2
            low, high = (t, high) if torch.sigmoid(alpha * (x + t)).sum() < k_i else (low, t)
        p = torch.sigmoid(alpha * (x + low))
        t = low - (p.sum() - k_i) / (alpha * p * (1 - p)).sum().detach()
        losses.append(-(y_i / y_i.sum() * torch.nn.functional.logsigmoid(alpha * (x + t)))[y_i > 0].sum())
    return sum(losses) / len(losses) if losses else 0 * scores.sum()


def random_case(seed, num_texts, num_labels, *, positive=0.3, ignored=0.15, undrawn=0.1, scale=1.0):
    """Scores and targets in which some texts have no positive, some nothing but positives."""
    generator = torch.Generator().manual_seed(seed)
    draw, row_kind = torch.rand(num_texts, num_labels, generator=generator), torch.rand(num_texts, generator=generator)
    is_positive = draw < positive
    is_positive[row_kind < 0.1] = False
    is_positive[row_kind > 0.93] = True
    ignored_rows, ignored_columns = ((draw > 1 - ignored) & ~is_positive).nonzero(as_tuple=True)
    rows, columns = is_positive.nonzero(as_tuple=True)
    weights = torch.rand(len(rows), generator=generator) * 0.9 + 0.1
    targets = Targets.of(
        rows,
        columns,
        weights,
        ignored_rows=ignored_rows,
        ignored_columns=ignored_columns,
        shape=(num_texts, num_labels),
    )
    targets = replace(targets, weights=weights * (torch.rand(len(rows), generator=generator) >= undrawn))
    # Float32 numbers in float64, so that both types are given the same scores.
    return torch.randn(num_texts, num_labels, generator=generator).mul_(scale).double(), targets


def reference(scores, targets, **options):
    leaf = scores.clone().requires_grad_()
    value = naive(leaf, targets, **options)
    value.backward()
    return value.detach(), leaf.grad


# The operator.


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_of_two_is_a_sigmoid_of_half_their_difference(dtype):
    # t lies halfway between the two, so that z is +-alpha (3 - 1) / 2 = +-2.
    scores = torch.tensor([[3.0, 1.0]], dtype=dtype)
    p = torch.tensor([[1 / (1 + math.exp(-2)), 1 / (1 + math.exp(2))]], dtype=dtype)
    torch.testing.assert_close(topk_thresholds(scores, 1), torch.tensor([-2.0], dtype=dtype))
    torch.testing.assert_close(soft_topk(scores, 1), p)
    torch.testing.assert_close(log_soft_topk(scores, 1), p.log())
    value, gradient = soft_topk_loss(scores, Targets.of([0], [1], shape=(1, 2)), k=1)
    torch.testing.assert_close(value, torch.tensor(math.log1p(math.exp(2)), dtype=dtype))
    torch.testing.assert_close(gradient, torch.tensor([[p[0, 0], -p[0, 0]]], dtype=dtype))


def test_equal_scores_share_k_evenly():
    scores = torch.full((3, 8), 700.0)
    k = torch.tensor([1, 5, 7])
    torch.testing.assert_close(soft_topk(scores, k), (k / 8)[:, None].expand(3, 8))
    # Two are above, three are tied for the one place that is left.
    p = soft_topk(torch.tensor([[9e3, 8e3, 1.0, 1.0, 1.0, -9e3]], dtype=torch.float64), 3)
    torch.testing.assert_close(p, torch.tensor([[1, 1, 1 / 3, 1 / 3, 1 / 3, 0]], dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    num_labels=st.integers(1, 40),
    scale=st.sampled_from([0.0, 0.1, 1.0, 10.0, 1e3]),
    alpha=st.sampled_from([0.5, 2.0, 20.0]),
    tied=st.booleans(),
)
def test_p_lies_between_0_and_1_sums_to_k_and_keeps_the_order(dtype, seed, num_labels, scale, alpha, tied):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(5, num_labels, generator=generator, dtype=dtype) * scale
    scores = scores.round() if tied else scores
    scores[torch.rand(5, num_labels, generator=generator) < 0.1] = -INF
    k = torch.randint(1, num_labels + 2, (5,), generator=generator)
    p, log_p, t = (function(scores, k, alpha=alpha) for function in (soft_topk, log_soft_topk, topk_thresholds))
    num_left = (scores > -INF).sum(1)
    assert ((p >= 0) & (p <= 1)).all()
    assert (p[scores == -INF] == 0).all()
    tolerance = 1e-5 if dtype == torch.float32 else 1e-10
    torch.testing.assert_close(p.sum(1), torch.minimum(k, num_left).to(dtype), rtol=tolerance, atol=tolerance)
    for values in (p, log_p):
        ordered = values.gather(1, scores.argsort(1))
        # But for the last digit: torch computes the sigmoids at the end of a row in another way than the others.
        ordered = ordered.where(ordered > -INF, -1e30)
        rounding = 2 * torch.finfo(dtype).eps * ordered[:, 1:].abs()
        assert (ordered[:, 1:] >= ordered[:, :-1] - rounding).all()
    torch.testing.assert_close(log_p.exp(), p, rtol=tolerance, atol=tolerance)
    assert torch.equal(t == INF, k >= num_left)
    # t is one number, with the rounding error of the scores; p is not computed from it.
    solved = t < INF
    from_t = torch.sigmoid(alpha * (scores + t[:, None]))[solved]
    atol = tolerance + alpha * (scale + 10) * torch.finfo(dtype).eps
    torch.testing.assert_close(from_t, p[solved], rtol=0, atol=4 * atol)


def test_a_large_alpha_chooses_the_highest():
    scores, _ = random_case(0, 6, 9)
    hard = torch.zeros_like(scores).scatter_(1, scores.topk(3, dim=1).indices, 1)
    assert not torch.allclose(soft_topk(scores, 3), hard, atol=0.1)
    torch.testing.assert_close(soft_topk(scores, 3, alpha=1e5), hard)


@pytest.mark.parametrize("operator", [soft_topk, log_soft_topk])
@pytest.mark.parametrize("alpha", [0.7, 2.0])
def test_the_operator_has_the_gradient_of_finite_differences(operator, alpha):
    scores, _ = random_case(1, 5, 7, scale=0.7)
    k = torch.tensor([1, 2, 6, 7, 3])
    assert torch.autograd.gradcheck(lambda scores: operator(scores, k, alpha=alpha), scores.requires_grad_())


@pytest.mark.parametrize("operator", [soft_topk, log_soft_topk])
def test_excluded_labels_have_no_gradient(operator):
    scores, _ = random_case(2, 3, 6)
    scores[:, 4] = -INF
    scores[2, 1:] = -INF
    leaf = scores.clone().requires_grad_()
    left = [0, 1, 2, 3, 5]
    operator(leaf, 2)[:2, [1, 2]].sum().backward()
    assert (leaf.grad[:, 4] == 0).all()
    assert (leaf.grad[2] == 0).all()
    without = scores[:, left].requires_grad_()
    operator(without, 2)[:2, [1, 2]].sum().backward()
    torch.testing.assert_close(leaf.grad[:, left], without.grad)
    # Not even when its log p of -inf is asked to grow.
    for one in (leaf, without):
        one.grad = None
        operator(one, 2).backward(torch.ones_like(one))
    assert (leaf.grad[:, 4] == 0).all()
    torch.testing.assert_close(leaf.grad[:, left], without.grad)


@pytest.mark.parametrize("kind", ["normal", "large", "tied", "heavy-tailed", "two clusters", "falling"])
def test_five_steps_find_the_threshold(kind):
    for seed in range(40):
        generator = torch.Generator().manual_seed(seed)
        scores = torch.randn(16, 10 + 9 * seed, generator=generator, dtype=torch.float64)
        width = torch.rand(16, 1, generator=generator, dtype=torch.float64)
        scores = {
            "normal": scores,
            "large": scores * 1e3,
            "tied": (scores * 2).round(),
            "heavy-tailed": scores.sign() * scores.abs() ** 8,
            "two clusters": scores * 0.01 - 40 * width * (scores < 0),
            "falling": -scores.abs().cumsum(1) * 3 * width,
        }[kind]
        k = torch.randint(1, 9 * (1 + seed % 9), (16,), generator=generator)
        few, many = topk_thresholds(scores, k, num_steps=5), topk_thresholds(scores, k, num_steps=50)
        torch.testing.assert_close(few, many, rtol=1e-12, atol=1e-10)
        sums = torch.sigmoid(2 * (scores + few[:, None])).sum(1)
        torch.testing.assert_close(sums, k.clamp_max(scores.shape[1]).double(), rtol=1e-9, atol=0)


def test_the_threshold_search_cannot_oscillate():
    # D = 2 s - 2 with a slope said to be 1: Newton's method alone would jump from 0 to 2 and back for ever.
    zeros = torch.zeros(1, dtype=torch.float64)
    cut = Cut(zeros, zeros, zeros, zeros, torch.tensor([False]))
    sums = torch.tensor([[math.exp(-2)], [math.exp(-2)], [1.0], [0.0]], dtype=torch.float64)
    found = solve(cut, lambda q, m: sums, lambda errors: bool(errors.max() < 1e-9), num_steps=40)
    assert found.offset_B.item() == pytest.approx(1)


# The loss.


OPTIONS = [{"k": 1}, {"k": 3}, {"k": 5, "alpha": 0.5}, {"k": "positives"}, {"k": "positives", "alpha": 5.0}]


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    num_texts=st.integers(1, 7),
    num_labels=st.integers(1, 14),
    positive=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    scale=st.sampled_from([0.1, 1.0]),
    options=st.sampled_from(OPTIONS),
)
def test_value_and_gradient_equal_the_formula(seed, num_texts, num_labels, positive, scale, options):
    scores, targets = random_case(seed, num_texts, num_labels, positive=positive, scale=scale)
    value, gradient = reference(scores, targets, **options)
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 1e-5)):
        found = soft_topk_loss(scores.to(dtype, copy=True), targets, **options)
        assert found.value.dtype == found.gradient.dtype == dtype
        torch.testing.assert_close(found.value.double(), value, rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(found.gradient.double(), gradient, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("options", OPTIONS)
def test_the_loss_has_the_gradient_of_finite_differences(options):
    scores, targets = random_case(4, 5, 8, scale=0.4)
    assert (targets.weights > 0).sum() > 5
    loss = differentiable(partial(soft_topk_loss, **options))
    assert torch.autograd.gradcheck(lambda scores: loss(scores, targets), scores.requires_grad_(), atol=1e-7)


@pytest.mark.parametrize("scale", [30.0, 1e3])
@pytest.mark.parametrize("k", [1, 3, 6])
def test_large_scores_lose_nothing(scale, k):
    # Between the k-th score and the next, no sum of sigmoids in float says where the threshold is.
    generator = torch.Generator().manual_seed(k)
    scores = torch.randn(2, 7, generator=generator) * scale
    positives = [[0, 3], [5]]
    expected = [exact(row.tolist(), chosen, k, 2.0) for row, chosen in zip(scores, positives, strict=True)]
    value = sum(value for value, _, _ in expected) / 2
    gradient = torch.tensor([gradient for _, gradient, _ in expected], dtype=torch.float64) / 2
    log_p = torch.tensor([log_p for _, _, log_p in expected], dtype=torch.float64)
    assert value > scale / 20
    targets = Targets.of([0, 0, 1], [0, 3, 5], shape=(2, 7))
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 1e-5)):
        typed = scores.to(dtype)
        torch.testing.assert_close(log_soft_topk(typed, k).double(), log_p, rtol=tolerance, atol=tolerance)
        found = soft_topk_loss(typed.clone(), targets, k=k)
        assert found.value.item() == pytest.approx(value, rel=tolerance)
        torch.testing.assert_close(found.gradient.double(), gradient, rtol=tolerance, atol=tolerance)
        leaf = typed.clone().requires_grad_()
        by_operator = -(log_soft_topk(leaf, k)[targets.rows, targets.columns] * targets.shares(dtype)).sum()
        by_operator.backward()
        # The operator keeps logits, and their rounding errors.
        tolerance = 10 * scale * torch.finfo(dtype).eps
        torch.testing.assert_close(leaf.grad.double(), gradient, rtol=tolerance, atol=tolerance)


def test_a_common_part_of_the_scores_changes_nothing():
    scores, targets = random_case(9, 6, 20)
    scores = (scores + 1e4).float().double()
    value, gradient = reference(scores - 1e4, targets, k=2)
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 1e-5)):
        found = soft_topk_loss(scores.to(dtype, copy=True), targets, k=2)
        torch.testing.assert_close(found.value.double(), value, rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(found.gradient.double(), gradient, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e4])
def test_no_more_labels_than_k_leave_nothing_to_learn(scale):
    scores = torch.tensor([[3.0, 1.0, -2.0, 5.0], [3.0, 1.0, -2.0, 0.5]]) * scale
    # The first text has two labels left, the second has three.
    targets = Targets.of([0, 1], [2, 2], ignored_rows=[0, 0, 1], ignored_columns=[0, 3, 3], shape=(2, 4))
    for k in (3, 4, 100):
        found = soft_topk_loss(scores.clone(), targets, k=k)
        assert found.value == 0
        assert torch.equal(found.gradient, torch.zeros(2, 4))
        assert torch.equal(soft_topk(scores[:, :3], k), torch.ones(2, 3))
    found = soft_topk_loss(scores.clone(), targets, k=2)
    assert found.value > scale
    assert torch.equal(found.gradient[0], torch.zeros(4))
    assert found.gradient[1, 2] < -0.4


def test_a_text_without_a_positive_is_left_out():
    scores, _ = random_case(5, 3, 6)
    alone = soft_topk_loss(scores[[0, 2]].clone(), Targets.of([0, 1], [1, 3], shape=(2, 6)), k=2)
    found = soft_topk_loss(scores, Targets.of([0, 2], [1, 3], shape=(3, 6)), k=2)
    torch.testing.assert_close(found.value, alone.value)
    torch.testing.assert_close(found.gradient[[0, 2]], alone.gradient)
    assert (found.gradient[1] == 0).all()


@pytest.mark.parametrize("k", [5, "positives"])
def test_no_positive_at_all_gives_zero(k):
    for shape in [(3, 9), (1, 1), (0, 4), (3, 0), (0, 0)]:
        found = soft_topk_loss(torch.randn(shape), Targets.of([], [], shape=shape), k=k)
        assert found.value == 0
        assert found.value.dim() == 0
        assert torch.equal(found.gradient, torch.zeros(shape))
        for operator in (soft_topk, log_soft_topk):
            assert operator(torch.randn(shape), 2).shape == shape
        assert topk_thresholds(torch.randn(shape), 2).shape == shape[:1]


def test_when_all_labels_are_positive_the_lowest_is_pulled_up_most():
    scores = torch.tensor([[2.0, 1.0, 0.0]], dtype=torch.float64)
    targets = Targets.of([0, 0, 0], [0, 1, 2], shape=(1, 3))
    value, gradient = soft_topk_loss(scores.clone(), targets, k=2)
    expected, expected_gradient, _ = exact([2, 1, 0], [0, 1, 2], 2, 2.0)
    assert value.item() == pytest.approx(expected)
    assert gradient[0].tolist() == pytest.approx(expected_gradient)
    assert gradient[0].argmin() == 2
    assert soft_topk_loss(scores, targets, k="positives").value == 0


def test_ignored_and_undrawn_pairs_have_no_influence_and_no_gradient():
    scores, targets = random_case(2, 6, 12, ignored=0.3, undrawn=0.4)
    undrawn = targets.weights == 0
    assert undrawn.sum() > 3
    rows = torch.cat([targets.ignored_rows, targets.rows[undrawn]])
    columns = torch.cat([targets.ignored_columns, targets.columns[undrawn]])
    plain = soft_topk_loss(scores.clone(), targets, k=2)
    assert plain.value > 0
    assert (plain.gradient[rows, columns] == 0).all()
    for score in (5e3, -INF):
        scores[rows, columns] = score
        other = soft_topk_loss(scores.clone(), targets, k=2)
        assert torch.equal(plain.value, other.value)
        assert torch.equal(plain.gradient, other.gradient)


def test_scores_of_minus_infinity_take_no_part():
    scores, targets = random_case(3, 6, 9, positive=0.2, ignored=0.0, undrawn=0.0)
    wide = torch.full((6, 12), -INF, dtype=torch.float64)
    wide[:, :9] = scores
    plain = soft_topk_loss(scores, targets, k=2)
    found = soft_topk_loss(wide, replace(targets, shape=(6, 12)), k=2)
    torch.testing.assert_close(found.value, plain.value)
    torch.testing.assert_close(found.gradient[:, :9], plain.gradient)
    assert (found.gradient[:, 9:] == 0).all()


def test_the_gradient_of_a_text_adds_up_to_zero():
    scores, targets = random_case(6, 8, 30, scale=3.0)
    gradient = soft_topk_loss(scores, targets, k=3).gradient
    assert gradient.abs().sum(1).max() > 0.1
    torch.testing.assert_close(gradient.sum(1), torch.zeros(8, dtype=torch.float64))


def test_the_scores_become_the_gradient_contiguous_or_not():
    scores, targets = random_case(14, 6, 9)
    plain = scores.clone()
    expected = soft_topk_loss(plain, targets, k=2)
    assert expected.gradient.data_ptr() == plain.data_ptr()
    torch.testing.assert_close(soft_topk_loss(scores.T.contiguous().T, targets, k=2), expected)
    wide = torch.full((6, 20), 7.0, dtype=torch.float64)
    wide[:, 1:19:2] = scores
    torch.testing.assert_close(soft_topk_loss(wide[:, 1:19:2], targets, k=2), expected)
    assert (wide[:, ::2] == 7).all()


def test_many_rows_are_solved_some_at_a_time(monkeypatch):
    scores, targets = random_case(7, 9, 11)
    expected = soft_topk_loss(scores.clone(), targets, k=2)
    for size in (1, 30):
        monkeypatch.setattr(sys.modules[soft_topk.__module__], "BLOCK", size)
        torch.testing.assert_close(soft_topk_loss(scores.clone(), targets, k=2), expected, rtol=1e-11, atol=1e-11)


def test_the_loss_does_not_look_at_values_on_another_device():
    # A tensor of the meta device has no values: whatever would wait for a device raises there.
    scores, targets = random_case(15, 6, 9)
    found = soft_topk_loss(scores.to("meta"), targets.to("meta"), k=2)
    assert found.value.shape == ()
    assert found.gradient.shape == scores.shape


def test_nan_scores_give_nan():
    targets = Targets.of([0, 1], [0, 0], shape=(2, 9))
    for column in range(9):
        scores = torch.linspace(3, -3, 9).repeat(2, 1)
        scores[1, column] = torch.nan
        assert soft_topk_loss(scores, targets, k=3).value.isnan()
        labels = torch.linspace(3, -3, 9)[:, None].contiguous()
        labels[column] = torch.nan
        assert blocked_soft_topk(torch.ones(2, 1), labels, torch.tensor(1.0), targets, k=3, block_size=4).value.isnan()


def test_options_are_checked():
    scores, targets = torch.zeros(2, 3), Targets.of([0], [1], shape=(2, 3))
    with pytest.raises(ValueError, match="k must be at least 1, but is 0"):
        soft_topk_loss(scores, targets, k=0)
    with pytest.raises(ValueError, match="k must be a number or \"positives\", but is 'all'"):
        soft_topk_loss(scores, targets, k="all")
    with pytest.raises(ValueError, match="alpha must be > 0, but is 0"):
        soft_topk_loss(scores, targets, alpha=0)
    with pytest.raises(ValueError, match=r"2 texts x 3 labels, but have \(3, 2\)"):
        soft_topk_loss(torch.zeros(3, 2), targets)
    with pytest.raises(ValueError, match=r"k must have one number per text \(2\), but has \(3,\)"):
        soft_topk(scores, torch.tensor([1, 1, 1]))
    with pytest.raises(ValueError, match=r"k must be whole numbers, but is torch.float32"):
        soft_topk(scores, torch.tensor([1.0, 1.0]))
    with pytest.raises(ValueError, match="k must be at least 1, but is 0 for one text"):
        soft_topk(scores, torch.tensor([1, 0]))
    with pytest.raises(ValueError, match=r"matrix of float32 or float64, but have the shape \(3,\)"):
        topk_thresholds(torch.zeros(3), 1)
    with pytest.raises(ValueError, match="k must be at least 1, but is 0"):
        draw_positives(targets, 0, torch.Generator())
    with pytest.raises(ValueError, match="k must be at least 1, but is -1"):
        blocked_soft_topk(torch.zeros(2, 1), torch.zeros(3, 1), torch.tensor(1.0), targets, k=-1)


# The draw.


def test_at_most_k_positives_are_drawn_and_keep_their_targets():
    _, targets = random_case(8, 30, 20, undrawn=0.0)
    num_known = torch.bincount(targets.rows, minlength=30)
    assert num_known.max() > 5
    for k in (1, 3, 50):
        drawn = draw_positives(targets, k, torch.Generator().manual_seed(k))
        is_drawn = drawn.weights > 0
        assert torch.equal(torch.bincount(targets.rows[is_drawn], minlength=30), num_known.clamp_max(k))
        assert torch.equal(drawn.weights[is_drawn], targets.weights[is_drawn])
        assert torch.equal(drawn.columns, targets.columns)
    # What an earlier draw left out stays out.
    once = draw_positives(targets, 2, torch.Generator().manual_seed(0))
    assert torch.equal(draw_positives(once, 4, torch.Generator().manual_seed(1)).weights, once.weights)


def test_positives_are_drawn_in_proportion_to_their_targets():
    num_texts = 6000
    # Mixed up, so that the pairs of a text do not stand together.
    rows = torch.arange(num_texts).repeat(4)
    columns = torch.arange(4).repeat_interleave(num_texts)
    weights = torch.tensor([1.0, 0.5, 0.25, 0.25]).repeat_interleave(num_texts)
    targets = Targets.of(rows, columns, weights, shape=(num_texts, 4))
    drawn = draw_positives(targets, 2, torch.Generator().manual_seed(0))
    found = (drawn.weights > 0).view(4, num_texts)
    assert (found.sum(0) == 2).all()
    shares = [0.5, 0.25, 0.125, 0.125]
    # First or second: in the second draw, the shares of those that are left.
    expected = [
        p + sum(q * p / (1 - q) for other, q in enumerate(shares) if other != label) for label, p in enumerate(shares)
    ]
    # Three standard deviations of a frequency around 1/2 over 6000 draws are 0.019.
    torch.testing.assert_close(found.float().mean(1), torch.tensor(expected), rtol=0, atol=0.019)
    assert torch.equal(drawn.weights, draw_positives(targets, 2, torch.Generator().manual_seed(0)).weights)
    assert not torch.equal(drawn.weights, draw_positives(targets, 2, torch.Generator().manual_seed(1)).weights)


# All labels, block by block.


blocked_soft_topk = as_function(BlockedSoftTopk)


def random_sides(seed, num_texts, num_labels, *, dtype=torch.float64, **how):
    _, targets = random_case(seed, num_texts, num_labels, **how)
    generator = torch.Generator().manual_seed(seed)
    texts, labels = torch.randn(num_texts, 3, generator=generator), torch.randn(num_labels, 3, generator=generator)
    return texts.to(dtype), labels.to(dtype), torch.tensor(0.8, dtype=dtype), targets


def plain(texts, labels, scale, targets, **options):
    """Value and gradients from the whole matrix of scores, in float64."""
    texts, labels, scale = texts.double(), labels.double(), scale.double()
    value, gradient = soft_topk_loss(scale * texts @ labels.T, targets, **options)
    return value, scale * gradient @ labels, scale * gradient.T @ texts, (gradient @ labels * texts).sum()


def assert_equals_plain(found, expected, dtype):
    tolerance = 1e-10 if dtype == torch.float64 else 1e-5
    for one, other in zip(found, expected, strict=True):
        size = max(1.0, other.abs().max().item()) if other.numel() else 1.0
        assert one.dtype == dtype
        torch.testing.assert_close(one.double(), other, rtol=0, atol=tolerance * size)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("block_size", [1, 3, 40, 100, None])
@pytest.mark.parametrize("options", [*OPTIONS, {"k": 39}, {"k": 40}, {"k": 1000}])
def test_blocked_equals_plain(options, block_size, dtype):
    for seed in (1, 2):
        sides = random_sides(seed, 6, 40, dtype=dtype)
        found = blocked_soft_topk(*sides, **options, block_size=block_size)
        assert_equals_plain(found, plain(*sides, **options), dtype)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    num_texts=st.integers(1, 6),
    num_labels=st.integers(1, 200),
    positive=st.sampled_from([0.0, 0.02, 0.5, 1.0]),
    block_size=st.sampled_from([7, 64, 300]),
    scale=st.sampled_from([0.01, 1.0, 30.0]),
    options=st.sampled_from(OPTIONS),
    copies=st.sampled_from([1, 1, 9]),
)
def test_blocked_equals_plain_for_any_scores(seed, num_texts, num_labels, positive, block_size, scale, options, copies):
    texts, labels, _, targets = random_sides(seed, num_texts, num_labels, positive=positive)
    # Labels that are the same have scores that are tied, nearly or exactly.
    labels = labels[torch.arange(num_labels) // copies]
    sides = (texts, labels, torch.tensor(scale, dtype=torch.float64), targets)
    found = blocked_soft_topk(*sides, **options, block_size=block_size)
    assert_equals_plain(found, plain(*sides, **options), torch.float64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_blocked_takes_scores_of_thousands(dtype):
    # Whole numbers, so that products have no rounding error.
    generator = torch.Generator().manual_seed(0)
    texts = torch.randint(-30, 30, (5, 3), generator=generator).to(dtype)
    labels = torch.randint(-30, 30, (90, 3), generator=generator).to(dtype)
    targets = Targets.of([0, 1, 1, 2, 3, 4], [3, 8, 77, 2, 0, 89], shape=(5, 90))
    sides = (texts, labels, torch.tensor(1.0, dtype=dtype), targets)
    assert (texts @ labels.T).abs().max() > 1000
    # In bits, whole numbers have a rounding error again, of 1000 alpha / log 2 times that of a number near 1.
    found = blocked_soft_topk(*sides, k=3, alpha=math.log(2), block_size=20)
    assert found.value > 100
    assert_equals_plain(found, plain(*sides, k=3, alpha=math.log(2)), dtype)


def spread(sides, bounds, **options):
    """The loss over labels that are spread over threads, cut at ``bounds``; calls of each."""
    texts, labels, scale, targets = sides
    shards = list(itertools.pairwise(bounds))

    def work(rank, ranks):
        first, stop = shards[rank]
        mine = targets.between(first, stop)
        found = blocked_soft_topk(texts, labels[first:stop], scale, mine, ranks=ranks, **options)
        return found, ranks.calls

    return Threads(len(shards)).run(work)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bounds", [[0, 5, 36, 50], [0, 0, 49, 50], [0, 20, 20, 50], [0, 1, 50, 50]])
@pytest.mark.parametrize("options", [{"k": 3}, {"k": "positives"}, {"k": 60}])
def test_labels_may_be_spread_over_processes(bounds, options, dtype):
    texts, labels, scale, targets = random_sides(11, 7, 50, dtype=dtype, ignored=0.1)
    # The last label of each shard is a positive, of a text that has no other, and of one that has.
    ends = sorted({stop - 1 for stop in bounds if stop})
    kept = ~torch.isin(targets.columns, torch.tensor(ends)) & (targets.rows != 6)
    ignored = ~torch.isin(targets.ignored_columns, torch.tensor(ends))
    targets = Targets(
        torch.cat([targets.rows[kept], torch.tensor([6, 5] * len(ends))]),
        torch.cat([targets.columns[kept], torch.tensor(ends).repeat_interleave(2)]),
        torch.cat([targets.weights[kept], torch.ones(2 * len(ends))]),
        targets.ignored_rows[ignored],
        targets.ignored_columns[ignored],
        targets.shape,
    )
    # Copies of a label on different processes are tied.
    labels[45:48] = labels[2]
    sides = (texts, labels, scale, targets)
    results = spread(sides, bounds, **options, block_size=9)
    founds = [found for found, _ in results]
    for found in founds[1:]:
        assert torch.equal(found.value, founds[0].value)
    together = (
        founds[0].value,
        sum(found.texts_BD for found in founds),
        torch.cat([found.labels_LD for found in founds]),
        sum(found.scale for found in founds),
    )
    expected = plain(*sides, **options)
    assert options["k"] == 60 or expected[0] > 0.1
    assert_equals_plain(together, expected, dtype)
    assert results[0][1] == results[1][1] == results[2][1]


def test_a_sink_gets_the_gradients_of_the_labels_and_may_change_them():
    texts, labels, scale, targets = random_sides(12, 6, 40)
    expected = blocked_soft_topk(texts, labels, scale, targets, k=2, block_size=7)
    taken, seen = torch.full_like(labels, torch.nan), labels.clone()

    def sink(block, gradient):
        taken[block] = gradient
        seen[block] = 1e6

    found = blocked_soft_topk(texts, seen, scale, targets, k=2, block_size=7, sink=sink)
    assert found.labels_LD is None
    torch.testing.assert_close(taken, expected.labels_LD, rtol=0, atol=0)
    assert torch.equal(found.texts_BD, expected.texts_BD)
    assert torch.equal(found.value, expected.value)


@pytest.mark.parametrize("sizes", [(0, 5), (4, 0), (0, 0)])
def test_blocked_takes_no_texts_and_no_labels(sizes):
    num_texts, num_labels = sizes
    sides = (torch.ones(num_texts, 2), torch.ones(num_labels, 2), torch.tensor(1.0))
    found = blocked_soft_topk(*sides, Targets.of([], [], shape=sizes), block_size=2)
    assert found.value == 0
    assert torch.equal(found.texts_BD, torch.zeros(num_texts, 2))
    assert torch.equal(found.labels_LD, torch.zeros(num_labels, 2))
    assert found.scale == 0


@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 3), (torch.float64, 4)])
def test_few_passes_are_needed(dtype, most, monkeypatch):
    passes = []

    def counted(self, block, unit, scores=LabelBlocks.scores):
        passes.append(block)
        return scores(self, block, unit)

    monkeypatch.setattr(LabelBlocks, "scores", counted)
    found = []
    for seed in range(12):
        texts, labels, _, targets = random_sides(seed, 8, 2000, dtype=dtype, positive=0.002)
        for scale in (0.05, 1.0, 20.0):
            for k in (1, 5, 50):
                passes.clear()
                blocked_soft_topk(texts, labels, torch.tensor(scale, dtype=dtype), targets, k=k, block_size=500)
                # Besides the first and the last.
                found.append(len(passes) / 4 - 2)
    assert min(found) >= 1
    assert max(found) <= most
    assert sum(found) / len(found) < most - 0.5


class LargestTensor(TorchDispatchMode):
    """How many numbers the largest tensor has that any function returns."""

    largest = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for one in result if isinstance(result, tuple | list) else [result]:
            if isinstance(one, torch.Tensor):
                self.largest = max(self.largest, one.numel())
        return result


def test_no_matrix_of_texts_and_labels_is_ever_built():
    texts, labels, scale, targets = random_sides(13, 16, 4000, positive=0.002)
    with LargestTensor() as seen:
        blocked_soft_topk(texts, labels, scale, targets, block_size=100)
    # The gradient of the labels is all there is of that length; the highest scores are 64 a text, from two sides.
    assert seen.largest == labels.numel() < 16 * 4000 / 5
    with LargestTensor() as seen:
        soft_topk_loss(scale * texts @ labels.T, targets)
    assert seen.largest >= 16 * 4000
