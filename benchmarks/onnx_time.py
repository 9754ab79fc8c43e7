"""CPU time per text of an exported ONNX graph and of the model itself, interleaved in one run.

    unidex export M --to onnx --out O
    python benchmarks/onnx_time.py M O hpo

"graph" makes the inputs of the graph and runs it (onnxruntime, one thread); "heads" is the model's encoder and index,
which compute the same score; "predict" is the model's whole prediction with kNN part and ranker.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from tokenizers import Tokenizer

import unidex
from unidex.features.extractor import FeatureExtractor, padded_rows


def graph_of(folder: Path) -> Callable[[Sequence[str]], object]:
    """A function from texts to the k best labels, by the graph of a folder."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options)
    k = {"k": np.array([5])}
    if (folder / "features").is_dir():
        features = FeatureExtractor.load(folder / "features")

        def run(texts: Sequence[str]) -> object:
            rows = features.transform_few(texts) if len(texts) <= 64 else features.transform(texts)
            ids, weights = padded_rows(rows)
            return session.run(["scores", "labels"], {"feature_ids": ids, "feature_weights": weights} | k)

        return run
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def run_tokens(texts: Sequence[str]) -> object:
        found = tokenizer.encode_batch(list(texts))
        inputs = {
            "input_ids": np.array([encoding.ids for encoding in found]),
            "attention_mask": np.array([encoding.attention_mask for encoding in found]),
        }
        return session.run(["scores", "labels"], inputs | k)

    return run_tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("export")
    parser.add_argument("data")
    parser.add_argument("--texts", type=int, default=256)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    model = unidex.Model.load(arguments.model)
    texts = list(unidex.read(arguments.data).test.texts)[: arguments.texts]
    ways: dict[str, Callable[[Sequence[str]], object]] = {
        "graph": graph_of(Path(arguments.export)),
        "heads": lambda some: model.scorer.index.search(model.encode(some, "both"), 5),
        "predict": lambda some: model.predict(some, 5),
    }
    for size in (1, 64):
        batches = [texts[start : start + size] for start in range(0, len(texts), size)]
        spent = dict.fromkeys(ways, 0.0)
        for batch in batches[:2]:
            for way in ways.values():
                way(batch)
        for batch in batches:
            for name, way in ways.items():
                start = time.process_time()
                way(batch)
                spent[name] += time.process_time() - start
        shown = {name: round(1000 * seconds / len(texts), 3) for name, seconds in spent.items()}
        print(json.dumps({"texts_per_call": size, "cpu_ms_per_text": shown}))


if __name__ == "__main__":
    main()
