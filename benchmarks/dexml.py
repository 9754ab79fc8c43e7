"""DEXML on real data: its losses over all labels, pools of labels from 1,000 to all, and others in the same CPU time.

Run: python benchmarks/dexml.py DATA... [--table losses|pools|time] [--text title] [--set section.key=value]
     [--epochs N] [--only NAME;NAME] [--keep FOLDER] > table.md
Each row is one training run with the same seed, scored on test with the filter files. What is in FOLDER is not run
again. "CPU s" is of training alone, mining included; reading texts and scoring are not in it.

losses  The recipe dexml, all labels in every step, with one loss after another.
pools   The recipe dexml on pools of 1,000, 4,000, 16,000 and all labels, with the same loss, batches and epochs. A pool
        has all labels of its texts where they fit, else one drawn for each text; then mined negatives, as many a text
        as fill it, from the first epoch on and mined anew every third. How many these are is tried before, on some
        texts of train. "pool" and "texts" are the means over the steps of the run itself: a text that is left without a
        positive is not trained on in that step.
time    dexml with its epochs, then depsl and unidec with so many that training takes as many CPU seconds.
"""

import argparse
import json
import math
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from unidex.config.recipes import load
from unidex.data.dataset import Dataset, Split
from unidex.data.formats import read
from unidex.data.read_options import ReadOptions
from unidex.pools.batches import random_batches
from unidex.pools.pool import Batch, entries_of, make_batch, whole_batch
from unidex.training import loop
from unidex.training import training_set as batching
from unidex.verbs.train import train

LOSSES = {
    "BCE, mean": ["loss.dual=bce", "loss.bce_reduction=mean"],
    "BCE, sum": ["loss.dual=bce", "loss.bce_reduction=sum"],
    "softmax (SupCon)": ["loss.dual=supcon"],
    "decoupled softmax": ["loss.dual=decoupled-softmax"],
    "decoupled softmax, one drawn positive": ["loss.dual=one-positive"],
    "soft top-5": ["loss.dual=soft-top-k", "loss.k=5"],
    "soft top-100": ["loss.dual=soft-top-k", "loss.k=100"],
}
POOLS = (1_000, 4_000, 16_000)
RIVALS = ("depsl", "unidec")
COLUMNS = {
    "losses": ("P@1", "P@5", "R@100", "PSP@1"),
    "pools": ("P@1", "P@5"),
    "time": ("P@1", "P@5", "PSP@1", "PSP@5"),
}

# A pool counts as filled from this share of its size on, and training times as equal from this difference on.
FILLED, EQUAL = 0.98, 0.1

Result = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+")
    parser.add_argument("--table", choices=tuple(COLUMNS), default="losses")
    parser.add_argument("--text", default="title+content")
    parser.add_argument("--set", action="append", default=[], dest="settings")
    parser.add_argument("--epochs", type=int, help="instead of those of the recipe; of dexml alone in the table time")
    parser.add_argument("--only", default="", help="names of rows, separated by semicolons (losses, pools)")
    parser.add_argument("--keep", type=Path, help="a folder for the results of finished runs")
    chosen = parser.parse_args()
    heading, rows = {
        "losses": ("loss | CPU s", loss_rows),
        "pools": ("labels of a step | positives | negatives | pool | texts | CPU s", pool_rows),
        "time": ("recipe | epochs | CPU s", time_rows),
    }[chosen.table]
    columns = COLUMNS[chosen.table]
    print(f"| set | {heading} | {' | '.join(columns)} |")
    print("|---|---|" + "---:|" * (heading.count("|") + len(columns)))
    for source in chosen.data:
        bench = Bench(read(source, ReadOptions(text=chosen.text)), chosen)
        for first, found in rows(bench):
            print(f"| {bench.dataset.name} | {first} | {' | '.join(f'{found[column]:.2f}' for column in columns)} |")
            sys.stdout.flush()


@dataclass
class Watched:
    """What the hooks of `watching` have seen of a run."""

    seconds: float = 0.0
    pool_sizes: list[int] = field(default_factory=list)
    num_texts: list[int] = field(default_factory=list)

    def result(self) -> Result:
        """As plain values."""
        return {
            "seconds": self.seconds,
            "pool": float(np.mean(self.pool_sizes)),
            "texts": float(np.mean(self.num_texts)),
        }


@contextmanager
def watching() -> Iterator[Watched]:
    """See how long the training loop takes, and which pools it makes."""
    watched = Watched()
    run = loop.Trainer.run

    def timed(trainer: loop.Trainer, *, resume: bool = False) -> Result:
        started = time.process_time()
        result = run(trainer, resume=resume)
        watched.seconds += time.process_time() - started
        return result

    def seen(make: Callable[..., Batch]) -> Callable[..., Batch]:
        def made(*args: Any, **options: Any) -> Batch:
            batch = make(*args, **options)
            watched.pool_sizes.append(len(batch.labels))
            watched.num_texts.append(len(batch.texts))
            return batch

        return made

    with (
        mock.patch.object(loop.Trainer, "run", timed),
        mock.patch.object(batching, "make_batch", seen(make_batch)),
        mock.patch.object(batching, "whole_batch", seen(whole_batch)),
    ):
        yield watched


