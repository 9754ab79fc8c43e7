"""The blocked losses against the whole matrix of scores, written out text by text and left to autograd."""

import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # the name everybody knows it by
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.blocked import as_function
from helpers.dense_targets import dense
from helpers.simulated_ranks import Threads
from unidex.config import Loss
from unidex.losses import (
    BlockedBce,
    BlockedContrastive,
    BlockedSoftmax,
    BlockedTriplet,
    HeadLoss,
    RegisteredLoss,
    Targets,
    bce,
    contrastive,
    decoupled_softmax,
    differentiable,
    one_positive,
    supcon,
    symmetric,
    triplet,
)
from unidex.losses.blocks import LabelBlocks
from unidex.losses.softmax import DECOUPLED, SUPCON

SOFTMAX = sys.modules["unidex.losses.blocked_softmax"]
blocked_softmax, blocked_bce = as_function(BlockedSoftmax), as_function(BlockedBce)


# The formulas. y holds the targets, known the positives (also those with the target 0), ignored the ignored pairs.


def naive_direction(scores, y, known, ignored, form):
    losses = []
    for i in (y.sum(1) > 0).nonzero()[:, 0].tolist():
        negatives = scores[i][~known[i] & ~ignored[i]]
        pool = scores[i][~ignored[i]]
        terms = [
            y[i, p]
            / y[i].sum()
            * (torch.logsumexp(torch.cat([scores[i, [p]], negatives]) if form is DECOUPLED else pool, 0) - scores[i, p])
            for p in known[i].nonzero()[:, 0].tolist()
        ]
        losses.append(sum(terms))
    return sum(losses) / len(losses) if losses else 0 * scores.sum()


def naive_softmax(scores, targets, form=DECOUPLED, text_to_label=1.0, log_q_L=None):
    y, known, ignored = dense(targets)
    corrected = scores if log_q_L is None else scores - log_q_L.double()
    by_text = naive_direction(corrected, y, known, ignored, form)
    by_label = naive_direction(scores.T, y.T, known.T, ignored.T, form)
    return text_to_label * by_text + (1 - text_to_label) * by_label


def naive_bce(scores, targets, reduction="mean", keep_texts_without_positive=False):
    y, known, ignored = dense(targets)
    counted = ~ignored & ~(known & (y == 0))
    if not keep_texts_without_positive:
        counted &= (y.sum(1) > 0)[:, None]
    losses = F.binary_cross_entropy_with_logits(scores[counted], y[counted], reduction="sum")
    num_texts = len(scores) if keep_texts_without_positive else int((y.sum(1) > 0).sum())
    return losses / max(1, int(counted.sum()) if reduction == "mean" else num_texts)


