"""CPU time of each loss beside autograd's and beside the matrix product that makes the scores.

    python benchmarks/losses.py [--texts 1024] [--labels 900] [--dim 192] [--threads 2] [--rounds 10]

Times are milliseconds of CPU, all threads together, of value and gradient. Blocks of runs of all candidates take
turns, and the least of each counts: what else the machine does can only add. "ratio" is to the product
of texts x dim x labels.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812  # the name everybody knows it by
from torch import Tensor

from unidex.losses import (
    Loss,
    Targets,
    bce,
    decoupled_softmax,
    differentiable,
    one_positive,
    softmax_one_positive,
    supcon,
    symmetric,
    triplet,
)


def eager_decoupled(scores_BP: Tensor, targets: Targets) -> Tensor:
    """The loss as one would write it for autograd."""
    positives_M = scores_BP[targets.rows, targets.columns]
    known_BP = torch.zeros(targets.shape, dtype=torch.bool)
    known_BP[targets.rows, targets.columns] = True
    known_BP[targets.ignored_rows, targets.ignored_columns] = True
    log_z_B = torch.logsumexp(scores_BP.masked_fill(known_BP, -torch.inf), dim=1)
    shares_M = targets.shares(scores_BP.dtype)
    return (shares_M * F.softplus(log_z_B[targets.rows] - positives_M)).sum()


def eager_symmetric(scores_BP: Tensor, targets: Targets) -> Tensor:
    """The same in both directions."""
    return 0.5 * (eager_decoupled(scores_BP, targets) + eager_decoupled(scores_BP.T, targets.transposed()))


def eager_bce(scores_BP: Tensor, targets: Targets) -> Tensor:
    """The mean over pairs."""
    targets_BP = torch.zeros(targets.shape)
    targets_BP[targets.rows, targets.columns] = targets.weights
    counted_BP = torch.ones(targets.shape)
    counted_BP[targets.ignored_rows, targets.ignored_columns] = 0
    return F.binary_cross_entropy_with_logits(scores_BP, targets_BP, counted_BP, reduction="sum") / counted_BP.sum()


def cpu_ms(run: Callable[[Tensor], object], scores_BP: Tensor, *, num_runs: int = 20) -> float:
    """CPU milliseconds of ``run`` on a fresh copy of the scores, the copy included; the mean over a block of runs.

    A block, because the kernel books the time of other threads with a delay of a few milliseconds.
    """
    start = time.process_time()
    for _ in range(num_runs):
        run(scores_BP.clone())
    return (time.process_time() - start) / num_runs * 1e3


def through_autograd(loss: Callable[[Tensor, Targets], Tensor], targets: Targets) -> Callable[[Tensor], object]:
    def run(scores_BP: Tensor) -> object:
        scores_BP.requires_grad_()
        loss(scores_BP, targets).backward()
        return scores_BP.grad

    return run


def consuming(loss: Loss, targets: Targets) -> Callable[[Tensor], object]:
    return partial(loss, targets=targets)


def random_targets(num_texts: int, num_labels: int, generator: torch.Generator) -> Targets:
    """Three positives and one ignored pair a text."""
    places = torch.rand(num_texts, num_labels, generator=generator).topk(4, dim=1).indices
    rows = torch.arange(num_texts)
    return Targets.of(
        rows.repeat_interleave(3),
        places[:, :3].reshape(-1),
        ignored_rows=rows,
        ignored_columns=places[:, 3],
        shape=(num_texts, num_labels),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--texts", type=int, default=1024)
    parser.add_argument("--labels", type=int, default=900)
    parser.add_argument("--dim", type=int, default=192)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    generator = torch.Generator().manual_seed(0)
    targets = random_targets(options.texts, options.labels, generator)
    drawn = one_positive(targets, generator)
    texts_BD = F.normalize(torch.randn(options.texts, options.dim, generator=generator))
    labels_PD = F.normalize(torch.randn(options.labels, options.dim, generator=generator))
    cosines_BP = texts_BD @ labels_PD.T
    scores_BP = cosines_BP / 0.05
    wide_BP = torch.randn(options.texts, options.labels, generator=generator) * 300

    candidates = [
        ("copy of the scores", lambda _: None, scores_BP),
        ("matrix product", lambda out_BP: torch.mm(texts_BD, labels_PD.T, out=out_BP), scores_BP),
        ("decoupled_softmax", consuming(decoupled_softmax, targets), scores_BP),
        ("decoupled_softmax, scores of size 300", consuming(decoupled_softmax, targets), wide_BP),
        ("decoupled_softmax, differentiable", through_autograd(differentiable(decoupled_softmax), targets), scores_BP),
        ("decoupled_softmax, eager autograd", through_autograd(eager_decoupled, targets), scores_BP),
        ("supcon", consuming(supcon, targets), scores_BP),
        ("softmax_one_positive", consuming(softmax_one_positive, drawn), scores_BP),
        ("triplet", consuming(triplet, drawn), cosines_BP),
        ("bce", consuming(bce, targets), scores_BP),
        ("bce, eager autograd", through_autograd(eager_bce, targets), scores_BP),
        ("symmetric decoupled_softmax", consuming(symmetric, targets), scores_BP),
        ("symmetric decoupled_softmax, size 300", consuming(symmetric, targets), wide_BP),
        (
            "symmetric decoupled_softmax, differentiable",
            through_autograd(differentiable(symmetric), targets),
            scores_BP,
        ),
        ("symmetric decoupled_softmax, eager autograd", through_autograd(eager_symmetric, targets), scores_BP),
        ("symmetric supcon", consuming(partial(symmetric, loss=supcon), targets), scores_BP),
    ]
    least = [
        min(times)
        for times in zip(
            *([cpu_ms(run, matrix_BP) for _, run, matrix_BP in candidates] for _ in range(options.rounds)), strict=True
        )
    ]
    copying, product, *_ = least
    print(f"{options.texts} texts, {options.labels} labels, dim {options.dim}, {options.threads} threads, float32")
    print(f"{'':44}{'CPU ms':>8}{'ratio':>8}")
    for (name, _, _), spent in list(zip(candidates, least, strict=True))[1:]:
        print(f"{name:44}{spent - copying:8.2f}{(spent - copying) / (product - copying):8.2f}")


if __name__ == "__main__":
    main()
