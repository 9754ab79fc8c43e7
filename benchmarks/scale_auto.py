"""``auto`` with a learned ranker, linear classifiers and kNN on generated sets: what it takes, and what the model does.

    python benchmarks/scale_auto.py FOLDER --labels 1000000 [--texts 1000000] > table.md

Each size is planned, trained (in a process of its own, continued where it was interrupted) and used: the model is
loaded, predicts single texts and many at once, and gets 100 labels. Above --in-files labels, row tables are in files
and classifiers in float16. FOLDER keeps sets, models and ``results.json``; a size that is in it is not run again.

Memory is what the system cannot take back, CPU time that of all threads. A run that was interrupted and continued
counts the CPU time of its last part alone.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from scale_set import ScaleSet, write_set

IN_FILES = ["train.table_storage=file", "train.classifier_numbers=float16"]
SINGLE, AT_ONCE, ADDED = 50, 768, 100
COLUMNS = {
    "num_labels": "labels",
    "num_texts": "texts",
    "planned_mb": "planned, MB",
    "peak_mb": "training, MB",
    "planned_cpu": "planned, CPU s",
    "cpu": "training, CPU s",
    "disk_mb": "model, MB",
    "p1": "P@1",
    "load_cpu": "load, CPU s",
    "load_mb": "MB",
    "one_ms": "one text, CPU ms",
    "many_ms": "of 768 texts, CPU ms",
    "add_cpu": "100 new labels, CPU s",
    "used_mb": "MB",
}
DIGITS = {"p1": 1, "load_cpu": 1, "one_ms": 1, "many_ms": 1, "add_cpu": 1}


def use_model(folder: Path, texts: list[str]) -> dict[str, float]:
    """Load a model in this process, predict, and add labels."""
    started = time.process_time()
    from unidex.storage.resources import process_memory
    from unidex.verbs.models import load_model

    def seconds_of(work: Any) -> float:
        before = time.process_time()
        work()
        return time.process_time() - before

    model = load_model(folder, "cpu")
    found = {"load_cpu": time.process_time() - started, "load_mb": process_memory() / 1e6}
    model.predict(texts[:1], k=10)
    singles, many = texts[1 : 1 + SINGLE], texts[-AT_ONCE:]
    found["one_ms"] = 1000 * seconds_of(lambda: [model.predict([text], k=10) for text in singles]) / len(singles)
    found["many_ms"] = 1000 * seconds_of(lambda: model.predict(many, k=10)) / len(many)
    new = [f"a label of tomorrow {number}" for number in range(ADDED)]
    found["add_cpu"] = seconds_of(lambda: model.add_labels(new, [f"new-{number}" for number in range(ADDED)]))
    return found | {"used_mb": process_memory() / 1e6}


def planned(folder: Path, settings: list[str]) -> dict[str, float]:
    changes = [item for setting in settings for item in ("--set", setting)]
    command = [sys.executable, "-m", "unidex", "--quiet", "plan", str(folder / "set"), *changes, "--json"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {"planned_mb": found["peak_memory"] / 1e6, "planned_cpu": found["cpu_seconds"]}


def train(folder: Path, settings: list[str]) -> dict[str, Any]:
    """Train in this process; the result is memory, CPU time by phase and P@1."""
    from plan import PhaseUsage
    from unidex import progress
    from unidex.verbs.train import train

    usage = PhaseUsage()
    progress.phase = usage.phase
    model = train(folder / "set", settings=settings, out=folder / "model", resume=True)
    found = {"peak_mb": usage.highest / 1e6, "cpu": time.process_time(), "p1": model.metrics["test"]["P@1"]}
    return found | {"phases": usage.phases}


def run_part(name: str, root: Path, options: argparse.Namespace, number: int) -> dict[str, Any]:
    command = [sys.executable, __file__, str(root), "--labels", str(number), "--texts", str(options.texts)]
    command += ["--in-files", str(options.in_files), "--part", name]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--labels", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--texts", type=int, default=1_000_000)
    parser.add_argument("--in-files", type=int, default=2_000_000)
    parser.add_argument("--part", choices=("train", "use"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    file = options.folder / "results.json"
    results: dict[str, dict[str, Any]] = json.loads(file.read_text()) if file.exists() else {}
    for number in options.labels:
        folder = options.folder / f"{number}-{options.texts}"
        settings = IN_FILES if number > options.in_files else []
        if options.part == "train":
            print(json.dumps(train(folder, settings)))
            return
        if options.part == "use":
            from unidex.data.formats import read

            print(json.dumps(use_model(folder / "model", list(read(folder / "set", None).test.texts))))
            return
        found = results.setdefault(folder.name, {"num_labels": number, "num_texts": options.texts})
        if not (folder / "set" / "train.texts.bytes.npy").exists():
            write_set(folder / "set", ScaleSet(number, options.texts))
        if "planned_mb" not in found:
            found |= planned(folder, settings)
        if "p1" not in found:
            found |= run_part("train", options.folder, options, number)
            found["disk_mb"] = sum(part.stat().st_size for part in (folder / "model").rglob("*")) / 1e6
        if "used_mb" not in found:
            found |= run_part("use", options.folder, options, number)
        file.write_text(json.dumps(results, indent=1))
    print(f"| {' | '.join(COLUMNS.values())} |")
    print(f"|{'---:|' * len(COLUMNS)}")
    for found in sorted(results.values(), key=lambda row: row["num_labels"]):
        print(f"| {' | '.join(f'{found[key]:,.{DIGITS.get(key, 0)}f}' for key in COLUMNS)} |")


if __name__ == "__main__":
    main()
