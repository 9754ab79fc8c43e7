"""Whether a change of the code changes the models: every recipe on a slice of hpo, compared with an earlier run.

Train once with the old code and once with the new one, then compare the two folders:

    PYTHONPATH=OLD/src python benchmarks/same_models.py runs/before
    python benchmarks/same_models.py runs/after --against runs/before

The table has one row per recipe: the largest difference of a parameter, of a score, and how many predicted labels
differ. A refactoring must leave all of them 0, or the commit says why not. Run both with the same OMP_NUM_THREADS:
another number of threads adds in another order, which changes the last digits.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

import unidex

# Names of settings here must be those of the old and of the new code.
_SMALL = ["encoder.dim=32", "train.batch_size=64"]
_MINED = ["pool.start=1", "pool.refresh_every=1"]
_EPOCHS = ["train.epochs=3"]
_STAGES = ["stages.surrogate.train.surrogate=64", "train.epochs=3"]
_TRANSFORMER = ["encoder.kind=transformer", "encoder.path=minilm", "train.batch_size=32", "train.epochs=1"]
CASES: dict[str, tuple[str, list[str]]] = {
    "auto": ("auto", []),
    "unidec": ("unidec", [*_SMALL, *_EPOCHS, *_MINED]),
    "unidec-gandalf": ("unidec", [*_SMALL, *_EPOCHS, *_MINED, "augment.method=gandalf"]),
    "unidec-mixup": ("unidec", [*_SMALL, *_EPOCHS, *_MINED, "augment.mixup=labels"]),
    "unidec-bce": ("unidec", [*_SMALL, *_EPOCHS, *_MINED, "loss.classifier_bce=0.5"]),
    "unidec-chunks": ("unidec", [*_SMALL, *_EPOCHS, *_MINED, "train.chunk=16"]),
    "unidec-all": ("unidec", [*_SMALL, *_EPOCHS, "pool.labels=all"]),
    "depsl": ("depsl", [*_SMALL, *_EPOCHS, *_MINED]),
    "depsl-minilm": ("depsl", [*_TRANSFORMER, "train.chunk=16", "pool.size=48"]),
    "dexml": ("dexml", [*_SMALL, *_EPOCHS]),
    "dexml-top5": ("dexml-top5", [*_SMALL, *_EPOCHS]),
    "dexml-top100": ("dexml-top100", [*_SMALL, *_EPOCHS]),
    "dexml-mined": ("dexml-mined", [*_SMALL, *_EPOCHS, *_MINED]),
    "renee": ("renee", [*_SMALL, *_EPOCHS]),
    "dpr": ("dpr", [*_SMALL, *_EPOCHS]),
    "ance": ("ance", [*_SMALL, *_EPOCHS, *_MINED]),
    "ngame": ("ngame", [*_SMALL, *_EPOCHS, "stages.dual.pool.start=1"]),
    "siamesexml": ("siamesexml", [*_SMALL, *_EPOCHS]),
    "astec": ("astec", [*_SMALL, *_STAGES]),
    "decaf": ("decaf", [*_SMALL, *_STAGES]),
    "eclare": ("eclare", [*_SMALL, *_STAGES]),
    "inceptionxml": ("inceptionxml", ["encoder.dim=64", "encoder.max_length=8", "train.batch_size=64", *_EPOCHS]),
    "inceptionxml-lf": ("inceptionxml-lf", ["encoder.dim=64", "encoder.max_length=8", "train.batch_size=64", *_EPOCHS]),
    "cascadexml": ("cascadexml", [*_SMALL, *_EPOCHS]),
    "cascadexml-minilm": ("cascadexml", [*_TRANSFORMER, "tree.layers=[[3],[5]]", "tree.levels=[16,128]"]),
}
_TENSORS = ("encoder.safetensors",)


def slice_of_hpo(num_train: int = 600, num_test: int = 200) -> unidex.Dataset:
    """The first texts of the built-in set, with all labels."""
    data = unidex.read("hpo")
    return unidex.Dataset(
        "hpo-slice", data.labels, data.train.take(np.arange(num_train)), data.test.take(np.arange(num_test))
    )


def train_all(out: Path, names: list[str]) -> None:
    data = slice_of_hpo()
    texts = list(data.test.texts)
    for name in names:
        recipe, settings = CASES[name]
        shutil.rmtree(out / name, ignore_errors=True)
        model = unidex.train(data, recipe, settings=settings, out=out / name, seed=1)
        found = model.topk(texts, 10)
        np.savez(out / f"{name}.npz", ids=found.ids, scores=found.scores)
        print(f"{name}: P@1 {model.metrics['test']['P@1']:.2f}", flush=True)


def differences(new: Path, old: Path, name: str) -> dict[str, float | int | str]:
    """The largest differences between two runs of one case."""
    parameters = 0.0
    for file in _TENSORS:
        pair = [load_file(folder / name / file) if (folder / name / file).exists() else {} for folder in (new, old)]
        if pair[0].keys() != pair[1].keys():
            return {"case": name, "parameters": f"other tensors in {file}", "scores": "", "labels": ""}
        for key, tensor in pair[0].items():
            same = tensor.shape == pair[1][key].shape
            gap = float(np.abs(tensor - pair[1][key]).max(initial=0)) if same else float("inf")
            parameters = max(parameters, gap)
    after, before = (np.load(folder / f"{name}.npz") for folder in (new, old))
    filled = (after["ids"] >= 0) & (before["ids"] >= 0)
    return {
        "case": name,
        "parameters": parameters,
        "scores": float(np.abs(after["scores"] - before["scores"])[filled].max(initial=0)),
        "labels": int((after["ids"] != before["ids"]).sum()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="the folder of the models; trained unless --compare-only")
    parser.add_argument("--against", type=Path, help="the folder of an earlier run")
    parser.add_argument("--cases", default=",".join(CASES), help="some of the cases, separated by commas")
    parser.add_argument("--compare-only", action="store_true", help="do not train: both folders are there")
    parser.add_argument("--json", action="store_true", help="the table as JSON lines")
    asked = parser.parse_args()
    names = asked.cases.split(",")
    asked.out.mkdir(parents=True, exist_ok=True)
    if not asked.compare_only:
        train_all(asked.out, names)
    if asked.against is None:
        return
    for row in (differences(asked.out, asked.against, name) for name in names):
        print(
            json.dumps(row)
            if asked.json
            else f"{row['case']:<20} {row['parameters']!s:<24} {row['scores']!s:<24} {row['labels']}"
        )


if __name__ == "__main__":
    main()
