"""Scores of models whose classifiers were float32 or float16 in training, with several seeds in turn.

    python benchmarks/half_tables.py DATA [DATA ...] [--seeds 3] [--set SECTION.KEY=VALUE] > table.md

A cell is the mean over the seeds on the test texts, with the lowest and the highest value.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from unidex.verbs.train import train

METRICS = ("P@1", "P@5", "PSP@1", "PSP@5")
NUMBERS = ("float32", "float16")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], dest="settings", metavar="SECTION.KEY=VALUE")
    options = parser.parse_args()
    print(f"| data set | `train.classifier_numbers` | {' | '.join(METRICS)} |")
    print(f"|---|---|{'---:|' * len(METRICS)}")
    for data in options.data:
        found: dict[str, list[dict[str, float]]] = {name: [] for name in NUMBERS}
        for seed in range(options.seeds):
            for name in NUMBERS:
                settings = [*options.settings, f"train.classifier_numbers={name}"]
                found[name].append(train(data, settings=settings, seed=seed).metrics["test"])
        for name, runs in found.items():
            cells = [_cell([run[metric] for run in runs]) for metric in METRICS]
            print(f"| {Path(data).name} | {name} | {' | '.join(cells)} |", flush=True)


def _cell(values: list[float]) -> str:
    return f"{sum(values) / len(values):.2f} ({min(values):.2f} to {max(values):.2f})"


if __name__ == "__main__":
    main()
