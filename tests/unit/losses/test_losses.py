"""Every loss against its formula, written out pair by pair and left to autograd."""

import doctest
import math
from dataclasses import replace
from functools import partial

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # the name everybody knows it by
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.dense_targets import dense
from helpers.paths import DOCS
from unidex.losses import (
    Targets,
    bce,
    correct_log_q,
    decoupled_softmax,
    differentiable,
    one_positive,
    softmax_one_positive,
    supcon,
    symmetric,
    triplet,
)
from unidex.losses.softmax import DECOUPLED, SUPCON
from unidex.losses.symmetric import _fused, _two_passes

INF = float("inf")


# The formulas. y holds the targets, known the positives (also those with the target 0), ignored the ignored pairs.


def mean_over_texts(scores, targets, loss_of_positive):
    y, known, ignored = dense(targets)
    losses = []
    for i in range(targets.shape[0]):
        if y[i].sum() > 0:
            others = (~known[i] & ~ignored[i]).nonzero()[:, 0].tolist()
            positives = known[i].nonzero()[:, 0].tolist()
            terms = [y[i, p] / y[i].sum() * loss_of_positive(scores[i], p, positives, others) for p in positives]
            losses.append(sum(terms))
    return sum(losses) / len(losses) if losses else 0 * scores.sum()


def naive_decoupled(scores, targets):
    def loss(s, p, _positives, negatives):
        return torch.logsumexp(s[[p, *negatives]], 0) - s[p]

    return mean_over_texts(scores, targets, loss)


def naive_supcon(scores, targets):
    def loss(s, p, positives, negatives):
        return torch.logsumexp(s[[*positives, *negatives]], 0) - s[p]

    return mean_over_texts(scores, targets, loss)


def naive_triplet(scores, targets, margin=0.3, num_negatives=10, temperature=0.1):
    def loss(s, p, _positives, negatives):
        hardest = sorted(negatives, key=lambda n: -s[n].item())[:num_negatives]
        violators = [n for n in hardest if s[n].item() - s[p].item() + margin > 0]
        if not violators:
            return 0 * s.sum()
        return (torch.softmax(s[violators] / temperature, 0) * (s[violators] - s[p] + margin)).sum()

    return mean_over_texts(scores, targets, loss)


def naive_bce(scores, targets, reduction="mean", keep_texts_without_positive=False):
    y, known, ignored = dense(targets)
    counted = ~ignored & ~(known & (y == 0))
    if not keep_texts_without_positive:
        counted &= (y.sum(1) > 0)[:, None]
    losses = F.binary_cross_entropy_with_logits(scores[counted], y[counted], reduction="sum")
    num_texts = len(scores) if keep_texts_without_positive else int((y.sum(1) > 0).sum())
    return losses / max(1, int(counted.sum()) if reduction == "mean" else num_texts)


def naive_symmetric(scores, targets, naive, text_to_label, log_q=None):
    corrected = scores if log_q is None else scores - log_q.double()
    return text_to_label * naive(corrected, targets) + (1 - text_to_label) * naive(scores.T, targets.transposed())


PAIRS = {
    "decoupled_softmax": (decoupled_softmax, naive_decoupled),
    "supcon": (supcon, naive_supcon),
    "triplet": (triplet, naive_triplet),
    "triplet, 2 negatives": (
        partial(triplet, margin=0.2, num_negatives=2, temperature=0.5),
        partial(naive_triplet, margin=0.2, num_negatives=2, temperature=0.5),
    ),
    "bce": (bce, naive_bce),
    "bce, sum": (partial(bce, reduction="sum"), partial(naive_bce, reduction="sum")),
    "bce, all texts": (
        partial(bce, keep_texts_without_positive=True),
        partial(naive_bce, keep_texts_without_positive=True),
    ),
    "bce, sum, all texts": (
        partial(bce, reduction="sum", keep_texts_without_positive=True),
        partial(naive_bce, reduction="sum", keep_texts_without_positive=True),
    ),
    "symmetric decoupled": (
        partial(symmetric, text_to_label=0.3),
        partial(naive_symmetric, naive=naive_decoupled, text_to_label=0.3),
    ),
    "symmetric supcon": (
        partial(symmetric, loss=supcon, text_to_label=0.7),
        partial(naive_symmetric, naive=naive_supcon, text_to_label=0.7),
    ),
    "symmetric triplet": (
        partial(symmetric, loss=triplet, text_to_label=0.7),
        partial(naive_symmetric, naive=naive_triplet, text_to_label=0.7),
    ),
    "symmetric bce": (
        partial(symmetric, loss=bce, text_to_label=0.4),
        partial(naive_symmetric, naive=naive_bce, text_to_label=0.4),
    ),
}
each_loss = pytest.mark.parametrize(("loss", "naive"), PAIRS.values(), ids=PAIRS.keys())


