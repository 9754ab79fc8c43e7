"""The linear layers of a transformer by oneDNN and by the library of torch: CPU seconds of encoding and of a step.

Run: OMP_NUM_THREADS=1 python benchmarks/linear_layers.py [--encoder minilm] [--max-length 16] [--texts 512]
Both in turn, five times, in one process; the row is the median. On a processor where torch's library is as fast, both
are the same.
"""

from __future__ import annotations

import argparse
import time
from contextlib import nullcontext
from unittest import mock

import numpy as np
import torch

from unidex.config import Encoder
from unidex.encoders import transformer
from unidex.encoders.transformer import TransformerEncoder

ROUNDS = 5


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--max-length", type=int, default=16)
    parser.add_argument("--texts", type=int, default=512)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    settings = Encoder(kind="transformer", path=chosen.encoder, max_length=chosen.max_length, own_dropout=False)
    encoder = TransformerEncoder.from_pretrained(chosen.encoder, settings)
    texts = encoder.prepare([f"{number} words of a text that is long enough " * 20 for number in range(chosen.texts)])
    libraries = {"oneDNN": transformer.faster_linear_layers, "torch": lambda device: nullcontext()}
    seconds: dict[str, list[list[float]]] = {name: [] for name in libraries}
    for _ in range(ROUNDS + 1):
        for name, library in libraries.items():
            with mock.patch.object(transformer, "faster_linear_layers", library):
                seconds[name].append([_encoding(encoder, texts), _step(encoder, texts)])
    print(f"| {chosen.encoder}, {chosen.max_length} tokens | CPU ms per text, encoding | with gradients |")
    print("|---|---:|---:|")
    for name, rounds in seconds.items():
        # The first round compiles.
        encoding, step = 1000 * np.median(rounds[1:], axis=0) / chosen.texts
        print(f"| {name} | {encoding:.2f} | {step:.2f} |")


def _encoding(encoder: TransformerEncoder, texts: object) -> float:
    encoder.eval()
    started = time.process_time()
    with torch.no_grad():
        encoder(texts)
    return time.process_time() - started


def _step(encoder: TransformerEncoder, texts: object) -> float:
    encoder.train()
    encoder.zero_grad()
    started = time.process_time()
    encoder(texts).square().sum().backward()
    return time.process_time() - started


if __name__ == "__main__":
    main()
