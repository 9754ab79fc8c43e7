"""Where the CPU time of a training goes: seconds between two lines of its log, and the operations of one epoch.

Run: OMP_NUM_THREADS=1 python benchmarks/training_profile.py DATA [--recipe auto] [--text title] [--epoch 2] [--perf]
At the end stand the seconds of what held-out texts decide and of the parts that are fitted to them (`STEPS`).
The epoch is one of the first phase, under torch's profiler; the shares are those of the time within operations. With
--perf, the system's own profiler samples the epoch instead: shares are those of all its CPU time, of which operations
are a part. The others are Python, the gathering of batches, compiled code of unidex, and memory.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch.profiler import ProfilerActivity, profile

from unidex.data.read_options import ReadOptions
from unidex.training import validation
from unidex.training.loop import Trainer
from unidex.verbs.train import train

SHOWN = 12
# What a training does with held-out texts.
STEPS = (
    (validation.Validation, "score", "validation after epochs"),
    (validation.Validation, "choice", "choice of weights"),
    (validation, "fit_linear", "first fit of linear classifiers"),
    (validation.RankerFit, "__init__", "candidates of held-out texts"),
    (validation.RankerFit, "ranker", "fit of the ranker"),
    (validation.RankerFit, "predictions", "calibration: rankings by rankers of the other half"),
    (validation.Validation, "_calibration", "calibration: probabilities"),
    (validation.Validation, "fit", "other preparation of the ranker (kNN part, index)"),
)
# Products of matrices, dense and sparse: an embedding bag is a sparse matrix times a table, index_add its gradient.
# Dense ones are those of torch, or of oneDNN where it is faster (unidex.losses.products).
PRODUCTS = {
    "dense products": ("aten::mm", "aten::addmm", "aten::bmm", "aten::addmv_", "mkldnn::_linear_pointwise"),
    "sparse products": ("aten::_embedding_bag", "aten::index_add_", "_SparseProduct"),
}
# Names of code in samples. oneDNN and FBGEMM, the library of the embedding bag, compile theirs while they run.
COMPILED_MEANWHILE, GEMM = "[JIT]", re.compile(r"mkl_blas|dnnl::|gemm|EmbeddingSpMDM", re.IGNORECASE)
GROUPS = {
    "_kernels": "compiled code of unidex",
    "libtorch_cpu": "other operations of torch",
    "libpython": "Python",
    "libtorch_python": "Python",
    "_multiarray_umath": "NumPy",
    "libc.": "the C library",
    "[kernel": "the system",
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


def operations(run_epoch: Callable[[], None]) -> None:
    """Run an epoch under torch's profiler and print the shares of its operations."""
    with profile(activities=[ProfilerActivity.CPU]) as found:
        run_epoch()
    averages = found.key_averages()
    total = sum(one.self_cpu_time_total for one in averages)
    for one in sorted(averages, key=lambda one: -one.self_cpu_time_total)[:SHOWN]:
        print(f"{100 * one.self_cpu_time_total / total:6.1f} % | {one.key}")
    for name, keys in PRODUCTS.items():
        share = sum(one.self_cpu_time_total for one in averages if one.key.startswith(keys)) / total
        print(f"{100 * share:6.1f} % | {name} together", flush=True)


def samples(run_epoch: Callable[[], None]) -> None:
    """Run an epoch while perf samples this process, and print where the samples are."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "samples"
        command = ["perf", "record", "-F", "1999", "-o", str(file), "-p", str(os.getpid())]
        recording = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not file.exists() or not file.stat().st_size:
            if recording.poll() is not None:
                raise SystemExit("perf must record this process, but does not; see kernel.perf_event_paranoid")
            time.sleep(0.1)
        used = time.process_time()
        run_epoch()
        print(f"{time.process_time() - used:6.2f} CPU s in the epoch")
        recording.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            recording.wait(60)
        report = f"perf report --stdio -g none --sort dso,symbol -F sample,dso,symbol -i {file}"
        lines = subprocess.run(report.split(), capture_output=True, text=True, check=True).stdout.splitlines()
    counts: Counter[str] = Counter()
    for line in lines:
        if found := re.match(r"\s*(\d+)\s+(.*)", line):
            counts[group_of(found[2])] += int(found[1])
    for name, number in counts.most_common():
        print(f"{100 * number / counts.total():6.1f} % | {name}", flush=True)


def group_of(code: str) -> str:
    """What a sample counts as, by its library and its symbol."""
    if code.startswith(COMPILED_MEANWHILE) or GEMM.search(code):
        return "products of matrices"
    return next((name for begins, name in GROUPS.items() if begins in code.split("[.]")[0].split("[k]")[0]), "others")


def timed(owner: Any, name: str, label: str, seconds: dict[str, float]) -> None:
    """Let a function add its CPU seconds, without those of other such functions that it calls."""
    plain = getattr(owner, name)

    def run(*given: Any, **named: Any) -> Any:
        before, others = time.process_time(), sum(seconds.values())
        found = plain(*given, **named)
        inner = sum(seconds.values()) - others
        seconds[label] = seconds.get(label, 0.0) + time.process_time() - before - inner
        return found

    setattr(owner, name, run)


def profiled(number: int, profile_epoch: Callable[[Callable[[], None]], None]) -> None:
    """Let the epoch of this number of the first phase run under a profiler."""
    run_epoch, seen = Trainer._run_epoch, [0]

    def run(self: Trainer, advance: Any) -> None:
        seen[0] += 1
        if seen[0] == number:
            profile_epoch(lambda: run_epoch(self, advance))
        else:
            run_epoch(self, advance)

    Trainer._run_epoch = run  # type: ignore[method-assign]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--recipe", default="auto")
    parser.add_argument("--text", default="title+content")
    parser.add_argument("--epoch", type=int, default=2, help="the epoch whose operations are counted")
    parser.add_argument("--perf", action="store_true", help="sample all CPU time of that epoch with perf")
    chosen = parser.parse_args()
    logging.getLogger("unidex").addHandler(Seconds())
    logging.getLogger("unidex").setLevel(logging.INFO)
    profiled(chosen.epoch, samples if chosen.perf else operations)
    seconds: dict[str, float] = {}
    for owner, name, label in STEPS:
        timed(owner, name, label, seconds)
    train(chosen.data, chosen.recipe, reading=ReadOptions(text=chosen.text))
    logging.getLogger("unidex").info("The model is built.")
    total = time.process_time()
    for label, value in seconds.items():
        print(f"{value:6.2f} s, {100 * value / total:4.1f} % | {label}")
    print(f"{total:6.2f} s | the whole process")


if __name__ == "__main__":
    main()
