"""Time, memory and quality against the number of labels, on generated sets (benchmarks/scale_set.py).

    python benchmarks/scale.py FOLDER --labels 10000 100000 1000000 [--texts N] [--extrapolate N ...]
        [--picture FILE.svg] > table.md

FOLDER keeps the sets, the models and ``results.json``. A size that is in it already is not run again, and a run that
was interrupted is continued: training by its checkpoints, the index by its blocks. So a size that takes hours can be
added later with the same command.

Each size trains one epoch in a process of its own: single words only, 32 numbers per head (64 in the index), row
tables in files, classifiers in float16, index kind disk. "step" is the median CPU time of a training step, "MB" the
highest memory that the system cannot take back (mapped files are not counted). The index is searched for 200 test texts
by 10 places, and compared with an exact search over the same vectors. P@1 has a ceiling of 90%.

``--extrapolate`` adds rows of sizes that were not run, marked by ~. Memory, disk and the time of the index lie on a
straight line through the two largest sizes. A query scans 8 L^0.75 codes of L labels, and its time grows with them.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from plan import PhaseUsage
from scale_set import ScaleSet, write_set

SETTINGS = [
    "encoder.dim=32",
    "features.chars=false",
    "features.bigrams=false",
    "features.lead_weight=0",
    "augment.method=none",
    "train.epochs=1",
    "train.decay_epochs=0",
    "train.validation=0",
    "train.table_storage=file",
    "train.classifier_numbers=float16",
    "train.checkpoint_every=2000",  # training is the shortest part of a run here: a resumed run trains again
    "predict.rank=sum",
    "predict.fusion=0.5",
    "predict.index=disk",
    "predict.precision=float32",
    "predict.snippet_length=0",
]
NUM_QUERIES, PLACES = 200, 10
MAX_TEXTS = 1_000_000
TOLD_STEPS = 100
# Above so many labels, test texts read more rows of a file that does not fit into memory than time allows.
MANY, FEW_TEXTS = 10_000_000, 500
COLUMNS = {
    "num_labels": "labels",
    "num_texts": "texts",
    "step_ms": "step, CPU ms",
    "train_mb": "training, MB",
    "train_cpu": "whole run, CPU s",
    "build_mb": "index build, MB",
    "index_cpu": "index build, CPU s",
    "test_mb": "test, MB",
    "index_mb": "search, MB",
    "index_disk_mb": "index on disk, MB",
    "recall": "recall@10",
    "query_ms": "query, CPU ms",
    "load_seconds": "load, CPU s",
    "p1": "P@1",
}

LINEAR = ("train_mb", "build_mb", "test_mb", "index_mb", "index_cpu", "index_disk_mb")


def train_size(folder: Path, scale: ScaleSet) -> dict[str, Any]:
    """Train on the set of a size; the result is CPU time of a step, memory, and P@1 on test."""
    from unidex import progress
    from unidex.data.formats import read
    from unidex.training.loop import Trainer
    from unidex.training.timetable import INDEX, TEST
    from unidex.verbs.train import train

    usage, plain = PhaseUsage(), Trainer._step
    progress.phase = usage.phase
    steps: list[float] = []

    def timed(self: Trainer, *arguments: Any) -> Any:
        started = time.process_time()
        value = plain(self, *arguments)
        steps.append(time.process_time() - started)
        if len(steps) % TOLD_STEPS == 0:
            # The index takes much longer than training: who wants to know steps alone may stop here.
            print(f"{len(steps)} steps: {1000 * statistics.median(steps):.1f} CPU ms in the median", file=sys.stderr)
        return value

    Trainer._step = timed
    dataset = read(folder / "set", None)
    if scale.num_labels > MANY:
        dataset = dataset.with_test(dataset.test.take(slice(0, FEW_TEXTS)))
    model = train(dataset, settings=SETTINGS, out=folder / "model", resume=True, force=True)
    phases = usage.phases
    built, tested = (phases.get(name, {"memory": 0})["memory"] / 1e6 for name in (INDEX, TEST))
    return {
        "step_ms": 1000 * statistics.median(steps) if steps else None,
        "train_mb": max(phases[name]["memory"] for name in phases if name not in (INDEX, TEST)) / 1e6,
        "build_mb": built,
        "test_mb": tested,
        "train_cpu": sum(phase["cpu_seconds"] for phase in phases.values()),
        "index_cpu": phases.get(INDEX, {}).get("cpu_seconds"),
        "p1": model.metrics["test"]["P@1"],
        "phases": phases,
    }


def search_size(folder: Path) -> dict[str, Any]:
    """Search the index of a trained model; the result is recall, time, memory and disk."""
    from unidex.data.formats import read
    from unidex.index.exact import search_exact
    from unidex.storage.mapped import map_privately
    from unidex.storage.resources import process_memory
    from unidex.verbs.models import load_model

    usage = PhaseUsage()
    started = time.process_time()
    model = load_model(folder / "model", "cpu")
    seconds = time.process_time() - started
    texts = list(read(folder / "set", None).test.texts[:NUM_QUERIES])
    queries, index = model.encode(texts), model.scorer.index
    index.search(queries[:8], PLACES)
    started = time.process_time()
    found = index.search(queries, PLACES)
    query = (time.process_time() - started) / len(queries)
    memory = max(usage.highest, process_memory())
    vectors = map_privately(folder / "model" / "index" / "vectors.npy")
    wanted = search_exact(queries, vectors, PLACES)
    shared = [len(set(a) & set(b)) / PLACES for a, b in zip(found.ids.tolist(), wanted.ids.tolist(), strict=True)]
    disk = sum(file.stat().st_size for file in (folder / "model" / "index").iterdir())
    return {
        "load_seconds": seconds,
        "query_ms": 1000 * query,
        "recall": float(np.mean(shared)),
        "index_mb": memory / 1e6,
        "index_disk_mb": disk / 1e6,
    }


def run_size(root: Path, num_labels: int, num_texts: int) -> dict[str, Any]:
    folder = root / f"{num_labels}-{num_texts}"
    if not (folder / "set" / "train.texts.bytes.npy").exists():
        write_set(folder / "set", ScaleSet(num_labels, num_texts))
    found: dict[str, Any] = {"num_labels": num_labels, "num_texts": num_texts}
    for part in ("train", "search"):
        command = [sys.executable, __file__, str(root), "--labels", str(num_labels), "--texts", str(num_texts)]
        done = subprocess.run([*command, "--part", part], check=True, stdout=subprocess.PIPE, text=True)
        found |= json.loads(done.stdout.splitlines()[-1])
    return found


def extrapolated(rows: list[dict[str, Any]], num_labels: int) -> dict[str, Any]:
    """A row of a size that was not run."""
    *_, small, large = rows
    found: dict[str, Any] = {"num_labels": num_labels, "num_texts": large["num_texts"], "is_extrapolated": True}
    for key in LINEAR:
        slope = (large[key] - small[key]) / (large["num_labels"] - small["num_labels"])
        found[key] = large[key] + slope * (num_labels - large["num_labels"])
    return found | {"query_ms": large["query_ms"] * (num_labels / large["num_labels"]) ** 0.75}


def draw(results: list[dict[str, Any]], file: Path) -> None:
    from unidex.report.pictures import new_figure, save_figure

    figure, axes = new_figure()
    numbers = [row["num_labels"] for row in results]
    for name, key in (
        ("training, MB", "train_mb"),
        ("index build, MB", "build_mb"),
        ("training step, CPU ms", "step_ms"),
        ("query, CPU ms", "query_ms"),
    ):
        axes.plot(numbers, [row[key] for row in results], marker="o", label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("labels")
    axes.set_ylabel("MB, or CPU ms")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")
    axes.legend()
    save_figure(figure, file)


def _cell(key: str, row: dict[str, Any]) -> str:
    value = row.get(key)
    if value is None:
        return ""
    digits = {"recall": 3, "step_ms": 1, "query_ms": 1, "load_seconds": 1, "p1": 1}.get(key, 0)
    mark = "~" if row.get("is_extrapolated") and key not in ("num_labels", "num_texts") else ""
    return f"{mark}{value:,.{digits}f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--labels", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--texts", type=int, default=0, help="as many as labels, at most a million, unless given")
    parser.add_argument("--extrapolate", type=int, nargs="+", default=[], metavar="LABELS")
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--part", choices=("train", "search"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
        num_labels = options.labels[0]
        folder = options.folder / f"{num_labels}-{options.texts}"
        scale = ScaleSet(num_labels, options.texts)
        print(json.dumps(train_size(folder, scale) if options.part == "train" else search_size(folder)))
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    file = options.folder / "results.json"
    results: dict[str, dict[str, Any]] = json.loads(file.read_text()) if file.exists() else {}
    for num_labels in options.labels:
        num_texts = options.texts or min(num_labels, MAX_TEXTS)
        name = f"{num_labels}-{num_texts}"
        if name not in results:
            results[name] = run_size(options.folder, num_labels, num_texts)
            file.write_text(json.dumps(results, indent=1))
    rows = sorted(results.values(), key=lambda row: row["num_labels"])
    print(f"| {' | '.join(COLUMNS.values())} |")
    print(f"|{'---:|' * len(COLUMNS)}")
    for row in [*rows, *(extrapolated(rows, number) for number in options.extrapolate)]:
        cells = [_cell(key, row) for key in COLUMNS]
        print(f"| {' | '.join(cells)} |")
    if options.picture:
        draw(rows, options.picture)


if __name__ == "__main__":
    main()
