"""CPU time of a step over all labels beside its three matrix products, and the memory it takes.

    python benchmarks/blocked.py [--texts 512] [--dim 256] [--labels 10000 40000] [--rounds 5] [--json]

Times are milliseconds of CPU of value and all gradients, one thread. Runs of all candidates take turns, and the least
of each counts: what else the machine does can only add. "ratio" is to the three products that any form needs (scores,
gradient of the texts, gradient of the labels), whole, into memory that is there already. "MB" is by how much a step
raises the memory of the process at its highest; "formula" is the scores of a block (B l), four times the texts (B D)
and the gradient of the labels (L D, or l D to a sink).
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import re
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  # the name everybody knows it by
from torch import Tensor

from unidex.losses import BlockedBce, BlockedContrastive, BlockedSoftmax, BlockedTriplet, Targets, run_blocked
from unidex.losses.blocks import BlockedLoss, LabelBlocks, Sink
from unidex.losses.softmax import SUPCON

Run = Callable[[], object]
Row = dict[str, Any]


def random_targets(num_texts: int, num_labels: int, generator: torch.Generator) -> Targets:
    """Three positives and one ignored pair a text."""
    rows = torch.arange(num_texts)
    # Four different labels a text: a random one and those at a quarter, half and three quarters of the way round.
    places = torch.randint(num_labels, (num_texts, 1), generator=generator) + torch.arange(4) * (num_labels // 4)
    places = places % num_labels
    return Targets.of(
        rows.repeat_interleave(3),
        places[:, :3].reshape(-1),
        ignored_rows=rows,
        ignored_columns=places[:, 3],
        shape=(num_texts, num_labels),
    )


def three_products(texts_BD: Tensor, labels_LD: Tensor, scores_BL: Tensor, grad_BD: Tensor, grad_LD: Tensor) -> None:
    torch.mm(texts_BD, labels_LD.T, out=scores_BL)
    torch.mm(scores_BL, labels_LD, out=grad_BD)
    torch.mm(scores_BL.T, texts_BD, out=grad_LD)


def cpu_ms(run: Run) -> float:
    start = time.process_time()
    run()
    return (time.process_time() - start) * 1e3


def peak_megabytes(run: Run) -> float | None:
    """By how much ``run`` raises the memory of the process at its highest, results included; only Linux tells."""
    reset = Path("/proc/self/clear_refs")
    if not reset.exists():
        return None
    # What is free inside the process is handed back first, or it would be used again unseen.
    ctypes.CDLL(None).malloc_trim(0)
    reset.write_text("5")
    before = status_kilobytes("VmRSS")
    run()
    return (status_kilobytes("VmHWM") - before) * 1024 / 1e6


def status_kilobytes(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1])


def measured(num_texts: int, num_labels: int, dim: int, num_rounds: int, block_size: int | None) -> list[Row]:
    generator = torch.Generator().manual_seed(0)
    targets = random_targets(num_texts, num_labels, generator)
    texts_BD = F.normalize(torch.randn(num_texts, dim, generator=generator))
    labels_LD = F.normalize(torch.randn(num_labels, dim, generator=generator))
    scale = torch.tensor(20.0)
    scores_BL, grad_BD, grad_LD = (
        torch.ones(num_texts, num_labels),
        torch.ones_like(texts_BD),
        torch.ones_like(labels_LD),
    )

    def step(loss: BlockedLoss, texts_BD: Tensor = texts_BD, sink: Sink | None = None) -> Run:
        return partial(run_blocked, loss, texts_BD, labels_LD, scale, targets, block_size=block_size, sink=sink)

    # In training, the rows of the table are changed at once; here the gradient is only looked at.
    def sink(places: slice, grad_lD: Tensor) -> None:
        pass

    candidates: dict[str, Run] = {
        "three products": partial(three_products, texts_BD, labels_LD, scores_BL, grad_BD, grad_LD),
        "decoupled softmax": step(BlockedSoftmax),
        "decoupled softmax, to a sink": step(BlockedSoftmax, sink=sink),
        "decoupled softmax, scores of size 1000": step(BlockedSoftmax, texts_BD * 200),
        "supcon": step(partial(BlockedSoftmax, form=SUPCON)),
        "decoupled softmax, both directions": step(partial(BlockedSoftmax, text_to_label=0.5)),
        "bce": step(BlockedBce),
        "triplet": step(BlockedTriplet),
        "contrastive": step(BlockedContrastive),
    }
    times = [{name: cpu_ms(run) for name, run in candidates.items()} for _ in range(num_rounds)]
    least = {name: min(round_[name] for round_ in times) for name in candidates}
    blocks = LabelBlocks(texts_BD, labels_LD, scale, targets, block_size=block_size).blocks
    most = max(block.targets.shape[1] for block in blocks)
    rows: list[Row] = []
    for name, run in candidates.items():
        row: Row = {"labels": num_labels, "name": name, "cpu_ms": least[name]}
        row["ratio"] = least[name] / least["three products"]
        if name != "three products":
            # A block that goes to a sink is as large as its part of the gradient of the labels.
            held = most if "sink" in name else num_labels
            numbers = num_texts * most + 4 * num_texts * dim + held * dim
            row |= {"block": most, "mb": peak_megabytes(run), "formula_mb": numbers * 4 / 1e6}
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--texts", type=int, default=512)
    parser.add_argument("--labels", type=int, nargs="+", default=[10_000, 40_000])
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--block-size", type=int)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = [
        row
        for num_labels in options.labels
        for row in measured(options.texts, num_labels, options.dim, options.rounds, options.block_size)
    ]
    if options.json:
        print(json.dumps({"texts": options.texts, "dim": options.dim, "threads": options.threads, "rows": rows}))
        return
    print(f"{options.texts} texts, dim {options.dim}, {options.threads} threads, float32")
    print(f"{'labels':>8}  {'':40}{'CPU ms':>8}{'ratio':>8}{'block':>8}{'MB':>8}{'formula':>9}")
    for row in rows:
        memory = f"{row['block']:8}{row['mb'] or math.nan:8.1f}{row['formula_mb']:9.1f}" if "mb" in row else ""
        print(f"{row['labels']:8}  {row['name']:40}{row['cpu_ms']:8.1f}{row['ratio']:8.2f}{memory}")


if __name__ == "__main__":
    main()