# A loss that registers no blocked form.
DENSE_ONLY = RegisteredLoss(
    "dense-only", dense=lambda settings: decoupled_softmax, takes_text_to_label=True, takes_log_q=True
)
LOSSES = {
    "decoupled": (blocked_softmax, naive_softmax),
    "supcon": (partial(blocked_softmax, form=SUPCON), partial(naive_softmax, form=SUPCON)),
    "decoupled, both directions": (
        partial(blocked_softmax, text_to_label=0.3),
        partial(naive_softmax, text_to_label=0.3),
    ),
    "supcon, both directions": (
        partial(blocked_softmax, form=SUPCON, text_to_label=0.3),
        partial(naive_softmax, form=SUPCON, text_to_label=0.3),
    ),
    "decoupled, label to text": (
        partial(blocked_softmax, text_to_label=0),
        partial(naive_softmax, text_to_label=0),
    ),
    "supcon, label to text": (
        partial(blocked_softmax, form=SUPCON, text_to_label=0),
        partial(naive_softmax, form=SUPCON, text_to_label=0),
    ),
    "bce, sum": (partial(blocked_bce, reduction="sum"), partial(naive_bce, reduction="sum")),
    "bce, mean": (blocked_bce, naive_bce),
    "bce, sum, all texts": (
        partial(blocked_bce, reduction="sum", keep_texts_without_positive=True),
        partial(naive_bce, reduction="sum", keep_texts_without_positive=True),
    ),
    "bce, mean, all texts": (
        partial(blocked_bce, keep_texts_without_positive=True),
        partial(naive_bce, keep_texts_without_positive=True),
    ),
    # The dense forms of these are held to their formulas in tests/unit/losses.
    "triplet": (
        partial(as_function(BlockedTriplet), num_negatives=3),
        differentiable(partial(triplet, num_negatives=3)),
    ),
    "triplet, hardest positives": (
        partial(as_function(BlockedTriplet), num_positives=2, margin=2.0),
        differentiable(partial(triplet, num_positives=2, margin=2.0)),
    ),
    "contrastive": (
        partial(as_function(BlockedContrastive), num_negatives=4, d=0.5, min_term=0.3),
        differentiable(partial(contrastive, num_negatives=4, d=0.5, min_term=0.3)),
    ),
    **{
        f"{name}, bce beside it": (
            HeadLoss.of(name, Loss(text_to_label=0.3), bce_weight=0.4).blocked,
            differentiable(HeadLoss.of(name, Loss(text_to_label=0.3), bce_weight=0.4).dense()),
        )
        for name in ("decoupled-softmax", "supcon", "soft-top-k", "triplet", "contrastive", "bce")
    },
    "collected": (HeadLoss(DENSE_ONLY, Loss(text_to_label=1.0)).blocked, naive_softmax),
    "collected, both directions": (
        HeadLoss(DENSE_ONLY, Loss(text_to_label=0.3)).blocked,
        partial(naive_softmax, text_to_label=0.3),
    ),
    "collected, bce beside it": (
        HeadLoss(DENSE_ONLY, Loss(text_to_label=0.3), bce_weight=0.4).blocked,
        lambda scores, targets: naive_softmax(scores, targets, text_to_label=0.3) + 0.4 * naive_bce(scores, targets),
    ),
}
each_loss = pytest.mark.parametrize(("loss", "naive"), LOSSES.values(), ids=LOSSES.keys())
SOFTMAXES = dict(list(LOSSES.items())[:6])
softmaxes = pytest.mark.parametrize(("loss", "naive"), SOFTMAXES.values(), ids=SOFTMAXES.keys())
WITH_LOG_Q = SOFTMAXES | {name: LOSSES[name] for name in ("collected", "collected, both directions")}
each_with_log_q = pytest.mark.parametrize(("loss", "naive"), WITH_LOG_Q.values(), ids=WITH_LOG_Q.keys())


def random_targets(generator, num_texts, num_labels, *, positive=0.3, ignored=0.15):
    """Text 0 has nothing but positives, text 1 none; the others some, softly, and some ignored pairs."""
    draw = torch.rand(num_texts, num_labels, generator=generator)
    is_positive = draw < positive
    is_positive[:1], is_positive[1:2] = True, False
    rows, columns = is_positive.nonzero(as_tuple=True)
    ignored_rows, ignored_columns = ((draw > 1 - ignored) & ~is_positive).nonzero(as_tuple=True)
    order = torch.randperm(len(rows), generator=generator)
    return Targets.of(
        rows[order],
        columns[order],
        torch.rand(len(rows), generator=generator) * 0.9 + 0.1,
        ignored_rows=ignored_rows,
        ignored_columns=ignored_columns,
        shape=(num_texts, num_labels),
    )


def random_case(seed, num_texts=5, num_labels=11, dim=4, *, size=3.0, **how):
    """Texts, labels, a scale and targets; ``size`` is about that of the scores."""
    generator = torch.Generator().manual_seed(seed)
    targets = random_targets(generator, num_texts, num_labels, **how)
    # Float32 numbers in float64, so that both types are given the same.
    texts = torch.randn(num_texts, dim, generator=generator).double()
    labels = torch.randn(num_labels, dim, generator=generator).double()
    return texts, labels, torch.tensor(size / dim**0.5).double(), targets


def reference(naive, texts, labels, scale, targets):
    leaves = [part.double().requires_grad_() for part in (texts, labels, scale)]
    value = naive(leaves[2] * leaves[0] @ leaves[1].T, targets)
    return value.detach(), *torch.autograd.grad(value, leaves)


def assert_near(found, expected, tolerance):
    """Value and gradients, each relative to the size of what it should be."""
    for part, should_be in zip(found, expected, strict=True):
        assert part.shape == should_be.shape
        assert torch.isfinite(part).all()
        size = float(should_be.abs().max()) if should_be.numel() else 0.0
        torch.testing.assert_close(part.double(), should_be.double(), rtol=0, atol=tolerance * max(size, 1e-3))


