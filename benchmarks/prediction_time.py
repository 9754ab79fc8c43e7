"""CPU time of predicting the test texts of a data set with a model, and the time of predicting one text.

Run: python benchmarks/prediction_time.py MODEL DATA [--text title] [-k 10] [--single 1000] [--save IDS.npy]
From texts to ranked labels, after one call to warm up; prints one JSON object. Loading and reading are not in it.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np

from unidex.data.formats import read
from unidex.data.read_options import ReadOptions
from unidex.verbs.models import load_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("data")
    parser.add_argument("--text", default="title+content")
    parser.add_argument("-k", type=int, default=10)
    parser.add_argument("--single", type=int, default=1000, help="texts that are predicted one at a time")
    parser.add_argument("--save", type=Path, help="a file for the label ids of all test texts, best first")
    chosen = parser.parse_args()
    dataset = read(chosen.data, ReadOptions(text=chosen.text))
    model = load_model(chosen.model, "cpu")
    texts = list(dataset.test.texts)
    if not texts:
        parser.error("DATA must have test texts, but has none")
    model.topk(list(dataset.train.texts[:64]), chosen.k)

    started, wall = time.process_time(), time.perf_counter()
    found = model.topk(texts, chosen.k)
    batch = {"cpu_s": time.process_time() - started, "wall_s": time.perf_counter() - wall, "num_texts": len(texts)}
    if chosen.save:
        np.save(chosen.save, found.ids)

    model.topk(texts[:1], chosen.k)
    took = []
    started = time.process_time()
    for text in texts[: chosen.single]:
        wall = time.perf_counter()
        model.topk([text], chosen.k)
        took.append((time.perf_counter() - wall) * 1e3)
    cpu = (time.process_time() - started) / len(took) * 1e3
    median, p99 = np.percentile(took, [50, 99]).tolist()
    print(json.dumps({"batch": batch, "single_ms": {"median": median, "p99": p99, "cpu": cpu, "num_texts": len(took)}}))


if __name__ == "__main__":
    main()
