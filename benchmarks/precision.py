"""Size and scores of a model with rows of float32 and with rows of 8 bits.

Run: python benchmarks/precision.py MODEL DATA [--text title]
Rounds the vectors of features and labels of a trained model, saves it beside, and scores both on the test texts of
DATA. Prints one JSON object: bytes of both folders, P@1, P@5, PSP@1 and PSP@5 of both, and the share of texts whose
first label differs.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np

from unidex import index as indexes
from unidex.data.formats import read
from unidex.data.read_options import ReadOptions
from unidex.model.model import Model
from unidex.scoring.layout import Layout, Weights
from unidex.scoring.scorer import Scorer
from unidex.storage.eight_bits import rounded
from unidex.training.phases import changed
from unidex.verbs.evaluate import evaluate

METRICS = ("P@1", "P@5", "PSP@1", "PSP@5")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("data")
    parser.add_argument("--text", default="title+content")
    chosen = parser.parse_args()
    dataset = read(chosen.data, ReadOptions(text=chosen.text))
    before = Model.load(chosen.model)
    after = with_8_bits(before)
    texts = list(dataset.test.texts)
    first = [model.topk(texts, 1).ids[:, 0] for model in (before, after)]
    found: dict[str, object] = {"first_label_differs": round(100 * float(np.mean(first[0] != first[1])), 2)}
    with tempfile.TemporaryDirectory() as place:
        for name, model in (("float32", before), ("int8", after)):
            model.save(Path(place) / name)
            scores = evaluate(model, dataset, split="test").metrics
            found[name] = {"bytes": size(Path(place) / name)} | {key: round(scores[key], 2) for key in METRICS}
    print(json.dumps(found | {"bytes_as_given": size(chosen.model)}))


def with_8_bits(model: Model) -> Model:
    """The model with vectors of features and labels rounded to 8 bits."""
    config, old = changed(model.config, {"predict": {"precision": "int8"}}), model.scorer
    network = model.network
    rows = rounded(old.index.vectors(np.arange(old.index.num_ids)))
    layout = Layout.of(network, Weights.of(config.predict), "int8")
    index = indexes.build(old.index.kind, rows)
    scorer = Scorer(layout, index, model.labels, old.knn, old.fitted, old.calibration, old.lexical)
    return Model(config, network, model.labels, scorer, model.metrics, model.log, model.train_texts)


def size(folder: Path) -> int:
    """Bytes of all files of a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


if __name__ == "__main__":
    main()