@each_loss
@pytest.mark.parametrize("block_size", [1, 3, 11, 40, None])
def test_value_and_gradients_equal_the_formula(loss, naive, block_size):
    case = random_case(0)
    expected = reference(naive, *case)
    assert_near(loss(*case, block_size=block_size), expected, 1e-10)
    *parts, targets = case
    assert_near(loss(*(part.float() for part in parts), targets, block_size=block_size), expected, 1e-5)


@each_loss
@pytest.mark.parametrize("block_size", [1, 4, 11])
@pytest.mark.parametrize("size", [1e3, 1e4])
def test_large_scores_lose_nothing(loss, naive, block_size, size):
    case = random_case(1, size=size)
    expected = reference(naive, *case)
    assert_near(loss(*case, block_size=block_size), expected, 1e-10)
    # A score of that size is itself only known to so many digits, and its power with it.
    *parts, targets = case
    single = loss(*(part.float() for part in parts), targets, block_size=block_size)
    assert_near(single, expected, 10 * size * torch.finfo(torch.float32).eps)


@softmaxes
@pytest.mark.parametrize("correct", [False, True])
def test_small_scores_are_the_same_with_and_without_a_shift(loss, naive, correct, monkeypatch):
    *sides, targets = case = random_case(2)
    if correct:
        log_q = torch.linspace(0.01, 1, len(sides[1])).log()
        loss, naive = partial(loss, log_q_L=log_q), partial(naive, log_q_L=log_q)
    sides = [side.float() for side in sides]
    plain = loss(*sides, targets, block_size=4)
    monkeypatch.setattr(SOFTMAX, "_all_small", lambda *_: False)
    assert_near(loss(*sides, targets, block_size=4), plain, 1e-5)
    assert_near(plain, reference(naive, *case), 1e-5)


@softmaxes
@pytest.mark.parametrize("size", [62, 64])
def test_scores_at_the_edge_of_the_unshifted_range(loss, naive, size):
    """2^63 is where the shift begins: scores of texts 0 and 1 are about as high, of 2 and 3 as low as can be."""
    angles = torch.linspace(0, 0.1, 9).double()
    labels = torch.stack([angles.cos(), angles.sin()], dim=1)
    texts = torch.tensor([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0]]).double()
    targets = Targets.of([0, 1, 1, 2, 3], [8, 1, 2, 3, 3], [0.5, 1.0, 0.2, 1.0, 1.0], shape=(4, 9))
    case = texts, labels, torch.tensor(size * SOFTMAX.LOG_2).double(), targets
    *sides, _ = (part.float() if torch.is_tensor(part) else part for part in case)
    assert SOFTMAX._all_small(LabelBlocks(*sides, targets), None) == (size < 63)
    assert_near(loss(*sides, targets, block_size=4), reference(naive, *case), 1e-4)


@each_loss
def test_positives_that_were_not_drawn_have_no_influence(loss, naive):
    *sides, targets = random_case(3)
    drawn = one_positive(targets, torch.Generator().manual_seed(0))
    assert int((drawn.weights == 0).sum()) > 5
    assert_near(loss(*sides, drawn, block_size=4), reference(naive, *sides, drawn), 1e-10)


@each_with_log_q
def test_log_q_lowers_the_scores_of_frequent_labels(loss, naive):
    case = random_case(4)
    log_q = torch.linspace(1e-5, 1, 11).log()
    expected = reference(partial(naive, log_q_L=log_q), *case)
    assert_near(loss(*case, log_q_L=log_q, block_size=3), expected, 1e-10)


@pytest.mark.parametrize(
    ("loss", "whole"),
    [
        (blocked_softmax, decoupled_softmax),
        (partial(blocked_softmax, form=SUPCON), supcon),
        (partial(blocked_softmax, text_to_label=0.7), partial(symmetric, text_to_label=0.7)),
        (blocked_bce, bce),
    ],
    ids=["decoupled", "supcon", "symmetric", "bce"],
)
def test_the_blocked_loss_equals_the_loss_on_the_whole_matrix(loss, whole):
    texts, labels, scale, targets = random_case(5)
    value, gradient = whole(scale * texts @ labels.T, targets)
    expected = value, scale * gradient @ labels, scale * gradient.T @ texts, (gradient * (texts @ labels.T)).sum()
    assert_near(loss(texts, labels, scale, targets, block_size=4), expected, 1e-12)


