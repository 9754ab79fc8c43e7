"""`auto` with and without a frozen encoder beside the bag, whose cosines and kNN scores its ranker may read.

usage: python benchmarks/pretrained_features.py DATA [--text title] [--texts 10000] [--max-length 16] [--seeds 3]

Prints one line per source of vectors (none, minilm, wordllama): the mean and the standard deviation over seeds, of the
ranker's metric on held-out texts with and without the vectors, by which the run chooses, and of the metrics on test.
CPU seconds are those of the first seed, in one thread, without the test texts: the others share its vectors. With
--texts, each seed draws its own part of the train texts.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from unittest import mock

import numpy as np
import torch

from unidex.data.dataset import Dataset, Split
from unidex.data.formats import read
from unidex.data.read_options import ReadOptions
from unidex.scoring.pretrained_encoder import PretrainedEncoder, Vectors
from unidex.training import validation
from unidex.verbs.evaluate import evaluate
from unidex.verbs.train import train

METRICS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")
SOURCES = ("", "minilm", "wordllama")


class Choices(logging.Handler):
    """The two metrics of the run's log line about the choice."""

    def __init__(self) -> None:
        super().__init__()
        self.values: tuple[float, float] | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the arguments of that line."""
        if record.msg.startswith("The ranker reads") and isinstance(record.args, tuple):
            *_, found, plain = (value for value in record.args if isinstance(value, float))
            self.values = found, plain


def main() -> None:
    """Train all and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--text", default="title+content")
    parser.add_argument("--texts", type=int, default=0)
    parser.add_argument("--max-length", type=int, default=16)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sources", nargs="+", default=SOURCES)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    dataset = read(chosen.data, ReadOptions(text=chosen.text))
    print("| frozen encoder | seeds | held out, with | without | chosen | CPU s | " + " | ".join(METRICS) + " |")
    print("|---|" + "---:|" * (5 + len(METRICS)))
    for source in chosen.sources:
        settings = [f"encoder.max_length={chosen.max_length}", f"predict.pretrained={source}"]
        with mock.patch.object(PretrainedEncoder, "__call__", _encode_once(PretrainedEncoder.__call__)):
            runs = [_run(_part(dataset, chosen.texts, seed), settings, seed) for seed in range(chosen.seeds)]
        held_out = [_mean([run[name] for run in runs]) if source else "" for name in ("with", "without")]
        num_chosen = f"{sum(run['is_chosen'] for run in runs):.0f} of {len(runs)}" if source else ""
        metrics = [_mean([run[name] for run in runs]) for name in METRICS]
        cells = [source or "none", str(len(runs)), *held_out, num_chosen, f"{runs[0]['seconds']:.0f}", *metrics]
        print(f"| {' | '.join(cells)} |", flush=True)


def _encode_once(encode: Callable[[PretrainedEncoder, Sequence[str]], Vectors]) -> Callable[..., Vectors]:
    known: dict[str, Vectors] = {}

    def vectors_of(encoder: PretrainedEncoder, texts: Sequence[str]) -> Vectors:
        new = list(dict.fromkeys(text for text in texts if text not in known))
        known.update(zip(new, encode(encoder, new), strict=True))
        return np.stack([known[text] for text in texts])

    return vectors_of


def _part(dataset: Dataset, num_texts: int, seed: int) -> Dataset:
    if not num_texts:
        return dataset
    rows = np.random.default_rng(seed).choice(len(dataset.train), min(num_texts, len(dataset.train)), replace=False)
    return replace(dataset, train=dataset.train.take(np.sort(rows)))


def _run(dataset: Dataset, settings: Sequence[str], seed: int) -> dict[str, float]:
    choices, logger = Choices(), logging.getLogger(validation.__name__)
    logger.addHandler(choices)
    logger.setLevel(logging.INFO)
    started = time.process_time()
    try:
        model = train(replace(dataset, test=Split.empty(dataset.num_labels)), settings=settings, seed=seed)
    finally:
        logger.removeHandler(choices)
    seconds = time.process_time() - started
    metrics = evaluate(model, dataset, with_train_texts=True).metrics
    found = dict(zip(("with", "without"), choices.values or (np.nan, np.nan), strict=True))
    return (
        {name: metrics[name] for name in METRICS}
        | found
        | {
            "seconds": seconds,
            "is_chosen": float(bool(model.config.predict.pretrained)),
        }
    )


def _mean(values: list[float]) -> str:
    return f"{np.mean(values):.2f}" + (f" ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else "")


if __name__ == "__main__":
    main()
