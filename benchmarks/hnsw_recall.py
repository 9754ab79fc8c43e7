"""Recall@10 of HNSW against exact search on the label vectors of a trained model and the test texts of its data set.

Run: python benchmarks/hnsw_recall.py MODEL DATA
"""

import argparse
import time

import numpy as np

from unidex import index
from unidex.data.formats import read
from unidex.model.model import Model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("data")
    chosen = parser.parse_args()
    model, dataset = Model.load(chosen.model), read(chosen.data)
    network = model.network
    labels = model.scorer.layout.rows(
        network.label_vectors(network.encoder.prepare(model.labels.texts)), model.labels.frequencies
    )
    texts = model.encode(list(dataset.test.texts))
    found = {}
    for kind in ("exact", "hnsw"):
        started = time.process_time()
        built = index.build(kind, labels.numpy())
        middle = time.process_time()
        found[kind] = built.search(texts, 10).ids
        print(f"{kind}: built in {middle - started:.1f} CPU s, searched in {time.process_time() - middle:.1f}")
    same = [len(np.intersect1d(a, b)) for a, b in zip(found["exact"], found["hnsw"], strict=True)]
    print(f"{dataset.name}: recall@10 of hnsw {np.mean(same) / 10:.4f}")


if __name__ == "__main__":
    main()