def random_case(seed, num_texts, num_labels, *, soft=True, positive=0.3, ignored=0.15, scale=1.0):
    """Scores and targets in which some texts have no positive, some nothing but positives."""
    generator = torch.Generator().manual_seed(seed)
    draw = torch.rand(num_texts, num_labels, generator=generator)
    row_kind = torch.rand(num_texts, generator=generator)
    is_positive = draw < positive
    is_positive[row_kind < 0.1] = False
    is_positive[row_kind > 0.93] = True
    is_ignored = (draw > 1 - ignored) & ~is_positive
    rows, columns = is_positive.nonzero(as_tuple=True)
    weights = torch.rand(len(rows), generator=generator) * 0.9 + 0.1 if soft else None
    ignored_rows, ignored_columns = is_ignored.nonzero(as_tuple=True)
    targets = Targets.of(
        rows,
        columns,
        weights,
        ignored_rows=ignored_rows,
        ignored_columns=ignored_columns,
        shape=(num_texts, num_labels),
    )
    # Float32 numbers in float64, so that both types are given the same scores.
    return torch.randn(num_texts, num_labels, generator=generator).mul_(scale).double(), targets


def reference(naive, scores, targets):
    leaf = scores.clone().requires_grad_()
    value = naive(leaf, targets)
    value.backward()
    return value.detach(), leaf.grad


