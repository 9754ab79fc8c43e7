"""CPU time per text of an exported ONNX graph beside the model it was made of.

    python benchmarks/scale_set.py SET --labels 24000 --texts 4000
    unidex train SET --recipe unidec --set train.epochs=1 --out M
    python benchmarks/onnx_time.py M SET [-k 5] [--texts 200]

Both get texts and give the k best labels of all, in one thread: features, vectors, search. The graph has the weighted
sum of the heads; a model of the recipe `unidec` ranks by the same sum. Texts one at a time, then all at once.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import faiss
import numpy as np
import onnxruntime
from numpy.typing import NDArray

import unidex
from unidex.features.extractor import FeatureExtractor, padded_rows
from unidex.verbs.export import export

Predict = Callable[[list[str]], NDArray[np.int64]]


def main() -> None:
    """Export, compare the labels, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("-k", type=int, default=5)
    parser.add_argument("--texts", type=int, default=200)
    chosen = parser.parse_args()
    faiss.omp_set_num_threads(1)
    texts = list(unidex.read(chosen.data).test.texts)[: chosen.texts]
    model = unidex.Model.load(chosen.model)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "onnx"
        export(Path(chosen.model), "onnx", out)
        graph = _graph(out, chosen.k)

        def predict(some: list[str]) -> NDArray[np.int64]:
            return model.topk(some, chosen.k).ids

        same = float((graph(texts) == predict(texts)).mean())
        print(f"{len(model.labels)} labels, {len(texts)} texts, k = {chosen.k}; equal labels: {same:.4f}")
        print("| | one text at a time, CPU ms | all at once, CPU ms per text |")
        print("|---|---:|---:|")
        for name, system in (("model.predict", predict), ("ONNX graph", graph)):
            alone = _cpu_ms(lambda system=system: [system([text]) for text in texts]) / len(texts)
            together = _cpu_ms(lambda system=system: system(texts)) / len(texts)
            print(f"| {name} | {alone:.2f} | {together:.2f} |", flush=True)


def _graph(folder: Path, k: int) -> Predict:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(folder / "model.onnx", options)
    features = FeatureExtractor.load(folder / "features")

    def predict(texts: list[str]) -> NDArray[np.int64]:
        ids, weights = padded_rows(features.transform(texts))
        inputs = {"feature_ids": ids, "feature_weights": weights, "k": np.array([k])}
        found: NDArray[np.int64] = session.run(["labels"], inputs)[0]
        return found

    return predict


def _cpu_ms(work: Callable[[], Any]) -> float:
    """CPU milliseconds, the lower of two runs after one to warm up."""
    work()
    took = []
    for _ in range(2):
        started = time.process_time()
        work()
        took.append(1e3 * (time.process_time() - started))
    return min(took)


if __name__ == "__main__":
    main()
