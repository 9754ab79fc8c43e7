"""Recipes with a transformer beside sentence-transformers at equal CPU time, from the same weights.

usage: python benchmarks/transformer_losses.py DATA SYSTEM --seconds 110 [--set KEY=VALUE] [--out runs.jsonl]
       python benchmarks/transformer_losses.py DATA SYSTEM --steps 30 [--out runs.jsonl]
       python benchmarks/transformer_losses.py --table runs.jsonl

SYSTEM is one of `SYSTEMS` below, or a loss of sentence-transformers: mnrl (MultipleNegativesRankingLoss) or cached (its
cached form), on all pairs of a train text and one of its labels. All systems train in one thread, for as many CPU
seconds or steps as given; learning rates have then decayed to 0. The seconds include tokens, initial values of
classifiers and all steps. The vectors of all labels come after them, for each system alike; "in all" has them too, and
held-out texts: the model is then ready to predict. A system with work of its own after the steps of its encoder (a
second stage, held-out texts) has to end them --spare seconds earlier. Our dual encoders and classifiers are ranked by
their scores alone (no kNN part, no learned ranker).

With --judge validation a share of the train texts (--held-out) takes the place of the test texts, to choose settings.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from slice_of_set import with_labels
from stored_vectors import StoredVectors
from unidex.data.dataset import Dataset, Split, split_rows
from unidex.data.formats import read
from unidex.data.read_options import ReadOptions
from unidex.encoders.transformer import TransformerEncoder
from unidex.nn.token_vectors import minilm_folder
from unidex.topk import TopK
from unidex.training.loop import Trainer
from unidex.verbs.score import score_topk
from unidex.verbs.train import train

METRICS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")
PEERS = {
    "mnrl": "sentence-transformers, MultipleNegativesRankingLoss",
    "cached": "sentence-transformers, CachedMultipleNegativesRankingLoss",
}
# What makes each recipe one of minutes on a CPU: losses and the encoder's learning rate are the recipe's own. Heads are
# on the encoder's vectors, pools are of the batch's own labels without mining, which would encode all texts and labels.
_COMMON = (
    "encoder.kind=transformer",
    "encoder.path=minilm",
    "encoder.pooling=mean",
    "encoder.own_dropout=false",
    "heads.projection=false",
    "heads.dropout=0.0",
    "train.schedule=linear",
    "train.validate_every=100",
)
_PICKED = ("pool.batches=random", "pool.fill=false", "pool.positives=1", "pool.hard_negatives=0", "pool.size=100000")
_CLASSIFIER = (
    "heads.classifier_dropout=0.0",
    "heads.classifier_init=label-text",
    "heads.classifier_normalised=true",
    "train.row_optimiser=adagrad",
)
_UNIDEC = (
    *_PICKED,
    *_CLASSIFIER,
    "heads.dim=384",
    "loss.classifier_bce=0",
    "loss.log_q=0.5",
    "train.lr_classifier=0.03",
)
# The encoder is not trained: all texts are encoded once, and linear layers and classifiers learn from their vectors.
_FROZEN = (
    "train.freeze_encoder=true",
    "heads.projection=true",
    "heads.dim=384",
    "heads.dropout=0.1",
    "train.lr_heads=1e-3",
)
# As the recipe's own section for the bag, which has few epochs too.
_RENEE = (
    "heads.classifier_init=label-text",
    "heads.classifier_bias=log-odds",
    "loss.temperature=0.05",
    "train.row_optimiser=adagrad",
    "train.lr_classifier=0.1",
)
# Recipe and settings of each system.
SYSTEMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "depsl": ("depsl", (*_PICKED, "pool.positives=2", "loss.text_to_label=0.5")),
    "unidec": ("unidec", _UNIDEC),
    "depsl-frozen": ("depsl", (*_PICKED, *_FROZEN, "loss.text_to_label=0.5", "loss.log_q=0.5")),
    "unidec-frozen": ("unidec", (*_UNIDEC, *_FROZEN)),
    "dexml": ("dexml", ("train.chunk=1024",)),
    "ngame": (
        "ngame",
        (
            *_CLASSIFIER,
            "train.lr_classifier=0.03",
            "stages.classifier.train.epochs=20",
            "stages.classifier.train.batch_size=128",
        ),
    ),
    "renee": ("renee", _RENEE),
    "ngame-frozen": ("ngame", (*_CLASSIFIER, *_FROZEN, "train.lr_classifier=0.03")),
    "renee-frozen": ("renee", (*_RENEE, *_FROZEN)),
}


def main() -> None:
    """Train one system and keep its figures, or print the table of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?")
    parser.add_argument("system", nargs="?", choices=(*SYSTEMS, *PEERS))
    parser.add_argument("--text", default="title")
    parser.add_argument("--set", action="append", default=[], dest="settings")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--max-length", type=int, default=16)
    parser.add_argument("--judge", choices=("test", "validation"), default="test")
    parser.add_argument("--held-out", type=float, default=0.1, help="share of the train texts that validation judges")
    parser.add_argument("--texts", type=int, default=0, help="train on so many texts, drawn at random; 0 for all")
    parser.add_argument("--labels", type=int, default=0, help="so many labels, drawn at random, and their texts")
    parser.add_argument("--judged", type=int, default=0, help="judge on so many texts, drawn at random; 0 for all")
    parser.add_argument("--seconds", type=float, default=0.0, help="CPU seconds; 0 for whole epochs (ours alone)")
    parser.add_argument(
        "--spare", type=float, default=0.0, help="CPU seconds that are left after the steps of the encoder; ours alone"
    )
    parser.add_argument("--steps", type=int, default=0, help="steps in the place of seconds")
    parser.add_argument("--rate", type=float, default=1e-4, help="learning rate of sentence-transformers")
    parser.add_argument("--scale", type=float, default=20.0, help="1 over the temperature of sentence-transformers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--vectors", type=Path, help="frozen systems: vectors are read from this file and written to it"
    )
    parser.add_argument("--peer", default=sys.executable, help="python with sentence-transformers")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path)
    chosen = parser.parse_args()
    if chosen.table:
        _print_table([json.loads(line) for line in chosen.table.read_text(encoding="utf-8").splitlines()])
        return
    torch.set_num_threads(1)
    dataset = _prepared(read(chosen.data, ReadOptions(text=chosen.text)), chosen)
    rows = _theirs(dataset, chosen) if chosen.system in PEERS else _ours(dataset, chosen)
    about = {"data": dataset.name, "judge": chosen.judge, "texts": len(dataset.train), "batch": chosen.batch}
    about |= {
        "seed": chosen.seed,
        "epochs": chosen.epochs,
        "is_equal_steps": bool(chosen.steps),
        "budget": chosen.seconds,
    }
    about["settings"] = [f"rate={chosen.rate:g}"] if chosen.system in PEERS else chosen.settings
    rows = [about | row for row in rows]
    _print_table(rows)
    if chosen.out:
        with chosen.out.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)


