"""Size and scores of a model with vectors of float32 and with vectors of fewer bits.

Run: python benchmarks/precision.py DATA [--text title] [--bits 8,5,4] [--judged] [--model FOLDER]
Trains a model with vectors of float32, or reads it from FOLDER where one is, then rounds its vectors of features to so
many bits, makes those of texts and labels from them, and scores each on the test texts; with --judged, on a part of the
train texts that the model was not trained on, so that a choice of bits has not seen test texts. Prints one JSON object
per model: P@1, P@5, PSP@1, PSP@5 and the share of texts whose first label differs from that of float32. Models that a
recipe can ask for (`predict.precision`) have the labels of that precision, and are saved: bytes of their folders, and
of a folder of format 3 with numbers of 32 bits, which had the classifiers twice and no compressed file.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import torch

from judged_part import with_judged_part
from unidex.data.compressed_texts import CompressedTexts
from unidex.data.dataset import Dataset
from unidex.data.formats import read
from unidex.data.read_options import ReadOptions
from unidex.data.texts import Texts
from unidex.model.model import Model
from unidex.scoring import nearest_texts
from unidex.scoring.linear_part import LinearPart
from unidex.storage import small_numbers
from unidex.storage.eight_bits import EightBitRows
from unidex.training.linear_fit import round_weights
from unidex.training.phases import changed
from unidex.verbs.evaluate import evaluate
from unidex.verbs.train import train

METRICS = ("P@1", "P@5", "PSP@1", "PSP@5")
SAVED = {8: "int8", 5: "int5"}
JUDGED_TEXTS = 25_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--text", default="title+content")
    parser.add_argument("--bits", default="5", type=lambda text: [int(word) for word in text.split(",")])
    parser.add_argument("--judged", action="store_true")
    parser.add_argument("--model", type=Path)
    chosen = parser.parse_args()
    dataset = read(chosen.data, ReadOptions(text=chosen.text))
    if chosen.judged:
        dataset = with_judged_part(dataset, JUDGED_TEXTS)
    if chosen.model is not None and chosen.model.exists():
        plain = Model.load(chosen.model)
    else:
        plain = train(dataset, settings=["predict.precision=float32"], out=chosen.model)
    texts = list(dataset.test.texts)
    first = plain.topk(texts, 1).ids[:, 0]
    for bits in (32, *chosen.bits):
        model = plain if bits == 32 else with_bits(plain, dataset, bits)
        scores = evaluate(model, dataset, split="test", with_train_texts=True).metrics
        found: dict[str, object] = {"bits": bits} | {name: round(scores[name], 2) for name in METRICS}
        found["first_label_differs"] = round(100 * float(np.mean(model.topk(texts, 1).ids[:, 0] != first)), 2)
        if bits in SAVED:
            found["bytes"] = saved_size(model)
        print(json.dumps(found), flush=True)
    print(json.dumps({"bytes_of_format_3": size_before(plain)}))


def with_bits(model: Model, dataset: Dataset, bits: int) -> Model:
    """The model with vectors of features of so many bits, from which those of texts and labels follow."""
    network = model.network
    encoders = [encoder for encoder in (network.encoder, network.classifier_encoder) if encoder is not None]
    plain = [encoder.table.weight for encoder in encoders]
    for encoder, weight in zip(encoders, plain, strict=True):
        encoder.table.weight = torch.from_numpy(EightBitRows.of(weight.numpy(), bits).whole())
    config = changed(model.config, {"predict": {"precision": SAVED.get(bits, "float32")}})
    prepare, train_split = network.encoder.prepare, dataset.train
    texts = prepare(list(train_split.texts)), train_split.positives
    snippets = list(train_split.texts)
    labels = prepare(list(dataset.labels.encoder_texts))
    built = Model.build(config, network, model.labels, labels, model.metrics, texts, snippets)
    for encoder, weight in zip(encoders, plain, strict=True):
        encoder.table.weight = weight
    old, new = model.scorer, built.scorer
    new.fitted, new.calibration, new.lexical, new.linear = old.fitted, old.calibration, old.lexical, old.linear
    if old.linear is not None:
        # A model that was trained before weights were rounded has them so only from here on.
        weights = old.linear.weights_FL.copy()
        weights.data = round_weights(weights.data)
        new.linear = LinearPart(weights, old.linear.biases_L)
    built.log, built.train_texts = model.log, model.train_texts
    return built


def saved_size(model: Model) -> int:
    """Bytes of all files of the folder of a model."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "model"
        model.save(folder)
        return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def size_before(model: Model) -> int:
    """Bytes of the folder with numbers of 32 bits, whole numbers and texts as they are, and the classifiers twice."""
    small_numbers.MAPPED_FROM = nearest_texts.COMPRESSED_UP_TO = 0
    CompressedTexts.save = lambda self, file: Texts.of(list(self)).save(file)  # type: ignore[method-assign]
    classifiers = model.network.classifiers
    return saved_size(model) + (0 if classifiers is None else 4 * classifiers.weight.numel())


if __name__ == "__main__":
    main()
