"""Gandalf and its variants: label texts as training points, with the same recipe, seed and epochs.

Run: python benchmarks/gandalf.py DATA... [--recipe unidec] [--set section.key=value] [--only "NAME;NAME"]
     [--keep FOLDER] [--bins FILE.svg] [--curves FILE.svg] > table.md
Each variant is one training run; all are scored on test with the filter files. What is in FOLDER is not run again.
--bins draws the contribution to P@5 by label frequency, --curves P@5 and PSP@5 against steps on a validation split.
"""

import argparse
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from unidex.config.recipes import load
from unidex.data.dataset import Dataset
from unidex.data.formats import read
from unidex.data.read_options import ReadOptions
from unidex.verbs.train import train

GANDALF = "augment.method=gandalf"
VARIANTS = {
    "D": [],
    "D, as many steps as D u Z": ["LONGER"],
    "Z": [GANDALF, "augment.points=labels"],
    "D u Z": [GANDALF],
    "U(D u Z, N)": [GANDALF, "augment.points=uniform"],
    "D u Z' (one-hot)": ["augment.method=one-hot"],
    "D u Z, GLaS": ["augment.method=glas"],
    "D u Z, random walk": ["augment.method=random-walk"],
    "D u Z, delta 0": [GANDALF, "augment.delta=0"],
    "D u Z, delta 0.2": [GANDALF, "augment.delta=0.2"],
    "D u Z, delta 0.5": [GANDALF, "augment.delta=0.5"],
    "D u Z, tail-first 25%": [GANDALF, "augment.label_share=0.25", "augment.pick=tail-first"],
    "D u Z, tail-first 50%": [GANDALF, "augment.label_share=0.5", "augment.pick=tail-first"],
    "D u Z, tail-first 75%": [GANDALF, "augment.label_share=0.75", "augment.pick=tail-first"],
    "D u Z, random 50%": [GANDALF, "augment.label_share=0.5"],
    "D u Z, without the self label": [GANDALF, "augment.self_label=false"],
    "MixUp": ["augment.mixup=texts"],
    "Label-MixUp": ["augment.mixup=labels"],
}
COLUMNS = ("P@1", "P@5", "PSP@1", "PSP@5", "coverage@5")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+")
    parser.add_argument("--recipe", default="unidec")
    parser.add_argument("--text", default="title+content")
    parser.add_argument("--set", action="append", default=[], dest="settings")
    parser.add_argument("--only", default="", help="names of variants, separated by semicolons")
    parser.add_argument("--keep", type=Path, help="a folder for the results of finished runs")
    parser.add_argument("--bins", type=Path, help="draw the contribution to P@5 by label frequency")
    parser.add_argument("--curves", type=Path, help="draw P@5 and PSP@5 against steps")
    chosen = parser.parse_args()
    wanted = [name.strip() for name in chosen.only.split(";") if name.strip()]
    print(f"| set | variant | steps | CPU s | {' | '.join(COLUMNS)} |")
    print("|---|---|---:|---:|" + "---:|" * len(COLUMNS))
    for source in chosen.data:
        dataset = read(source, ReadOptions(text=chosen.text))
        results = {}
        for variant, changes in VARIANTS.items():
            if wanted and variant not in wanted:
                continue
            results[variant] = run(dataset, chosen, variant, changes)
            row(dataset.name, variant, results[variant])
        if chosen.bins:
            draw_bins(results, chosen.bins, dataset.name)
        if chosen.curves:
            draw_curves(dataset, chosen)


def run(dataset: Dataset, chosen: argparse.Namespace, variant: str, changes: list[str]) -> dict[str, Any]:
    """Train and score one variant, or read what an earlier run has kept."""
    recipe, settings = chosen.recipe, [*chosen.settings, *changes]
    if "LONGER" in settings:
        settings.remove("LONGER")
        settings.append(f"train.epochs={longer(dataset, chosen)}")
    name = re.sub(r"[^\w.=-]+", "_", " ".join([dataset.name, chosen.text, recipe, *settings]))
    kept = chosen.keep / f"{name}.json" if chosen.keep else None
    if kept is not None and kept.exists():
        return json.loads(kept.read_text())
    print(f"{dataset.name}: {variant}", file=sys.stderr)
    started = time.process_time()
    model = train(dataset, recipe, settings=settings)
    result = {"seconds": time.process_time() - started, "steps": model.metrics["training"]["steps"]}
    result |= model.metrics["test"]
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(result))
    return result


def longer(dataset: Dataset, chosen: argparse.Namespace) -> int:
    """Epochs over the texts alone that make as many steps as those over texts and labels."""
    epochs = load(chosen.recipe, chosen.settings).train.epochs
    return round(epochs * (len(dataset.train) + dataset.num_labels) / len(dataset.train))


def row(name: str, variant: str, found: dict[str, Any]) -> None:
    numbers = " | ".join(f"{found[column]:.2f}" for column in COLUMNS)
    print(f"| {name} | {variant} | {found['steps']:,} | {found['seconds']:.0f} | {numbers} |")
    sys.stdout.flush()


def draw_bins(results: dict[str, Any], file: Path, name: str) -> None:
    """Contribution to P@5 of five groups of labels of equal total frequency, with and without Gandalf."""
    figure, axes = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
    for number, variant in enumerate(name for name in ("D", "D u Z") if name in results):
        bins = results[variant]["bins"]
        places = [place + 0.4 * number - 0.2 for place in range(len(bins))]
        axes.bar(places, [group["contribution"] for group in bins], 0.4, label=variant)
        axes.set_xticks(range(len(bins)), [f"{group['num_labels']:,} labels" for group in bins])
    axes.set_ylabel("contribution to P@5")
    axes.set_xlabel("labels by frequency, most frequent first; equal number of pairs each")
    axes.set_title(f"{name}: who gains from Gandalf", loc="left")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file)


def draw_curves(dataset: Dataset, chosen: argparse.Namespace) -> None:
    """P@5 and PSP@5 on a validation split against steps, with and without Gandalf."""
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
    validating = ["train.validation=0.1", "train.validate_every=1"]
    for variant in ("D, as many steps as D u Z", "D u Z"):
        settings = [*chosen.settings, *VARIANTS[variant], *validating]
        if "LONGER" in settings:
            settings[settings.index("LONGER")] = f"train.epochs={longer(dataset, chosen)}"
        out = (chosen.keep or Path()) / f"curve-{dataset.name}-{'gandalf' if GANDALF in settings else 'plain'}"
        if not out.exists():
            train(dataset, chosen.recipe, settings=settings, out=out)
        records = [json.loads(line) for line in (out / "train.jsonl").read_text().splitlines()]
        points = [(record["step"], record["validation"]) for record in records if "validation" in record]
        for place, metric in zip(axes, ("P@5", "PSP@5"), strict=True):
            place.plot([step for step, _ in points], [found[metric] for _, found in points], marker="o", label=variant)
            place.set_title(metric, loc="left")
            place.set_xlabel("steps")
            place.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel(f"{dataset.name}, validation, percent")
    axes[0].legend(frameon=False)
    figure.savefig(chosen.curves)


if __name__ == "__main__":
    main()
