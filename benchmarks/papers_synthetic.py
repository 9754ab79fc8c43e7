"""Experiments on synthetic scores: DEXML's appendix C.1 in our own form, gradient flow, and cost against positives."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from papers_runs import in_child
from unidex.losses import Targets, decoupled_softmax, supcon
from unidex.losses.gradient import Loss
from unidex.losses.soft_topk import soft_topk_loss

EXPERIMENTS = {
    "dexml-c1": "An easy positive beside random ones: what each loss lets the easy one reach",
    "dexml-gradients": "Gradient at positives, by how far they are above the negatives",
    "unidec-push": "Push on the negatives of a text with a hard positive, by how easy its other positive is",
    "dexml-cost": "CPU time and memory of decoupled softmax, by positives per text",
}
LOSSES: dict[str, Loss] = {
    "softmax": supcon,
    "decoupled softmax": decoupled_softmax,
    "soft top-5": partial(soft_topk_loss, k=5),
    "soft top-100": partial(soft_topk_loss, k=100),
}
_TEMPERATURE = 0.05


def imbalance(num_seeds: int = 3) -> str:
    """Each text has one positive by its topic, which is easy, and random ones, which can only be memorised.

    A text's vector is that of its topic plus one of its own; a new text of a topic has the topic's alone. The paper's
    text of C.1 is not among our sources: sizes are ours.
    """
    lines = [
        "| random positives per text | loss | P@1 on new texts | margin of the easy positive | pushed down |",
        "|---:|---|---:|---:|---:|",
    ]
    for num_random in (1, 5, 20):
        for name in ("softmax", "decoupled softmax"):
            found = np.array([_trained(LOSSES[name], num_random, seed) for seed in range(num_seeds)])
            mean, spread = found.mean(axis=0), found.std(axis=0, ddof=1)
            shown = [f"{m:.1f} ± {s:.1f}" for m, s in zip(mean, spread, strict=True)]
            lines.append(f"| {num_random} | {name} | {shown[0]} | {shown[1]} | {shown[2]}% |")
    return "\n".join(lines) + "\n"


def _trained(
    loss: Loss, num_random: int, seed: int, *, texts: int = 600, labels: int = 300, topics: int = 60, steps: int = 300
) -> tuple:
    """P@1 of topics, the margin of their label in scores, and how often the loss pushed an easy positive down."""
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    topic_N = np.arange(texts) % topics
    others = np.stack([rng.choice(np.delete(np.arange(labels), topic), num_random, False) for topic in topic_N])
    columns = np.sort(np.concatenate([topic_N[:, None], others], axis=1), axis=1)
    rows = torch.from_numpy(np.repeat(np.arange(texts), num_random + 1))
    targets = Targets.of(rows, torch.from_numpy(columns.ravel()), shape=(texts, labels))
    of_topics, own, of_labels = (
        (torch.randn(count, 32, generator=generator) * size).requires_grad_()
        for count, size in ((topics, 1.0), (texts, 0.1), (labels, 1.0))
    )
    optimiser = torch.optim.Adam([of_topics, own, of_labels], lr=0.02)
    easy, down = torch.from_numpy(topic_N), []
    for _ in range(steps):
        vectors = torch.nn.functional.normalize(of_topics[easy] + own)
        scores = vectors @ torch.nn.functional.normalize(of_labels).T / _TEMPERATURE
        gradient = loss(scores.detach().clone(), targets).gradient
        down.append(float((gradient[torch.arange(texts), easy] > 0).float().mean()))
        optimiser.zero_grad()
        scores.backward(gradient)
        optimiser.step()
    with torch.no_grad():
        units = torch.nn.functional.normalize(of_topics), torch.nn.functional.normalize(of_labels)
        scores = units[0] @ units[1].T / _TEMPERATURE
        ids = torch.arange(topics)
        right = scores[ids, ids].clone()
        scores[ids, ids] = -torch.inf
        margin = right - scores.amax(1)
    return 100 * float((margin > 0).float().mean()), float(margin.mean()), 100 * float(np.mean(down))


def gradients(num_positives: int = 10, num_labels: int = 5000) -> str:
    """One text: negatives have scores of spread 1, positives stand at a distance above their mean."""
    distances = (-4, 0, 4, 8, 16)
    lines = [
        f"| loss | {' | '.join(f'at {distance:+d}' for distance in distances)} |",
        "|---|" + "---:|" * len(distances),
    ]
    negatives = torch.randn(1, num_labels - num_positives, generator=torch.Generator().manual_seed(0))
    spread = torch.linspace(-1, 1, num_positives)[None]
    targets = Targets.of([0] * num_positives, list(range(num_positives)), shape=(1, num_labels))
    for name, loss in LOSSES.items():
        cells = []
        for distance in distances:
            gradient = loss(torch.cat([spread + distance, negatives], dim=1), targets).gradient[0, :num_positives]
            cells.append(f"{-float(gradient.sum()):.4f} ({int((gradient > 0).sum())})")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def pushes(num_labels: int = 5000) -> str:
    """One text with a positive among its negatives, whose scores have spread 1, and one at a distance above them."""
    distances = (0, 4, 8, 12, 16)
    lines = [
        f"| loss | {' | '.join(f'other positive at {distance:+d}' for distance in distances)} |",
        "|---|" + "---:|" * len(distances),
    ]
    negatives = torch.randn(1, num_labels - 2, generator=torch.Generator().manual_seed(0))
    targets = Targets.of([0, 0], [0, 1], shape=(1, num_labels))
    for name in ("softmax", "decoupled softmax"):
        found = [
            LOSSES[name](torch.cat([torch.tensor([[0.0, distance]]), negatives], dim=1), targets).gradient[0, 2:]
            for distance in distances
        ]
        lines.append(f"| {name} | {' | '.join(f'{float(push.sum()):.3f}' for push in found)} |")
    return "\n".join(lines) + "\n"


def cost(num_texts: int = 512, num_labels: int = 4000) -> str:
    """CPU milliseconds of value and gradient, and the memory that they add to the scores."""
    lines = ["| positives per text | CPU ms | MB beside the scores |", "|---:|---:|---:|"]
    for count in (1, 4, 16, 64, 256):
        found = in_child(partial(_cost, count, num_texts, num_labels))
        lines.append(f"| {count} | {found['ms']:.1f} | {found['MB']:.0f} |")
    return "\n".join(lines) + "\n"


def _cost(count: int, num_texts: int, num_labels: int) -> dict[str, float]:
    generator = torch.Generator().manual_seed(0)
    columns = torch.rand(num_texts, num_labels, generator=generator).topk(count, dim=1).indices.sort(1).values
    rows = torch.arange(num_texts).repeat_interleave(count)
    targets = Targets.of(rows, columns.ravel(), shape=(num_texts, num_labels))
    scores = [torch.randn(num_texts, num_labels, generator=generator) for _ in range(12)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    decoupled_softmax(scores.pop(), targets)
    times = []
    while scores:
        started = time.process_time()
        decoupled_softmax(scores.pop(), targets)
        times.append(time.process_time() - started)
    added = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {"ms": 1e3 * min(times), "MB": added / 1024}


MAKE: dict[str, Callable[[], str]] = {
    "dexml-c1": imbalance,
    "dexml-gradients": gradients,
    "unidec-push": pushes,
    "dexml-cost": cost,
}