def assert_equals_naive(loss, naive, scores, targets, *, float32=True):
    value, gradient = reference(naive, scores, targets)
    found = loss(scores.clone(), targets)
    torch.testing.assert_close(found.value, value, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(found.gradient, gradient, rtol=1e-10, atol=1e-10)
    if float32:
        found = loss(scores.float(), targets)
        assert found.value.dtype == found.gradient.dtype == torch.float32
        torch.testing.assert_close(found.value.double(), value, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(found.gradient.double(), gradient, rtol=1e-5, atol=1e-5)


@each_loss
@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    num_texts=st.integers(1, 7),
    num_labels=st.integers(1, 14),
    soft=st.booleans(),
    positive=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    scale=st.sampled_from([0.1, 1.0, 10.0]),
)
def test_value_and_gradient_equal_the_formula(loss, naive, seed, num_texts, num_labels, soft, positive, scale):
    scores, targets = random_case(seed, num_texts, num_labels, soft=soft, positive=positive, scale=scale)
    # In float32 a hinge can fall on the other side of 0 than in float64, and its gradient jumps there.
    assert_equals_naive(loss, naive, scores, targets, float32="triplet" not in str(naive) or scale < 1)


@each_loss
@pytest.mark.parametrize("scale", [1e3, 1e4])
def test_large_scores_lose_nothing(loss, naive, scale):
    for seed in range(5):
        scores, targets = random_case(seed, 6, 9, scale=scale)
        assert_equals_naive(loss, naive, scores, targets, float32="triplet" not in str(naive))
        found = loss(scores.float(), targets)
        assert found.value.isfinite()
        assert found.gradient.isfinite().all()


@each_loss
def test_gradient_equals_finite_differences(loss, naive):
    scores, targets = random_case(4, 5, 8, scale=0.4)
    assert targets.num_positives > 5
    assert len(targets.ignored_rows) > 2
    assert torch.autograd.gradcheck(
        lambda scores: differentiable(loss)(scores, targets), scores.requires_grad_(), atol=1e-7
    )


@each_loss
def test_the_scores_become_the_gradient(loss, naive):
    scores, targets = random_case(1, 6, 9)
    found = loss(scores, targets)
    assert found.gradient.data_ptr() == scores.data_ptr()
    assert found.gradient.shape == scores.shape


@each_loss
def test_ignored_pairs_have_no_influence_and_no_gradient(loss, naive):
    scores, targets = random_case(2, 6, 9, ignored=0.4)
    plain = loss(scores.clone(), targets)
    assert len(targets.ignored_rows) > 10
    assert (plain.gradient[targets.ignored_rows, targets.ignored_columns] == 0).all()
    scores[targets.ignored_rows, targets.ignored_columns] = 5e3
    other = loss(scores, targets)
    assert torch.equal(plain.value, other.value)
    assert torch.equal(plain.gradient, other.gradient)


@each_loss
def test_the_order_of_texts_labels_and_pairs_does_not_matter(loss, naive):
    scores, targets = random_case(3, 6, 9)
    plain = loss(scores.clone(), targets)
    generator = torch.Generator().manual_seed(0)
    texts, labels = torch.randperm(6, generator=generator), torch.randperm(9, generator=generator)
    pairs = torch.randperm(targets.num_positives, generator=generator)
    new_row, new_column = texts.argsort(), labels.argsort()
    permuted = Targets(
        new_row[targets.rows][pairs],
        new_column[targets.columns][pairs],
        targets.weights[pairs],
        new_row[targets.ignored_rows],
        new_column[targets.ignored_columns],
        targets.shape,
    )
    found = loss(scores[texts][:, labels], permuted)
    torch.testing.assert_close(found.value, plain.value)
    torch.testing.assert_close(found.gradient, plain.gradient[texts][:, labels])


@pytest.mark.parametrize(
    "loss", [loss for name, (loss, _) in PAIRS.items() if "all texts" not in name] + [softmax_one_positive]
)
def test_no_positive_at_all_gives_zero(loss):
    for shape in [(3, 4), (1, 1), (0, 4), (3, 0), (0, 0)]:
        found = loss(torch.randn(shape), Targets.of([], [], shape=shape))
        assert found.value == 0
        assert found.value.dim() == 0
        assert torch.equal(found.gradient, torch.zeros(shape))


@pytest.mark.parametrize("loss", [decoupled_softmax, supcon, triplet, bce])
def test_a_text_without_a_positive_is_left_out(loss):
    scores, _ = random_case(5, 3, 4)
    alone = loss(scores[[0, 2]].clone(), Targets.of([0, 1], [1, 3], shape=(2, 4)))
    found = loss(scores.clone(), Targets.of([0, 2], [1, 3], shape=(3, 4)))
    torch.testing.assert_close(found.value, alone.value)
    torch.testing.assert_close(found.gradient[[0, 2]], alone.gradient)
    assert (found.gradient[1] == 0).all()


@pytest.mark.parametrize("loss", [decoupled_softmax, triplet, symmetric])
def test_a_text_with_nothing_but_positives_has_nothing_to_learn(loss):
    targets = Targets.of([0, 0], [0, 2], ignored_rows=[0], ignored_columns=[1], shape=(1, 3))
    found = loss(torch.tensor([[3.0, 9.0, -1e4]]), targets)
    assert found.value == 0
    assert (found.gradient == 0).all()


@pytest.mark.parametrize("loss", [decoupled_softmax, supcon, triplet, symmetric, partial(symmetric, loss=supcon)])
def test_a_pool_of_one_label(loss):
    found = loss(torch.tensor([[700.0]]), Targets.of([0], [0], shape=(1, 1)))
    assert found.value == 0
    assert found.gradient.item() == 0


@pytest.mark.parametrize("loss", [decoupled_softmax, supcon, partial(symmetric, loss=supcon), symmetric, triplet, bce])
def test_everything_ignored_but_one_positive(loss):
    targets = Targets.of([0], [1], ignored_rows=[0, 1, 1], ignored_columns=[0, 0, 1], shape=(2, 2))
    found = loss(torch.tensor([[9e3, 1.0], [9e3, -9e3]]), targets)
    assert found.gradient.isfinite().all()
    assert (found.gradient[[0, 1, 1], [0, 0, 1]] == 0).all()
    assert found.value == (0 if loss is not bce else F.softplus(torch.tensor(-1.0)))


# What each loss says about itself.


def test_decoupled_softmax_by_hand():
    # Z = e^0 + e^0 = 2; q = e / (e + 2) and 1 / (1 + 2); shares 1 / 1.5 and 0.5 / 1.5.
    targets = Targets.of([0, 0], [0, 1], [1.0, 0.5], shape=(1, 4))
    value, gradient = decoupled_softmax(torch.tensor([[1.0, 0.0, 0.0, 0.0]], dtype=torch.float64), targets)
    first, second = math.e / (math.e + 2), 1 / 3
    assert value.item() == pytest.approx(-(2 / 3) * math.log(first) - (1 / 3) * math.log(second))
    pull = [(2 / 3) * (1 - first), (1 / 3) * (1 - second)]
    assert gradient.tolist()[0] == pytest.approx([-pull[0], -pull[1], sum(pull) / 2, sum(pull) / 2])


def test_supcon_pushes_a_strong_positive_down_and_decoupled_softmax_does_not():
    targets = Targets.of([0, 0], [0, 1], shape=(1, 3))
    assert supcon(torch.tensor([[5.0, 0.0, 0.0]]), targets).gradient[0, 0] > 0
    assert (decoupled_softmax(torch.tensor([[5.0, 0.0, 0.0]]), targets).gradient[0, :2] < 0).all()


@pytest.mark.parametrize("loss", [decoupled_softmax, supcon])
def test_softmax_losses_know_differences_only(loss):
    scores, targets = random_case(6, 6, 9)
    plain = loss(scores.clone(), targets)
    shifted = loss(scores + torch.linspace(-50, 50, 6, dtype=torch.float64)[:, None], targets)
    torch.testing.assert_close(plain.value, shifted.value)
    torch.testing.assert_close(plain.gradient, shifted.gradient)
    assert plain.gradient.sum(1).abs().max() < 1e-12


@pytest.mark.parametrize("others", ["ignored", "negatives"])
def test_softmax_losses_are_one_where_each_text_has_one_positive(others):
    scores, _ = random_case(7, 5, 6)
    targets = Targets.of([0, 1, 2, 4], [0, 3, 3, 5], ignored_rows=[0], ignored_columns=[2], shape=(5, 6))
    expected = decoupled_softmax(scores.clone(), targets)
    for loss in (supcon, partial(softmax_one_positive, others=others)):
        found = loss(scores.clone(), targets)
        torch.testing.assert_close(found.value, expected.value)
        torch.testing.assert_close(found.gradient, expected.gradient)


@pytest.mark.parametrize("others", ["ignored", "negatives"])
def test_one_positive_treats_the_others_as_told(others):
    scores, targets = random_case(8, 6, 9, positive=0.5)
    drawn = one_positive(targets, torch.Generator().manual_seed(1))
    is_drawn = drawn.weights > 0
    left = targets.num_positives - int(is_drawn.sum())
    assert left > 5
    moved = (drawn.rows[~is_drawn], drawn.columns[~is_drawn]) if others == "ignored" else (drawn.rows[:0],) * 2
    by_hand = Targets.of(
        drawn.rows[is_drawn],
        drawn.columns[is_drawn],
        ignored_rows=torch.cat([targets.ignored_rows, moved[0]]),
        ignored_columns=torch.cat([targets.ignored_columns, moved[1]]),
        shape=targets.shape,
    )
    value, gradient = reference(naive_decoupled, scores, by_hand)
    found = softmax_one_positive(scores.clone(), drawn, others=others)
    torch.testing.assert_close(found.value, value, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(found.gradient, gradient, rtol=1e-10, atol=1e-10)
    for loss in (triplet, bce):
        if others == "ignored":
            torch.testing.assert_close(loss(scores.clone(), drawn), loss(scores.clone(), by_hand))


def test_the_mean_over_draws_is_the_mean_over_positives():
    scores, _ = random_case(9, 1, 5)
    targets = Targets.of([0, 0, 0], [0, 2, 3], [1.0, 0.5, 0.25], shape=(1, 5))
    for loss in (decoupled_softmax, supcon, triplet):
        whole = loss(scores.clone(), targets)
        draws = [loss(scores.clone(), replace(targets, weights=torch.eye(3)[p])) for p in range(3)]
        probabilities = targets.weights.double() / targets.weights.sum()
        torch.testing.assert_close(
            sum(p * draw.value for p, draw in zip(probabilities, draws, strict=True)), whole.value
        )
        torch.testing.assert_close(
            sum(p * draw.gradient for p, draw in zip(probabilities, draws, strict=True)), whole.gradient
        )


def test_one_positive_draws_by_target_and_by_seed():
    num_texts = 4000
    rows = torch.arange(num_texts).repeat_interleave(3)
    columns = torch.tensor([0, 2, 3]).repeat(num_texts)
    targets = Targets.of(rows, columns, torch.tensor([1.0, 0.5, 0.5]).repeat(num_texts), shape=(num_texts + 1, 4))
    drawn = one_positive(targets, torch.Generator().manual_seed(0))
    assert drawn.totals(torch.float64).tolist() == [1.0] * num_texts + [0.0]
    frequencies = drawn.weights.view(num_texts, 3).mean(0)
    # Three standard deviations of a frequency around 1/2 over 4000 draws are 0.024.
    torch.testing.assert_close(frequencies, torch.tensor([0.5, 0.25, 0.25]), rtol=0, atol=0.024)
    assert torch.equal(drawn.weights, one_positive(targets, torch.Generator().manual_seed(0)).weights)
    assert not torch.equal(drawn.weights, one_positive(targets, torch.Generator().manual_seed(1)).weights)


def test_triplet_ignores_negatives_beyond_the_margin():
    targets = Targets.of([0], [0], shape=(1, 3))
    assert triplet(torch.tensor([[0.9, 0.5, 0.1]]), targets).value == 0
    found = triplet(torch.tensor([[0.6, 0.5, 0.1]]), targets)
    assert found.value.item() == pytest.approx(0.2)
    assert found.gradient.tolist() == [[-1.0, 1.0, 0.0]]


def test_bce_sum_is_mean_times_labels():
    scores, targets = random_case(10, 4, 7, ignored=0)
    mean, summed = bce(scores.clone(), targets), bce(scores.clone(), targets, reduction="sum")
    torch.testing.assert_close(summed.value, mean.value * 7)
    torch.testing.assert_close(summed.gradient, mean.gradient * 7)


def test_bce_of_a_certain_positive_keeps_its_digits():
    found = bce(torch.tensor([[80.0, -80.0]]), Targets.of([0], [0], shape=(1, 2)), reduction="sum")
    assert found.value.item() == pytest.approx(2 * math.exp(-80), rel=1e-5)
    assert found.gradient.tolist()[0] == pytest.approx([-math.exp(-80), math.exp(-80)], rel=1e-5)


# Both directions.

fused_forms = pytest.mark.parametrize(
    ("loss", "form"), [(decoupled_softmax, DECOUPLED), (supcon, SUPCON)], ids=["decoupled", "supcon"]
)


@fused_forms
@pytest.mark.parametrize("with_log_q", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    num_texts=st.integers(1, 9),
    num_labels=st.integers(1, 9),
    text_to_label=st.sampled_from([0.0, 0.5, 0.8, 1.0]),
    scale=st.sampled_from([1.0, 8.0, 1e3]),
)
def test_both_directions_are_the_sum_of_two(
    loss, form, with_log_q, dtype, seed, num_texts, num_labels, text_to_label, scale
):
    scores, targets = random_case(seed, num_texts, num_labels, scale=scale)
    log_q = torch.linspace(-9, 0, num_labels, dtype=torch.float64).float() if with_log_q else None
    by_text = loss(scores.clone() if log_q is None else correct_log_q(scores.clone(), log_q), targets)
    by_label = loss(scores.T.clone(), targets.transposed())
    value = text_to_label * by_text.value + (1 - text_to_label) * by_label.value
    gradient = text_to_label * by_text.gradient + (1 - text_to_label) * by_label.gradient.T
    tolerance = 1e-5 if dtype is torch.float32 else 1e-10
    options = {"text_to_label": text_to_label, "log_q_P": log_q}
    for found in (
        symmetric(scores.to(dtype, copy=True), targets, loss, **options),
        _two_passes(scores.to(dtype, copy=True), targets, loss, **options),
    ):
        torch.testing.assert_close(found.value.double(), value, rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(found.gradient.double(), gradient, rtol=tolerance, atol=tolerance)


@fused_forms
@pytest.mark.parametrize("scale", [1.0, 6.0, 1e3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_shift_serves_as_long_as_it_fits(loss, form, scale, dtype):
    scores, targets = random_case(11, 8, 9, scale=scale)
    scores = scores.to(dtype)
    found = _fused(scores.clone(), targets, form, 0.5, None)
    if scale < 100:
        expected = _two_passes(scores.clone(), targets, loss, 0.5, None)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    else:
        untouched = scores.clone()
        assert _fused(untouched, targets, form, 0.5, None) is None
        assert found is None
        assert torch.equal(untouched, scores)


@fused_forms
def test_the_fused_form_holds_up_to_the_edge_of_its_range(loss, form):
    # Text 1 lies as far below the others as one shift allows; its gradient must still be that of its own softmax.
    # Text 2 is no anchor; it keeps the highest score of every label up.
    edge = -math.log(torch.finfo(torch.float32).tiny) + 1.5 * math.log(torch.finfo(torch.float32).eps)
    targets = Targets.of([0, 1], [0, 1], shape=(3, 4))
    for depth, fits in ((edge - 1, True), (edge + 1, False)):
        scores = torch.tensor([[0.0, -1.0, 0.0, -2.0], [-3.0, 0.0, -1.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
        scores[1] -= depth
        expected = reference(
            partial(naive_symmetric, naive=PAIRS[loss.__name__][1], text_to_label=1.0), scores.double(), targets
        )
        assert (_fused(scores.clone(), targets, form, 1.0, None) is not None) == fits
        found = symmetric(scores.clone(), targets, loss, text_to_label=1.0)
        torch.testing.assert_close(found.value.double(), expected[0], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(found.gradient.double(), expected[1], rtol=1e-5, atol=1e-5)


def test_log_q_lowers_the_scores_of_frequent_labels_before_the_loss():
    scores, targets = random_case(12, 5, 6)
    log_q = torch.tensor([0.5, 1.0, 0.1, 0.01, 0.2, 0.9]).log()
    expected = reference(
        partial(naive_symmetric, naive=naive_decoupled, text_to_label=0.4, log_q=log_q), scores, targets
    )
    found = symmetric(scores.clone(), targets, text_to_label=0.4, log_q_P=log_q)
    torch.testing.assert_close(tuple(found), expected, rtol=1e-10, atol=1e-10)
    assert torch.equal(correct_log_q(scores.clone(), log_q), scores - log_q.double())


# Inside autograd.


def test_differentiable_leaves_the_scores_and_scales_the_gradient():
    _, targets = random_case(13, 5, 6)
    texts = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    labels = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    product = texts @ labels.T
    before = product.detach().clone()
    value = 3 * differentiable(decoupled_softmax)(product, targets)
    first = torch.autograd.grad(value, (texts, labels), retain_graph=True)
    second = torch.autograd.grad(value, (texts, labels))
    assert torch.equal(product, before)
    expected = torch.autograd.grad(3 * naive_decoupled(texts @ labels.T, targets), (texts, labels))
    torch.testing.assert_close(first, expected)
    torch.testing.assert_close(second, expected)


@each_loss
def test_scores_need_not_be_contiguous(loss, naive):
    scores, targets = random_case(14, 6, 9)
    expected = loss(scores.clone(), targets)
    torch.testing.assert_close(loss(scores.T.contiguous().T, targets), expected)
    wide = torch.full((6, 20), 7.0, dtype=torch.float64)
    wide[:, 1:19:2] = scores
    torch.testing.assert_close(loss(wide[:, 1:19:2], targets), expected)
    assert (wide[:, ::2] == 7).all()


@each_loss
def test_no_loss_looks_at_values_on_another_device(loss, naive):
    # A tensor of the meta device has no values: whatever would wait for a device raises there.
    scores, targets = random_case(15, 6, 9)
    found = loss(scores.to("meta"), targets.to("meta"))
    assert found.value.shape == ()
    assert found.gradient.shape == scores.shape


# What is refused.


@pytest.mark.parametrize("loss", [decoupled_softmax, supcon, softmax_one_positive, triplet, bce, symmetric])
def test_scores_that_cannot_be_consumed_are_refused(loss):
    targets = Targets.of([0], [1], shape=(2, 3))
    with pytest.raises(ValueError, match=r"2 texts x 3 labels, but have \(3, 2\)"):
        loss(torch.zeros(3, 2), targets)
    with pytest.raises(ValueError, match=r"float32 or float64, but are torch.bfloat16; call scores.float\(\)"):
        loss(torch.zeros(2, 3, dtype=torch.bfloat16), targets)
    with pytest.raises(ValueError, match=r"must not require a gradient.*differentiable\(loss\)"):
        loss(torch.zeros(2, 3, requires_grad=True) * 1, targets)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0], [3]), "positive pairs must lie in 2 texts x 3 labels, but reach row 0 and column 3"),
        (([-1], [0]), "lowest: -1 and 0"),
        (([0, 1], [0]), r"one row and one column each, but have the shapes \(2,\) and \(1,\)"),
        (([0.0], [0]), "positive pairs must be int64, but are torch.float32"),
        (([0], [0], [0.0]), r"a target must be in \(0, 1\], but one is 0.0"),
        (([0], [0], [float("nan")]), r"a target must be in \(0, 1\], but one is nan"),
        (([0], [0], [1.0, 1.0]), r"one target per positive, but 1 have \(2,\)"),
        (([1, 1], [2, 2]), "a pair must be named once, as positive or as ignored, but row 1, column 2"),
    ],
)
def test_targets_are_checked(arguments, message):
    with pytest.raises(ValueError, match=message):
        Targets.of(*arguments, shape=(2, 3))


def test_a_pair_is_not_both_positive_and_ignored():
    with pytest.raises(ValueError, match=r"named once.* row 0, column 2"):
        Targets.of([0], [2], ignored_rows=[0], ignored_columns=[2], shape=(2, 3))
    with pytest.raises(ValueError, match="ignored pairs must lie in 2 texts"):
        Targets.of([0], [2], ignored_rows=[2], ignored_columns=[2], shape=(2, 3))


def test_options_are_checked():
    targets, scores = Targets.of([0, 0], [0, 1], shape=(1, 3)), torch.zeros(1, 3)
    with pytest.raises(ValueError, match="one drawn positive, but one has 2; draw with one_positive"):
        softmax_one_positive(scores, targets)
    with pytest.raises(ValueError, match='"ignored" or "negatives", but is \'skipped\''):
        softmax_one_positive(scores, targets, others="skipped")
    with pytest.raises(ValueError, match=r"text_to_label must be between 0 and 1, but is 1\.5"):
        symmetric(scores, targets, text_to_label=1.5)
    with pytest.raises(ValueError, match="num_negatives must be at least 1, but is 0"):
        triplet(scores, targets, num_negatives=0)
    with pytest.raises(ValueError, match="temperature must be > 0, but is 0"):
        triplet(scores, targets, temperature=0)
    with pytest.raises(ValueError, match='reduction must be "mean" or "sum", but is \'none\''):
        bce(scores, targets, reduction="none")
    with pytest.raises(ValueError, match=r"log q must have one value per label \(3\), but has \(2,\)"):
        correct_log_q(scores, torch.zeros(2))


def test_the_examples_of_the_losses_page_run():
    document = DOCS / "reference" / "losses.md"
    failed, tried = doctest.testfile(str(document), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert failed == 0
    assert tried > 5