@settings(max_examples=60)
@given(
    name=st.sampled_from(sorted(LOSSES)),
    seed=st.integers(0, 10_000),
    num_texts=st.integers(1, 6),
    num_labels=st.integers(1, 9),
    block_size=st.integers(1, 10),
    positive=st.floats(0, 1),
    ignored=st.floats(0, 1),
    size=st.sampled_from([1.0, 30.0, 1e3]),
)
def test_blocked_losses_equal_the_formula_for_any_targets(
    name, seed, num_texts, num_labels, block_size, positive, ignored, size
):
    loss, naive = LOSSES[name]
    case = random_case(seed, num_texts, num_labels, size=size, positive=positive, ignored=ignored)
    assert_near(loss(*case, block_size=block_size), reference(naive, *case), 1e-9)


@each_loss
def test_no_positive_at_all_gives_zero(loss, naive):
    texts, labels, scale, _ = random_case(6)
    targets = Targets.of([], [], ignored_rows=[2, 3], ignored_columns=[0, 10], shape=(5, 11))
    assert_near(
        loss(texts, labels, scale, targets, block_size=4), reference(naive, texts, labels, scale, targets), 1e-10
    )


@each_loss
@pytest.mark.parametrize(("num_texts", "num_labels"), [(0, 4), (4, 0), (0, 0)])
def test_no_texts_and_no_labels_give_zero(loss, naive, num_texts, num_labels):
    targets = Targets.of([], [], shape=(num_texts, num_labels))
    found = loss(torch.ones(num_texts, 3), torch.ones(num_labels, 3), torch.tensor(2.0), targets)
    assert [tuple(part.shape) for part in found] == [(), (num_texts, 3), (num_labels, 3), ()]
    assert all(not part.any() for part in found)


@each_loss
def test_a_sink_gets_the_gradients_of_the_labels_and_may_change_them(loss, naive):
    texts, labels, scale, targets = random_case(7)
    expected = loss(texts, labels, scale, targets, block_size=3)
    gradient, times = torch.zeros_like(labels), torch.zeros(len(labels))

    def sink(places, grad):
        gradient[places] = grad
        times[places] += 1
        labels[places] = torch.nan

    found = loss(texts, labels, scale, targets, block_size=3, sink=sink)
    assert found.labels_LD is None
    assert (times == 1).all()
    assert_near((found.value, found.texts_BD, gradient, found.scale), expected, 1e-14)


def spread(loss, case, bounds, log_q=None):
    """What three processes make of the case together, each with the labels between two bounds."""
    texts, labels, scale, targets = case

    def work(number, ranks):
        start, stop = bounds[number : number + 2]
        options = {} if log_q is None else {"log_q_L": log_q[start:stop]}
        own = targets.between(start, stop)
        return loss(texts, labels[start:stop], scale, own, block_size=3, ranks=ranks, **options)

    parts = Threads(3).run(work)
    assert len({float(part.value) for part in parts}) == 1
    return (
        parts[0].value,
        sum(part.texts_BD for part in parts),
        torch.cat([part.labels_LD for part in parts]),
        sum(part.scale for part in parts),
    )


each_spread = pytest.mark.parametrize("bounds", [(0, 5, 7, 11), (0, 1, 1, 11), (0, 0, 9, 11)], ids=str)


@each_loss
@each_spread
@pytest.mark.parametrize("size", [3.0, 1e3])
def test_labels_spread_over_processes(loss, naive, bounds, size):
    """The last label of every shard is a positive of text 0, and alone that of another text."""
    texts, labels, scale, _ = random_case(8, size=size)
    columns = [*range(11), *(max(0, stop - 1) for stop in bounds[1:]), 3, 4]
    weights = torch.linspace(0.1, 1, len(columns))
    targets = Targets.of(
        [0] * 11 + [1, 2, 3, 3, 3], columns, weights, ignored_rows=[1, 1], ignored_columns=[2, 9], shape=(5, 11)
    )
    case = texts, labels, scale, targets
    assert_near(spread(loss, case, bounds), reference(naive, *case), 1e-10)


@each_loss
@each_spread
def test_random_targets_spread_over_processes(loss, naive, bounds):
    case = random_case(9)
    assert_near(spread(loss, case, bounds), loss(*case, block_size=3), 1e-12)


