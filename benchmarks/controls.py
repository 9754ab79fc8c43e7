"""A recipe beside itself with other settings, judged on train texts that were not trained on; test is not read.

    python benchmarks/controls.py MDNSeeAlso:title eclare "stages.extreme.train.lr_encoder=0.0" --seeds 3

Each further argument is a row: settings, separated by blanks. The first row has none. All rows have the settings for a
CPU of the papers' tables (`papers_rows.CPU`). 3,000 train texts are drawn to train on and 2,000 others to judge by.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np

from papers_rows import CPU
from papers_runs import DataSet
from unidex.verbs.evaluate import evaluate
from unidex.verbs.train import train

COLUMNS = ("P@1", "P@5", "PSP@1", "PSP@5")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", metavar="DATA", help="a folder or hpo, with the fields of a text: FOLDER:title")
    parser.add_argument("recipe")
    parser.add_argument("rows", nargs="*", metavar="SETTINGS", help="section.key=value section.key=value ...")
    parser.add_argument("--texts", type=int, default=3000, help="texts to train on")
    parser.add_argument("--judged", type=int, default=2000, help="other train texts to judge by")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds, from 0")
    asked = parser.parse_args()
    data = DataSet(asked.data).data
    drawn = np.random.default_rng(0).permutation(len(data.train))[: asked.texts + asked.judged]
    parts = [data.train.take(np.sort(part)) for part in (drawn[: asked.texts], drawn[asked.texts :])]
    data = replace(data, train=parts[0], test=parts[1])
    print(f"| {asked.recipe} with | seeds | CPU s | {' | '.join(COLUMNS)} |")
    print("|---|---:|---:|" + "---:|" * len(COLUMNS))
    for row in ["", *asked.rows]:
        found, started = [], time.process_time()
        for seed in range(asked.seeds):
            model = train(data, asked.recipe, settings=[*CPU.get(asked.recipe, ()), *row.split()], seed=seed)
            metrics = evaluate(model, data).metrics
            found.append([metrics[column] for column in COLUMNS])
        seconds, mean = (time.process_time() - started) / asked.seeds, np.mean(found, axis=0)
        spread = np.std(found, axis=0, ddof=1) if asked.seeds > 1 else None
        cells = [f"{value:.2f}" + ("" if spread is None else f" ± {spread[n]:.1f}") for n, value in enumerate(mean)]
        shown = ", ".join(f"`{setting}`" for setting in row.split()) or "its settings"
        print(f"| {shown} | {asked.seeds} | {seconds:.0f} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
