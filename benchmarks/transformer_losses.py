"""Recipes with a transformer beside sentence-transformers at equal CPU time, from the same weights.

usage: python benchmarks/transformer_losses.py DATA --peer PYTHON [--systems depsl,unidec,...] [--epochs 4]

Each of our systems trains for so many epochs (linear decay, no held-out texts, vectors of the heads alone: no ranker
and no kNN part, so that losses and pools are compared); sentence-transformers then gets the CPU seconds of ours, with
MultipleNegativesRankingLoss and with its cached form, on all pairs of a train text and one of its labels. PYTHON is
the interpreter of an environment with sentence-transformers. Encoded texts are counted with their labels. One thread.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unidex.data.formats import read
from unidex.data.read_options import ReadOptions
from unidex.encoders.transformer import TransformerEncoder
from unidex.nn.static_vectors import minilm_folder
from unidex.topk import TopK
from unidex.verbs.score import score_topk
from unidex.verbs.train import train

METRICS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")
# What makes each recipe one of minutes on a CPU; losses and kinds of pools are the recipe's own. One rate, batch and
# encoder for all, heads on the encoder's own vectors, and unit classifiers that start at the label texts.
COMMON = [
    "encoder.kind=transformer",
    "encoder.path=minilm",
    "encoder.pooling=mean",
    "encoder.own_dropout=false",
    "heads.projection=false",
    "heads.dropout=0.0",
    "train.lr_encoder=1e-4",
    "train.schedule=linear",
    "pool.start=0",
    "pool.refresh_every=2",
]
_CLASSIFIER = [
    "heads.classifier_dropout=0.0",
    "heads.classifier_init=label-text",
    "heads.classifier_normalised=true",
    "train.row_optimiser=adagrad",
    "train.lr_classifier=0.02",
]
SYSTEMS: dict[str, list[str]] = {
    "depsl": ["pool.positives=2", "pool.hard_negatives=1"],
    "unidec": ["pool.positives=2", "pool.hard_negatives=1", *_CLASSIFIER],
    "dexml": ["train.chunk=0"],
    "ngame": _CLASSIFIER,
    "renee": [*_CLASSIFIER, "loss.temperature=0.05", "heads.classifier_search_vectors=unit"],
}


def main() -> None:
    """Train all and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--text", default="title")
    parser.add_argument("--peer", default="", help="python with sentence-transformers; none to leave it out")
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--max-length", type=int, default=16)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dataset = read(arguments.data, ReadOptions(text=arguments.text))
    print("| system | CPU s | steps | encoded per CPU s | " + " | ".join(METRICS) + " |", flush=True)
    print("|---|" + "---:|" * (3 + len(METRICS)))
    longest = 0.0
    for name in arguments.systems.split(","):
        used = _ours(dataset, name, arguments)
        longest = max(longest, used)
    for loss in ("mnrl", "cached") if arguments.peer else ():
        _theirs(dataset, loss, longest, arguments)


def _ours(dataset: Any, name: str, arguments: argparse.Namespace) -> float:
    encoded = 0
    plain = TransformerEncoder.forward

    def counted(self: TransformerEncoder, rows: Any, *more: Any) -> Any:
        nonlocal encoded
        encoded += len(rows) if self.training else 0
        return plain(self, rows, *more)

    sizes = [
        f"train.epochs={arguments.epochs}",
        f"train.batch_size={arguments.batch}",
        f"encoder.max_length={arguments.max_length}",
    ]
    TransformerEncoder.forward = counted  # type: ignore[method-assign]
    started = time.process_time()
    try:
        model = train(dataset, name, settings=[*COMMON, *sizes, *SYSTEMS[name]])
    finally:
        TransformerEncoder.forward = plain  # type: ignore[method-assign]
    # Without the test that train makes at its end: it is timed and taken off.
    used = time.process_time() - started
    started = time.process_time()
    texts = list(dataset.test.texts)
    modes = [mode for mode in ("dual", "classifier", "both") if mode in (*model.scorer.layout.heads, "both")]
    found = {mode: model.topk(texts, 20, mode=mode) for mode in modes}
    used -= (time.process_time() - started) / len(modes)
    steps = model.metrics["training"].get("steps") or sum(
        stage["steps"] for stage in model.metrics["training"]["stages"].values()
    )
    for mode, topk in found.items():
        if mode != "both" or len(modes) > 2:
            _row(f"`{name}`, {mode}", used, steps, encoded, score_topk(topk, dataset, dataset.test).metrics)
    return used


def _theirs(dataset: Any, loss: str, seconds: float, arguments: argparse.Namespace) -> None:
    positives = dataset.train.positives.tocoo()
    labels, texts = list(dataset.labels.texts), list(dataset.train.texts)
    pairs = [[texts[row], labels[label]] for row, label in zip(positives.row, positives.col, strict=True)]
    work = {"encoder": str(minilm_folder()), "max_length": arguments.max_length, "labels": labels, "pairs": pairs}
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder) / "work.json", Path(folder) / "out.npy"
        file.write_text(json.dumps(work | {"test": list(dataset.test.texts)}), encoding="utf-8")
        runner = Path(__file__).with_name("sentence_transformers_run.py")
        command = [arguments.peer, runner, file, out, loss, arguments.batch, 1e-4, seconds]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr[-2000:])
        told = json.loads(done.stdout.splitlines()[-1])
        ids = np.load(out).astype(np.int64)
    scores = np.tile(-np.arange(ids.shape[1], dtype=np.float32), (len(ids), 1))
    found = score_topk(TopK(ids, scores), dataset, dataset.test).metrics
    _row(f"sentence-transformers, {loss}", told["cpu_seconds"], told["steps"], told["encoded"], found)


def _row(name: str, seconds: float, steps: int, encoded: int, metrics: dict[str, float]) -> None:
    numbers = " | ".join(f"{metrics[metric]:.2f}" for metric in METRICS)
    print(f"| {name} | {seconds:.0f} | {steps} | {encoded / seconds:.0f} | {numbers} |", flush=True)


if __name__ == "__main__":
    main()
