"""The gradient cache: peak memory and CPU time of a step on a pool of many labels, by the size of a chunk.

Run: python benchmarks/gradient_cache.py [--labels 2048] [--chunks 0,512,128,32] [--path minilm]
Each chunk size is one process: a step of DEPSL with a transformer, 64 texts and a pool of --labels label texts. Memory
is the most that was resident while stepping, less what was resident before it (VmHWM and VmRSS of the system).
"""

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
from scipy import sparse

from unidex.config.recipes import load
from unidex.data import hpo
from unidex.distributed import ALONE
from unidex.encoders.registry import build_encoder
from unidex.losses import Targets
from unidex.nn.assembly import build_network
from unidex.pools.pool import Batch
from unidex.training.step import Step
from unidex.training.training_set import TrainingSet

NUM_TEXTS = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, default=2048)
    parser.add_argument("--chunks", default="0,512,128,32")
    parser.add_argument("--path", default="minilm")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one is not None:
        megabytes, seconds = step(chosen.path, chosen.labels, chosen.one)
        print(f"{megabytes} {seconds}")
        return
    print("| chunk | peak MB of a step | CPU s |\n|---:|---:|---:|")
    for chunk in map(int, chosen.chunks.split(",")):
        command = [sys.executable, __file__, "--labels", str(chosen.labels), "--path", chosen.path, "--one", str(chunk)]
        megabytes, seconds = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        print(f"| {chunk or 'none: one graph'} | {float(megabytes):.0f} | {float(seconds):.1f} |", flush=True)


def step(path: str, num_labels: int, chunk: int) -> tuple[float, float]:
    """Peak memory in MB and CPU seconds of one step."""
    data = hpo.load()
    settings = ["encoder.kind=transformer", f"encoder.path={path}", "encoder.max_length=32", f"train.chunk={chunk}"]
    config = load("depsl", settings)
    encoder = build_encoder(config, data.train.texts, data.labels.texts)
    network = build_network(config, encoder, data.num_labels)
    network.train()
    texts = encoder.prepare(data.train.texts[:NUM_TEXTS])
    labels = encoder.prepare(data.labels.texts[:num_labels])
    rows = torch.arange(NUM_TEXTS)
    targets = Targets.of(rows, rows, shape=(NUM_TEXTS, num_labels))
    pairs = sparse.csr_array((NUM_TEXTS, num_labels), dtype=np.float32)
    take = Step(network, TrainingSet(texts, labels, pairs, pairs), config, ALONE, lambda *_: None)
    before, started = resident("VmRSS"), time.process_time()
    Path("/proc/self/clear_refs").write_text("5")
    take(Batch(np.arange(NUM_TEXTS), np.arange(num_labels), targets), 0, np.random.default_rng(0))
    return resident("VmHWM") - before, time.process_time() - started


def resident(what: str) -> float:
    found = re.search(rf"{what}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


if __name__ == "__main__":
    main()