class Bench:
    """The runs on one data set; those that an earlier call has kept are read."""

    def __init__(self, dataset: Dataset, chosen: argparse.Namespace) -> None:
        self.dataset = dataset
        self.text: str = chosen.text
        self.settings: list[str] = chosen.settings
        self.epochs = [] if chosen.epochs is None else [f"train.epochs={chosen.epochs}"]
        self._keep: Path | None = chosen.keep
        self._wanted = [name.strip() for name in chosen.only.split(";") if name.strip()]

    def wants(self, row: str) -> bool:
        """Whether a row was asked for."""
        return not self._wanted or row in self._wanted

    def skip(self, row: str, why: str) -> None:
        """Say that a row is left out."""
        print(f"{self.dataset.name}: {row} is left out, {why}", file=sys.stderr)

    def run(self, recipe: str, changes: list[str], *, sample: int = 0) -> Result:
        """Train and score; with ``sample``, train on so many texts, and do not score."""
        settings = [*self.settings, *changes]
        size = f"{len(self.dataset.train)}x{self.dataset.num_labels}"
        words = [self.dataset.name, size, self.text, recipe, *settings] + ([f"sample={sample}"] if sample else [])
        file = None if self._keep is None else self._keep / (re.sub(r"[^\w.=-]+", "_", " ".join(words)) + ".json")
        if file is not None and file.exists():
            kept: Result = json.loads(file.read_text())
            return kept
        print(" ".join(words), file=sys.stderr)
        dataset = self._sample(sample) if sample else self.dataset
        with watching() as watched:
            model = train(dataset, recipe, settings=settings)
        result = watched.result() | {"training": model.metrics["training"], "settings": settings}
        result |= model.metrics.get("test", {})
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(result))
        return result

    def _sample(self, count: int) -> Dataset:
        texts = self.dataset.train
        rows = np.sort(np.random.default_rng(0).permutation(len(texts))[:count])
        return replace(self.dataset, train=texts.take(rows), test=Split.empty(self.dataset.num_labels))


def loss_rows(bench: Bench) -> Iterator[tuple[str, Result]]:
    for name, changes in LOSSES.items():
        if not bench.wants(name):
            continue
        if name == "soft top-100" and bench.dataset.num_labels <= 100:
            bench.skip(name, f"for there are only {bench.dataset.num_labels} labels")
            continue
        found = bench.run("dexml", [*bench.epochs, *changes])
        yield f"{name} | {found['seconds']:.0f}", found


def pool_rows(bench: Bench) -> Iterator[tuple[str, Result]]:
    for size in POOLS:
        name = f"{size:,}"
        if not bench.wants(name):
            continue
        if size >= bench.dataset.num_labels:
            bench.skip(f"a pool of {name}", f"for there are only {bench.dataset.num_labels:,} labels")
            continue
        picked = ["pool.labels=picked", f"pool.size={size}", "pool.start=0", "pool.refresh_every=3"]
        positives, drawn = sampled_positives(bench, size)
        picked.append(f"pool.positives={positives}")
        negatives = needed_negatives(bench, size, picked)
        found = bench.run("dexml", [*bench.epochs, *picked, f"pool.hard_negatives={negatives}"])
        yield f"{name} | {drawn} | {negatives} | {means(found)}", found
    if bench.wants("all"):
        found = bench.run("dexml", bench.epochs)
        yield f"all {bench.dataset.num_labels:,} | all |  | {means(found)}", found


def means(found: Result) -> str:
    return f"{found['pool']:,.0f} | {found['texts']:.0f} | {found['seconds']:.0f}"


def sampled_positives(bench: Bench, size: int) -> tuple[int, str]:
    """How many labels are drawn for each text of a batch: enough for all of them where those fit in a pool, else one.

    Draws are with replacement: five times the most labels of a text miss one of its labels once in 150 times.
    """
    positives = bench.dataset.train.positives
    batch_size = load("dexml", bench.settings).train.batch_size
    batches = random_batches(positives.shape[0], batch_size, np.random.default_rng(0))[:8]
    most = max(len(np.unique(positives.indices[entries_of(positives, batch)[1]])) for batch in batches)
    if most > size:
        return 1, "1"
    return min(1000, 5 * int(np.diff(positives.indptr).max())), "all"


def needed_negatives(bench: Bench, size: int, picked: list[str]) -> int:
    """How many mined negatives a text fill a pool, tried on four batches: twice as many until they do."""
    batch_size = load("dexml", bench.settings).train.batch_size
    negatives = math.ceil(size / batch_size)
    while True:
        changes = [*picked, f"pool.hard_negatives={negatives}", "train.epochs=1"]
        pool = bench.run("dexml", changes, sample=4 * batch_size)["pool"]
        if pool >= FILLED * size or negatives >= bench.dataset.num_labels:
            return negatives
        negatives *= 2


def time_rows(bench: Bench) -> Iterator[tuple[str, Result]]:
    dexml = bench.run("dexml", bench.epochs)
    yield timed_row("dexml", dexml), dexml
    for recipe in RIVALS:
        found = bench.run(recipe, [])
        yield timed_row(f"{recipe}, epochs of its recipe", found), found
        # Mining and clustering begin after some epochs, so that time does not grow evenly: scaled, seen, scaled again.
        tried = [found]
        while len(tried) < 4 and difference(found, dexml) > EQUAL:
            epochs = max(1, round(found["training"]["epochs"] * dexml["seconds"] / found["seconds"]))
            if epochs in [earlier["training"]["epochs"] for earlier in tried]:
                break
            found = bench.run(recipe, [f"train.epochs={epochs}"])
            tried.append(found)
        nearest = min(tried, key=lambda run: difference(run, dexml))
        yield timed_row(f"{recipe}, time of dexml", nearest), nearest


def difference(found: Result, wanted: Result) -> float:
    """By which share of it the training time of a run misses that of another."""
    return abs(float(found["seconds"] / wanted["seconds"]) - 1)


def timed_row(name: str, found: Result) -> str:
    return f"{name} | {found['training']['epochs']} | {found['seconds']:.0f}"


if __name__ == "__main__":
    main()