@each_with_log_q
@pytest.mark.parametrize(("size", "rarest"), [(3.0, -5.0), (3.0, -500.0), (1e3, -5.0)])
def test_log_q_spread_over_processes(loss, naive, size, rarest):
    """A correction can be what makes scores large, and on one process alone."""
    case = random_case(10, size=size)
    log_q = torch.linspace(0.01, 1, 11).double().log()
    log_q[2] = rarest
    assert_near(spread(loss, case, (0, 5, 7, 11), log_q), loss(*case, log_q_L=log_q), 1e-10)


def test_arguments_that_require_a_gradient_stay_leaves():
    texts, labels, scale, targets = random_case(9)
    leaves = [part.requires_grad_() for part in (texts, labels, scale)]
    found = blocked_softmax(*leaves, targets)
    assert not any(part.requires_grad for part in found)
    assert all(leaf.grad is None for leaf in leaves)


PROGRAM = r"""
import re, torch
from functools import partial
from pathlib import Path
from unidex.config import Loss as Settings
from unidex.losses import *
torch.set_num_threads(1)
B, L, D = 64, 200_000, 16

def case(num_labels):
    rows = torch.arange(B)
    return torch.ones(B, D), torch.ones(num_labels, D), torch.tensor(1.0), Targets.of(rows, rows, shape=(B, num_labels))

def dense(texts, labels, scale, targets):
    value, gradient = decoupled_softmax(scale * texts @ labels.T, targets)
    return value, gradient @ labels, gradient.T @ texts

def kilobytes(name):
    return int(re.search(name + r":\s+(\d+) kB", Path("/proc/self/status").read_text())[1])

def peak(step):
    step(*case(100))
    arguments = case(L)
    Path("/proc/self/clear_refs").write_text("5")  # the highest memory so far is forgotten
    before = kilobytes("VmRSS")
    step(*arguments)
    return kilobytes("VmHWM") - before

def to_a_sink(*arguments):
    return run_blocked(BlockedSoftmax, *arguments, sink=lambda places, gradient: None)

blocked = [BlockedSoftmax, partial(BlockedSoftmax, text_to_label=0.5), BlockedBce, BlockedTriplet]
both = HeadLoss.of("decoupled-softmax", Settings(), bce_weight=0.5).blocked
print(*map(peak, [dense, to_a_sink, *(partial(run_blocked, loss) for loss in blocked), both]))
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux tells the highest memory in use")
def test_no_texts_x_labels_matrix_is_built():
    """Measured from outside: 64 x 200,000 scores are 50,000 kB, the gradients of the labels 12,500, a block 16,384."""
    # Freed memory goes back at once, so that each step shows all it takes.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, env=environment)
    whole, to_a_sink, *blocked, both = map(int, done.stdout.split())
    assert whole > 50_000
    assert max(blocked) < 12_500 + 16_384 + 8_000
    # Each loss has a block of scores.
    assert both < 12_500 + 2 * 16_384 + 8_000
    assert to_a_sink < 16_384 + 8_000


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"texts_BD": torch.ones(2, 4)}, "same number of dimensions per row, but have the shapes (2, 4) and (3, 5)"),
        ({"labels_LD": torch.ones(4, 5)}, "2 texts x 3 labels, but there are 2 texts and 4 labels"),
        ({"labels_LD": torch.ones(3, 5).bfloat16()}, "but are torch.float32 and torch.bfloat16; call .float() first"),
        ({"scale": torch.ones(1)}, "scale must be a tensor without dimensions, but has the shape (1,)"),
        ({"block_size": 0}, "block_size must be at least 1, but is 0"),
    ],
)
@pytest.mark.parametrize("loss", [blocked_softmax, blocked_bce])
def test_invalid_arguments_are_refused(loss, change, message):
    arguments = {
        "texts_BD": torch.ones(2, 5),
        "labels_LD": torch.ones(3, 5),
        "scale": torch.tensor(1.0),
        "targets": Targets.of([0], [0], shape=(2, 3)),
    }
    with pytest.raises(ValueError, match=re.escape(message)):
        loss(**arguments | change)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (partial(blocked_softmax, text_to_label=1.1), "text_to_label must be between 0 and 1, but is 1.1"),
        (partial(blocked_softmax, log_q_L=torch.zeros(2)), "log q must have one value per label (3), but has (2,)"),
        (partial(blocked_bce, reduction="max"), 'reduction must be "mean" or "sum", but is \'max\''),
    ],
)
def test_options_are_checked(loss, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        loss(torch.ones(2, 5), torch.ones(3, 5), torch.tensor(1.0), Targets.of([0], [0], shape=(2, 3)))
