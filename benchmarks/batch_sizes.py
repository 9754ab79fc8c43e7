"""CPU time per text of `model.predict`, by the number of texts that are predicted at once.

Run: OMP_NUM_THREADS=1 python benchmarks/batch_sizes.py MODEL DATA [--text title] [-k 5] [--rounds 3] [--texts 1024]
     [--sizes 1,8,16,32,64,128,256,1024]
From texts to ranked labels with probabilities. Each round takes the sizes in turn, and each size the next texts of
DATA, of its test and train parts, so that the process has seen none of them before. The median of the rounds counts.
Minor page faults per text say how much memory is taken from the system anew.
"""

import argparse
import resource
import statistics
import time
from pathlib import Path

from unidex.data.formats import read
from unidex.data.read_options import ReadOptions
from unidex.verbs.models import load_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("data")
    parser.add_argument("--text", default="title+content")
    parser.add_argument("-k", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--texts", type=int, default=1024, help="texts per size and round")
    parser.add_argument("--sizes", type=lambda text: [int(one) for one in text.split(",")])
    chosen = parser.parse_args()
    sizes = chosen.sizes or [1, 8, 16, 32, 64, 128, 256, 1024]
    dataset = read(chosen.data, ReadOptions(text=chosen.text))
    model = load_model(chosen.model, "cpu")
    texts = [*dataset.test.texts, *dataset.train.texts]
    needed = chosen.rounds * len(sizes) * chosen.texts
    if len(texts) < needed + chosen.texts:
        parser.error(
            f"DATA must have {needed + chosen.texts} texts, but has {len(texts)}; use fewer --rounds or --texts"
        )
    model.predict(texts[-chosen.texts :], chosen.k)
    unseen = iter(range(0, needed, chosen.texts))
    found: dict[int, list[tuple[float, float]]] = {size: [] for size in sizes}
    for _ in range(chosen.rounds):
        for size in sizes:
            start = next(unseen)
            own = texts[start : start + chosen.texts]
            faults, used = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.process_time()
            for first in range(0, len(own), size):
                model.predict(own[first : first + size], chosen.k)
            used = time.process_time() - used
            faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
            found[size].append((1e3 * used / len(own), faults / len(own)))
    print("| texts at a time | CPU ms per text | lowest | minor faults per text |\n|---:|---:|---:|---:|")
    for size, rounds in found.items():
        times, faults_per_text = zip(*rounds, strict=True)
        middle = statistics.median(times)
        print(f"| {size:,} | {middle:.3f} | {min(times):.3f} | {statistics.median(faults_per_text):.2f} |")


if __name__ == "__main__":
    main()
