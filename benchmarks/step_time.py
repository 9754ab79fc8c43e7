"""CPU time and memory of one training step against the number of labels: all labels, and pick-some-labels.

    python benchmarks/step_time.py [--labels 1000 4000 ...] [--picture FILE.svg] [--json] > table.md

A step is that of a classifier without its encoder, on random vectors: 512 texts, 256 dimensions, decoupled softmax,
row-wise Adagrad, one thread.

all labels        scores of the texts with every label block by block; each block of the table is moved as soon as its
                  gradient is known. "loss only" leaves the table as it is.
pick-some-labels  900 rows of the table are gathered, scored and moved; another pool each step. Which 900, and which of
                  them are positives, is chosen before: "choosing" is the CPU time of that, from one drawn positive
                  and six mined negatives a text. The picture leaves it out, as it does the encoder.

All measurements take turns, over kinds and numbers of labels, and the least of each counts: what else the machine does
can only add. "MB" is from a process of its own for each point: by how much the table, its optimiser and two steps raise
the highest resident memory (VmHWM of /proc/self/status; ru_maxrss does not begin anew with a program, it keeps what the
process that started it had). "formula" counts, in numbers of 4 bytes, with blocks of l labels:

    all labels        L D + 2 L + B l + 5 B D + 2 l D     table, optimiser and lengths, scores, texts, a block's rows
    pick-some-labels  L D + 3 L + B P + 6 B D + 3 P D     table, optimiser and places in the pool, the same of a pool
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  # the name everybody knows it by
from scipy import sparse
from torch import Tensor

from unidex.losses import BlockedSoftmax, Targets, decoupled_softmax, run_blocked
from unidex.losses.blocks import LabelBlocks
from unidex.losses.gradient import inner_product_loss
from unidex.nn.row_table import RowAdagrad, RowTable
from unidex.pools.pool import Batch, make_batch, whole_batch
from unidex.report.pictures import INK, LINE, new_figure, save_figure

Kind = Literal["all", "loss only", "picked", "choosing"]
Row = dict[str, Any]

NAMES: dict[Kind, str] = {
    "all": "all labels",
    "loss only": "all labels, loss only",
    "picked": "pick-some-labels",
    "choosing": "pick-some-labels, choosing",
}
BLOCKED: tuple[Kind, ...] = ("all", "loss only")
ALL_LABELS = (1_000, 4_000, 16_000, 64_000, 256_000)
# For pick-some-labels alone: both ends of the ratio that is printed.
FEW, MANY = 24_000, 1_000_000

# So small that the rows keep about their length: every step is like the first.
RATE = 1e-4
SCALE = torch.tensor(20.0)
NUM_POSITIVES, NUM_NEGATIVES = 3, 6
# Steps with different texts and pools.
NUM_STEPS = 8


@dataclass(frozen=True)
class Sizes:
    """B texts, P labels in a pool, D dimensions."""

    num_texts: int
    pool: int
    dim: int


class Problem:
    """A table of classifiers, and batches of texts that have some of its labels."""

    def __init__(self, num_labels: int, sizes: Sizes, generator: torch.Generator) -> None:
        self.sizes, self.num_labels = sizes, num_labels
        rows_LD = torch.randn(num_labels, sizes.dim, generator=generator).mul_(sizes.dim**-0.5)
        self.table = RowTable(rows_LD)
        self.optimiser = RowAdagrad(self.table)
        self.texts_BD = F.normalize(torch.randn(sizes.num_texts, sizes.dim, generator=generator))
        rng = np.random.default_rng(num_labels)
        count = sizes.num_texts * NUM_STEPS
        self._positives = sparse.csr_array(
            (
                np.ones(count * NUM_POSITIVES, dtype=np.float32),
                _different(count, num_labels, NUM_POSITIVES, rng).ravel(),
                np.arange(count + 1) * NUM_POSITIVES,
            ),
            shape=(count, num_labels),
        )
        self._filter_pairs = sparse.csr_array((count, num_labels), dtype=bool)
        self._shortlist = _different(count, num_labels, min(NUM_NEGATIVES, num_labels), rng)
        self._texts = np.split(rng.permutation(count), NUM_STEPS)
        self._rng = rng
        self._turn = itertools.count()
        self._pools = [self._chosen(texts) for texts in self._texts]

    @cached_property
    def _whole(self) -> Targets:
        # Only where it is asked for: it takes memory by the number of labels.
        return whole_batch(self._positives, self._filter_pairs, self._texts[0]).targets

    def step(self, kind: Kind) -> None:
        """One step of a kind, with the next texts and pool."""
        if kind == "all":
            run_blocked(BlockedSoftmax, self.texts_BD, self.table.weight, SCALE, self._whole, sink=self._move)
        elif kind == "loss only":
            run_blocked(
                BlockedSoftmax, self.texts_BD, self.table.weight, SCALE, self._whole, sink=lambda rows, gradient: None
            )
        elif kind == "picked":
            self._step_on(self._pools[next(self._turn) % NUM_STEPS])
        else:
            self._chosen(self._texts[next(self._turn) % NUM_STEPS])

    @property
    def pool_sizes(self) -> set[int]:
        """How many labels the pools have."""
        return {len(batch.labels) for batch in self._pools}

    def formula(self, kind: Kind) -> int:
        """The numbers that a step needs at once, the table included."""
        num_texts, pool, dim = self.sizes.num_texts, self.sizes.pool, self.sizes.dim
        if kind == "picked":
            return self.num_labels * (dim + 3) + num_texts * pool + (6 * num_texts + 3 * pool) * dim
        blocks = LabelBlocks(self.texts_BD, self.table.weight, SCALE, self._whole).blocks
        block = max(block.targets.shape[1] for block in blocks)
        return self.num_labels * (dim + 2) + num_texts * block + (5 * num_texts + 2 * block) * dim

    def _chosen(self, texts: np.ndarray[Any, np.dtype[np.int64]]) -> Batch:
        return make_batch(
            self._positives,
            self._filter_pairs,
            texts,
            num_positives=1,
            num_negatives=NUM_NEGATIVES,
            size=self.sizes.pool,
            shortlist=self._shortlist,
            rng=self._rng,
        )

    def _move(self, rows: slice, gradient: Tensor) -> None:
        ids = torch.arange(rows.start, rows.stop)
        moved = self.table.gather(ids)
        moved.grad = gradient
        self.optimiser.step(ids, moved, RATE)

    def _step_on(self, batch: Batch) -> None:
        ids = torch.from_numpy(batch.labels)
        rows = self.table.gather(ids)
        rows.grad = inner_product_loss(self.texts_BD, rows, SCALE, batch.targets, decoupled_softmax).labels_LD
        self.optimiser.step(ids, rows, RATE)


def _different(num_rows: int, num_labels: int, count: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """``count`` different labels a row: a random one, and those that follow it at equal distances."""
    starts = rng.integers(num_labels, size=(num_rows, 1))
    return np.sort((starts + np.arange(count) * (num_labels // count)) % num_labels, axis=1)


def least_times(problems: list[Problem], kinds: Callable[[int], list[Kind]], rounds: int, seconds: float) -> list[Row]:
    """The least CPU milliseconds of a step of every kind at every number of labels."""
    points = [(problem, kind) for problem in problems for kind in kinds(problem.num_labels)]
    least = dict.fromkeys(range(len(points)), float("inf"))
    spent = dict.fromkeys(least, 0.0)
    for number in range(rounds):
        for at, (problem, kind) in enumerate(points):
            # Large ones are measured less often, but three times at least.
            if number > 2 and spent[at] > seconds:
                continue
            count = 1 if kind in BLOCKED else NUM_STEPS
            started = time.process_time()
            for _ in range(count):
                problem.step(kind)
            took = time.process_time() - started
            spent[at] += took
            least[at] = min(least[at], took / count * 1e3)
    return [
        {"labels": problem.num_labels, "kind": NAMES[kind], "cpu_ms": least[at]}
        for at, (problem, kind) in enumerate(points)
    ]


def memory_of(kind: Kind, num_labels: int, sizes: Sizes) -> Row:
    """By how much a table and two steps raise the highest resident memory of this process, and the formula."""
    # Libraries are loaded and have their own memory before anything is counted.
    small = Problem(sizes.pool, sizes, torch.Generator().manual_seed(0))
    small.step(kind)
    del small
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = status_kilobytes("VmRSS")
    problem = Problem(num_labels, sizes, torch.Generator().manual_seed(0))
    for _ in range(2):
        problem.step(kind)
    peak = status_kilobytes("VmHWM")
    return {
        "mb": (peak - before) * 1024 / 1e6,
        "whole_process_mb": peak * 1024 / 1e6,
        "formula_mb": problem.formula(kind) * 4 / 1e6,
    }


def status_kilobytes(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1])


def memory_in_process(kind: Kind, num_labels: int, sizes: Sizes) -> Row:
    """The same in a new process; nothing where the system does not tell."""
    if not Path("/proc/self/clear_refs").exists():
        return {}
    options = {"--texts": sizes.num_texts, "--pool": sizes.pool, "--dim": sizes.dim}
    words = [str(word) for pair in options.items() for word in pair]
    command = [sys.executable, __file__, *words, "--memory-of", kind, str(num_labels)]
    found: Row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def draw(rows: list[Row], sizes: Sizes, file: Path) -> None:
    """CPU time of a step against the number of labels, on logarithmic axes."""
    figure, axes = new_figure()
    colours: dict[Kind, str] = {"all": INK, "picked": LINE}
    for kind, colour in colours.items():
        points = [(row["labels"], row["cpu_ms"]) for row in rows if row["kind"] == NAMES[kind]]
        axes.plot(*zip(*points, strict=True), color=colour, marker="o", markersize=4.5, linewidth=2)
        axes.annotate(
            NAMES[kind],
            points[-1],
            xytext=(-9, 5) if kind == "all" else (0, 9),
            textcoords="offset points",
            ha="right",
            color=colour,
            fontsize=11,
            fontweight="bold",
        )
    axes.set(xscale="log", yscale="log", xlabel="labels", ylabel="CPU time of a training step")
    ticks = sorted({row["labels"] for row in rows} - {FEW})
    axes.set_xticks(ticks, [short(count) for count in ticks])
    axes.set_xticks([], minor=True)
    drawn = [row["cpu_ms"] for row in rows if row["kind"] in [NAMES[kind] for kind in colours]]
    low, high = min(drawn), max(drawn)
    decades = [10.0**power for power in range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)]
    axes.set_yticks(decades, [f"{ms / 1000:g} s" if ms >= 1000 else f"{ms:g} ms" for ms in decades])
    axes.set_yticks([], minor=True)
    axes.set_title(
        f"{sizes.num_texts} texts, {sizes.dim} dimensions, one thread; pools of {sizes.pool} labels",
        loc="left",
        color=INK,
        fontsize=11,
    )
    save_figure(figure, file)


def short(count: int) -> str:
    """A number of labels in few characters.

    >>> short(256_000), short(1_000_000)
    ('256K', '1M')
    """
    return f"{count / 1e6:g}M" if count >= 1_000_000 else f"{count / 1000:g}K" if count >= 1000 else str(count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, nargs="+", default=ALL_LABELS)
    parser.add_argument("--few", type=int, default=FEW, help="labels that the step at --many is compared with")
    parser.add_argument("--many", type=int, default=MANY, help="labels, for pick-some-labels alone")
    parser.add_argument("--texts", type=int, default=512)
    parser.add_argument("--pool", type=int, default=900)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=12, help="measurements of each point at most")
    parser.add_argument("--seconds", type=float, default=5.0, help="CPU time after which a point has no further ones")
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--memory-of", nargs=2, metavar=("KIND", "LABELS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    sizes = Sizes(options.texts, options.pool, options.dim)
    if options.memory_of:
        print(json.dumps(memory_of(options.memory_of[0], int(options.memory_of[1]), sizes)))
        return

    # Before the tables of all numbers of labels are in memory.
    memory: dict[tuple[str, int], Row] = {}
    everywhere = sorted({*options.labels, options.few, options.many})
    for count in everywhere:
        memory[NAMES["picked"], count] = memory_in_process("picked", count, sizes)
        if count in options.labels:
            memory[NAMES["all"], count] = memory_in_process("all", count, sizes)
    generator = torch.Generator().manual_seed(0)
    problems = [Problem(count, sizes, generator) for count in everywhere]
    rows = least_times(
        problems,
        lambda count: [kind for kind in NAMES if kind not in BLOCKED or count in options.labels],
        options.rounds,
        options.seconds,
    )
    for row in rows:
        row |= memory.get((row["kind"], row["labels"]), {})
    ratios = {name: ratio(rows, kinds, options) for name, kinds in RATIOS.items()}
    if options.picture:
        draw(rows, sizes, options.picture)
    if options.json:
        pools = {problem.num_labels: sorted(problem.pool_sizes) for problem in problems}
        result = {"texts": sizes.num_texts, "dim": sizes.dim, "pools": pools, "rows": rows, "ratios": ratios}
        print(json.dumps(result))
        return
    print("| labels | step | CPU ms | MB | formula |\n|---:|---|---:|---:|---:|")
    for row in rows:
        space = f"{row['mb']:,.0f} | {row['formula_mb']:,.0f}" if "mb" in row else " | "
        print(f"| {row['labels']:,} | {row['kind']} | {row['cpu_ms']:,.1f} | {space} |")
    print()
    for name, value in ratios.items():
        print(f"{name}: {options.many:,} labels take {value:.2f} times the CPU time of {options.few:,}.")


RATIOS: dict[str, tuple[Kind, ...]] = {
    "pick-some-labels": ("picked",),
    "pick-some-labels with choosing": ("picked", "choosing"),
}


def ratio(rows: list[Row], kinds: tuple[Kind, ...], options: argparse.Namespace) -> float:
    """The time of a step at ``--many`` labels over that at ``--few``."""
    names = [NAMES[kind] for kind in kinds]
    many, few = (
        sum(row["cpu_ms"] for row in rows if row["kind"] in names and row["labels"] == count)
        for count in (options.many, options.few)
    )
    return float(many / few)


if __name__ == "__main__":
    main()
