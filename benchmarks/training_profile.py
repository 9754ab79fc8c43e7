"""Where the CPU time of a training goes: seconds between two lines of its log, and the operations of one epoch.

Run: OMP_NUM_THREADS=1 python benchmarks/training_profile.py DATA [--recipe auto] [--text title] [--epoch 2]
The epoch is one of the first phase, under torch's profiler; the shares are those of the time within operations.
"""

from __future__ import annotations

import argparse
import logging
import time
from typing import Any

from torch.profiler import ProfilerActivity, profile

from unidex.data.read_options import ReadOptions
from unidex.training.loop import Trainer
from unidex.verbs.train import train

SHOWN = 12
# Products of matrices, dense and sparse: an embedding bag is a sparse matrix times a table, index_add its gradient.
PRODUCTS = {
    "dense products": ("aten::mm", "aten::addmm", "aten::bmm", "aten::addmv_"),
    "sparse products": ("aten::_embedding_bag", "aten::index_add_", "_SparseProduct"),
}


class Seconds(logging.Handler):
    """Prints the CPU seconds before each line."""

    def __init__(self) -> None:
        super().__init__()
        self._before = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """Print the seconds since the line before."""
        now = time.process_time()
        print(f"{now - self._before:6.1f} s | {record.getMessage()[:110]}", flush=True)
        self._before = now


def profiled(number: int) -> None:
    """Let the epoch of this number of the first phase run under the profiler."""
    run_epoch, seen = Trainer._run_epoch, [0]

    def run(self: Trainer, advance: Any) -> None:
        seen[0] += 1
        if seen[0] != number:
            run_epoch(self, advance)
            return
        with profile(activities=[ProfilerActivity.CPU]) as found:
            run_epoch(self, advance)
        averages = found.key_averages()
        total = sum(one.self_cpu_time_total for one in averages)
        for one in sorted(averages, key=lambda one: -one.self_cpu_time_total)[:SHOWN]:
            print(f"{100 * one.self_cpu_time_total / total:6.1f} % | {one.key}")
        for name, keys in PRODUCTS.items():
            share = sum(one.self_cpu_time_total for one in averages if one.key.startswith(keys)) / total
            print(f"{100 * share:6.1f} % | {name} together", flush=True)

    Trainer._run_epoch = run  # type: ignore[method-assign]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--recipe", default="auto")
    parser.add_argument("--text", default="title+content")
    parser.add_argument("--epoch", type=int, default=2, help="the epoch whose operations are counted")
    chosen = parser.parse_args()
    logging.getLogger("unidex").addHandler(Seconds())
    logging.getLogger("unidex").setLevel(logging.INFO)
    profiled(chosen.epoch)
    train(chosen.data, chosen.recipe, reading=ReadOptions(text=chosen.text))
    logging.getLogger("unidex").info("The model is built.")


if __name__ == "__main__":
    main()