def _prepared(dataset: Dataset, chosen: argparse.Namespace) -> Dataset:
    """The data set with the texts that are judged in the place of test texts."""
    if chosen.labels:
        drawn = np.random.default_rng(0)
        kept = np.sort(drawn.choice(dataset.num_labels, min(dataset.num_labels, chosen.labels), replace=False))
        dataset = with_labels(dataset, kept)
    split, test = dataset.train, dataset.test
    if chosen.judge == "validation":
        rows, held_out = split_rows(len(split), chosen.held_out, 0)
        split, test = split.take(rows), split.take(held_out)
    if chosen.texts:
        drawn = np.random.default_rng(chosen.seed)
        split = split.take(np.sort(drawn.choice(len(split), min(len(split), chosen.texts), replace=False)))
    if chosen.judged:
        drawn = np.random.default_rng(0)
        test = test.take(np.sort(drawn.choice(len(test), min(len(test), chosen.judged), replace=False)))
    return replace(dataset, train=split, test=test)


class Clock:
    """Steps of a run, which end after as many CPU seconds or steps as given, and what they encode.

    The limit is of the first stage: a later one has the epochs that its settings say.
    """

    def __init__(self, seconds: float, steps: int) -> None:
        self.max_seconds, self.max_steps = seconds, steps
        self.num_steps, self.num_encoded, self.seconds = 0, 0, 0.0
        self.started = self.steps_end = time.process_time()
        self._first: Trainer | None = None
        self._first_step = 0.0

    def done(self) -> float:
        """The share of the steps that is over; what came before the first step is no part of it."""
        if self.max_steps:
            return self.num_steps / self.max_steps
        left = self.started + self.max_seconds - self._first_step
        return (time.process_time() - self._first_step) / left if left > 0 else 1.0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count what all trainers do, and end the steps of the first one when it is time."""
        forward, step = TransformerEncoder.forward, Trainer._step

        def counted(encoder: TransformerEncoder, rows: Any, *more: Any) -> Any:
            self.num_encoded += len(rows) if encoder.training else 0
            return forward(encoder, rows, *more)

        def timed(trainer: Trainer, *arguments: Any) -> Any:
            if self._first is None:
                self._first, self._first_step = trainer, time.process_time()
            is_limited = trainer is self._first and bool(self.max_seconds or self.max_steps)
            if is_limited:
                done = self.done()
                if done >= 1:
                    return torch.zeros(())
                # Learning rates follow the clock.
                trainer.step = int(done * trainer.num_steps)
            begun = time.process_time()
            value = step(trainer, *arguments)
            self.steps_end = time.process_time()
            self.seconds += self.steps_end - begun
            self.num_steps += 1
            return value

        with (
            mock.patch.object(TransformerEncoder, "forward", counted),
            mock.patch.object(Trainer, "_step", timed),
        ):
            yield


def _ours(dataset: Dataset, chosen: argparse.Namespace) -> list[dict[str, Any]]:
    sizes = (
        f"train.epochs={chosen.epochs}",
        f"train.batch_size={chosen.batch}",
        f"encoder.max_length={chosen.max_length}",
    )
    recipe, own = SYSTEMS[chosen.system]
    settings = [*_COMMON, *sizes, *own, *chosen.settings]
    clock = Clock(chosen.seconds - chosen.spare if chosen.seconds else 0.0, chosen.steps)
    stored = StoredVectors(chosen.vectors) if chosen.vectors else None
    with clock.watching(), stored.in_place_of_layers() if stored else nullcontext():
        # Without test texts: their time is none of training.
        seen = replace(dataset, test=Split.empty(dataset.num_labels))
        model = train(seen, recipe, settings=settings, seed=chosen.seed)
        seconds = time.process_time() - clock.started + (stored.seconds if stored else 0.0)
        steps_end = clock.steps_end - clock.started + (stored.seconds if stored else 0.0)
        heads = model.scorer.layout.heads
        modes = ("both", *heads) if len(heads) > 1 else heads
        texts = list(dataset.test.texts)
        all_found = {mode: model.topk(texts, 20, mode=mode) for mode in modes}
    rows = []
    for mode, found in all_found.items():
        more = {"cpu_seconds_of_steps": clock.seconds, "fusion": model.config.predict.fusion}
        counts = (steps_end, seconds, clock.num_steps, clock.num_encoded)
        rows.append(_row(f"`{chosen.system}`, {mode}", *counts, found, dataset, more))
    return rows


def _theirs(dataset: Dataset, chosen: argparse.Namespace) -> list[dict[str, Any]]:
    positives = dataset.train.positives.tocoo()
    labels, texts = list(dataset.labels.texts), list(dataset.train.texts)
    pairs = [[texts[row], labels[label]] for row, label in zip(positives.row, positives.col, strict=True)]
    work = {"encoder": str(minilm_folder()), "max_length": chosen.max_length, "labels": labels, "pairs": pairs}
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder) / "work.json", Path(folder) / "out.npy"
        file.write_text(json.dumps(work | {"test": list(dataset.test.texts)}), encoding="utf-8")
        runner = Path(__file__).with_name("sentence_transformers_run.py")
        command = [chosen.peer, runner, file, out, chosen.system, chosen.batch, chosen.rate, chosen.seconds]
        command += [chosen.steps, chosen.scale, chosen.seed]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr[-2000:])
        told = json.loads(done.stdout.splitlines()[-1])
        ids = np.load(out).astype(np.int64)
    scores = np.tile(-np.arange(ids.shape[1], dtype=np.float32), (len(ids), 1))
    counts = (told["cpu_seconds_of_steps"], told["cpu_seconds"], told["steps"], told["encoded"])
    return [_row(PEERS[chosen.system], *counts, TopK(ids, scores), dataset, told)]


def _row(
    name: str,
    seconds: float,
    seconds_in_all: float,
    steps: int,
    encoded: int,
    found: TopK,
    dataset: Dataset,
    more: dict[str, Any],
) -> dict[str, Any]:
    metrics = score_topk(found, dataset, dataset.test).metrics
    figures = {metric: round(metrics[metric], 2) for metric in METRICS}
    counts = {"seconds": round(seconds, 1), "in_all": round(seconds_in_all, 1), "steps": steps, "encoded": encoded}
    return {"name": name, **counts, **more, **figures}


def _print_table(rows: list[dict[str, Any]]) -> None:
    """One line per system and settings: the mean of its runs, and for several seeds the standard deviation."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        of_steps = row.get("is_equal_steps", False)
        about = (row["data"], row["judge"], row["name"], row["batch"], row["epochs"], row["settings"], of_steps)
        groups.setdefault(json.dumps(about), []).append(row)
    print(
        "| system | settings | seeds | CPU s | in all | steps | texts encoded | texts/s | " + " | ".join(METRICS) + " |"
    )
    print("|---|---|" + "---:|" * (6 + len(METRICS)))
    for some in groups.values():
        first = some[0]
        more = [f"batch={first['batch']}", f"epochs={first['epochs']}"] + ["equal steps"] * first["is_equal_steps"]
        speed = ""
        if first["encoded"]:
            speed = f"{sum(row['encoded'] for row in some) / sum(row['cpu_seconds_of_steps'] for row in some):.0f}"
        counts = " | ".join(
            f"{np.mean([row[name] for row in some]):,.0f}" for name in ("seconds", "in_all", "steps", "encoded")
        )
        values = " | ".join(_mean_and_deviation([row[metric] for row in some]) for metric in METRICS)
        about = f"{first['name']} | {' '.join([*more, *first['settings']])} | {len(some)}"
        print(f"| {about} | {counts} | {speed} | {values} |", flush=True)


def _mean_and_deviation(values: list[float]) -> str:
    mean = f"{np.mean(values):.2f}"
    return mean if len(values) == 1 else f"{mean} ± {np.std(values, ddof=1):.2f}"


if __name__ == "__main__":
    main()
