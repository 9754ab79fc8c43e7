"""What stems, lemmas and parts of compounds bring on texts of other languages.

    python benchmarks/languages.py DATA --work FOLDER [--labels vocabulary.tsv] [--variants written,stems] [--seeds 2]

A fifth of the train texts, at most 1,000, drawn by a seed, is judged; test texts are not read. ``auto`` trains on the
others with each analyser. "chosen" is what ``auto`` does by itself. Lemmas need the extra ``languages``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from peers_runs import UNIDEX, measured
from unidex.data.dataset import Dataset, Split
from unidex.data.formats import read
from unidex.data.read_options import ReadOptions

_AUTO = "features.language=auto"
_VARIANTS = {
    "written": ["features.language=", "features.analyser=stems"],
    "stems": [_AUTO, "features.analyser=stems"],
    "lemmas": [_AUTO, "features.analyser=lemmas"],
    "compounds": [_AUTO, "features.analyser=words", "features.compounds=true"],
    "stems+compounds": [_AUTO, "features.analyser=stems", "features.compounds=true"],
    "chosen": [],
}
_SHOWN = ("P@1", "P@5", "F1@5", "nDCG@5", "PSP@5")
_SEED, _MAX_JUDGED = 5, 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--labels", type=Path)
    parser.add_argument("--variants", default=",".join(_VARIANTS))
    parser.add_argument("--seeds", type=int, default=1)
    asked = parser.parse_args()
    folder: Path = asked.work / "data"
    if not (folder / "labels.jsonl").is_file():
        _write_parts(read(asked.data, ReadOptions(labels=asked.labels)), folder)
    print("| words | " + " | ".join(_SHOWN) + " | CPU s |")
    print("|---|" + "---|" * (len(_SHOWN) + 1))
    for variant in asked.variants.split(","):
        rows = [_trained(folder, variant, seed) for seed in range(asked.seeds)]
        cells = [f"{np.mean([row[name] for row in rows]):.1f}" for name in _SHOWN]
        print(f"| {variant} | {' | '.join(cells)} | {np.mean([row['cpu'] for row in rows]):.0f} |", flush=True)


def _trained(folder: Path, variant: str, seed: int) -> dict[str, float]:
    result = folder.parent / f"{variant}-{seed}.json"
    if not result.is_file():
        flags = [word for setting in _VARIANTS[variant] for word in ("--set", setting)]
        model = folder.parent / f"model-{variant}-{seed}"
        command = [*UNIDEX, "train", folder, "--out", model, "--json", "--seed", str(seed), *flags]
        used = measured(command, result.with_suffix(""), {})
        found = json.loads(used.output)
        scores = found.get("test", found)
        result.write_text(json.dumps({**{name: scores[name] for name in _SHOWN}, "cpu": used.cpu_s}))
    row: dict[str, float] = json.loads(result.read_text())
    return row


def _write_parts(dataset: Dataset, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    order = np.random.default_rng(_SEED).permutation(len(dataset.train))
    num_judged = min(_MAX_JUDGED, len(order) // 5)
    uids = [dataset.labels.uid(label) for label in range(dataset.num_labels)]
    for name, rows in (("test", order[:num_judged]), ("train", order[num_judged:])):
        _write(folder / f"{name}.jsonl", _texts(dataset.train.take(rows), uids))
    labels = zip(uids, dataset.labels.texts, strict=True)
    _write(folder / "labels.jsonl", ({"uid": uid, "text": text} for uid, text in labels))


def _texts(split: Split, uids: list[str]) -> Iterable[dict[str, object]]:
    positives = split.positives
    for row, text in enumerate(split.texts):
        ids = positives.indices[positives.indptr[row] : positives.indptr[row + 1]]
        yield {"text": text, "labels": [uids[label] for label in ids]}


def _write(file: Path, rows: Iterable[dict[str, object]]) -> None:
    with file.open("w") as out:
        out.writelines(json.dumps(row) + "\n" for row in rows)


if __name__ == "__main__":
    main()
