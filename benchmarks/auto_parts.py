"""What each part of the recipe `auto` is worth: the recipe as it is, and with one thing changed at a time.

Run: python benchmarks/auto_parts.py DATA... [--text title] [--only "NAME;NAME"] [--seeds 3] [--judge train] > table.md
DATA is a folder, the name of a built-in set, or FOLDER:title to give it another --text than the rest.
Each row is one whole training run per seed, scored on test with the filter files: the mean over the seeds and, with
several, their standard deviation. CPU seconds are of a run from reading to the finished model, start-up apart.
What single features of the ranker are worth, `ranker_trials.py` tells.
--judge train takes a part of the train texts in the place of test, as is right for whatever may become a default.

LEVER here: the classifier's probabilities in a pool are drawn to the dual encoder's, with a weight of 0.3.
"""

import argparse
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from judged_part import with_judged_part
from peers import TEXTS, source_and_text
from unidex.data.dataset import Dataset, Split
from unidex.data.formats import read
from unidex.data.read_options import ReadOptions
from unidex.training.shared_pool import CLASSIFIER, SharedPool
from unidex.verbs.evaluate import evaluate
from unidex.verbs.train import train

VARIANTS = {
    "auto": [],
    "one encoder for both heads": ["heads.shared_encoder=true"],
    "rare features count in full": ["heads.classifier_feature_smoothing=0"],
    "without character n-grams": ["features.chars=false"],
    "n-grams of 3 to 5 characters": ["features.chars_max=5"],
    "without word pairs": ["features.bigrams=false"],
    "without parts of identifiers": ["features.parts=false"],
    "first words count once": ["features.lead_weight=0"],
    "without hashed rows for rare features": ["features.num_buckets=0"],
    "with subword tokens": ["features.subwords=true"],
    "initial vectors of wordllama": ["encoder.path=wordllama"],
    "MiniLM in both heads": ["features.pretrained=minilm", "encoder.max_length=32"],
    "MiniLM in the ranker": ["predict.pretrained=minilm", "encoder.max_length=32"],
    "MiniLM in both heads and in the ranker": [
        "features.pretrained=minilm",
        "predict.pretrained=minilm",
        "encoder.max_length=32",
    ],
    "wordllama in both heads": ["features.pretrained=wordllama", "encoder.max_length=32"],
    "wordllama in the ranker": ["predict.pretrained=wordllama", "encoder.max_length=32"],
    "weighted sum, no ranker": ["predict.rank=sum"],
    "without linear classifiers": ["predict.linear=false"],
    "favour accuracy": ["predict.favour=accuracy"],
    "favour rare": ["predict.favour=rare"],
    "without neighbours": ["predict.choose_knn=false"],
    "without the prior": ["predict.choose_label_prior=false"],
    "heads weighed alike": ["predict.choose_fusion=false"],
    "a residual layer": ["encoder.residual=true"],
    "features dropped out, 0.3": ["encoder.dropout=0.3"],
    "192 dimensions": ["encoder.dim=192"],
    "hard negatives, 2 a text": ["pool.hard_negatives=2", "pool.size=3000"],
    "label texts as points (Gandalf)": ["augment.method=gandalf"],
    "more steady epochs": ["train.min_gain=0.02"],
    "decay phase of 4 epochs": ["train.decay_epochs=4"],
    "a fifth held out": ["train.validation=0.2"],
    "no simulated decay phase": ["train.simulate_decay_up_to=0"],
    "classifiers with label words": ['heads.classifier_parts=["free","text"]'],
    "soft targets of the dual encoder (LEVER)": [],
}
LEVER, LEVER_WEIGHT = "soft targets of the dual encoder (LEVER)", 0.3
COLUMNS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")


def distilled() -> AbstractContextManager[object]:
    """Training whose classifier learns the dual encoder's probabilities beside the labels."""
    plain = SharedPool._loss

    @torch.no_grad()
    def loss(
        pool: Any, head: int, vectors: Any, number: int, labels_PD: Any, labels: Any, scale: Any, *rest: Any
    ) -> Any:
        found = plain(pool, head, vectors, number, labels_PD, labels, scale, *rest)
        if head != CLASSIFIER:
            return found
        texts_BD = vectors.texts[number]
        own_BP = torch.softmax(scale * (texts_BD @ labels_PD.T), dim=1)
        dual_scale = pool.towers.network.log_scales[0].exp()
        wanted_BP = torch.softmax(dual_scale * (vectors.texts[0] @ vectors.labels.T), dim=1)
        gradient_BP = (own_BP - wanted_BP) * (LEVER_WEIGHT * scale / len(texts_BD))
        return found._replace(
            texts_BD=found.texts_BD + gradient_BP @ labels_PD, labels_LD=found.labels_LD + gradient_BP.T @ texts_BD
        )

    return mock.patch.object(SharedPool, "_loss", loss)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+")
    parser.add_argument("--text", default="title+content", choices=TEXTS)
    parser.add_argument("--only", default="", help="names of variants, separated by semicolons")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds, from 0")
    parser.add_argument("--judge", choices=("test", "train"), default="test", help="texts that decide")
    parser.add_argument("--max-texts", type=int, help="train texts to take of a large set, with --judge train")
    arguments = parser.parse_args()
    wanted = [name.strip() for name in arguments.only.split(";") if name.strip()] or list(VARIANTS)
    print(f"| set | variant | CPU s | {' | '.join(COLUMNS)} |")
    print("|---|---|" + "---:|" * (len(COLUMNS) + 1))
    for given in arguments.data:
        source, text = source_and_text(given, arguments.text)
        # A built-in set has titles alone.
        dataset = read(source, ReadOptions(text=text) if Path(source).exists() else ReadOptions())
        if arguments.judge == "train":
            dataset = with_judged_part(dataset, arguments.max_texts)
        for name in wanted:
            print(f"{dataset.name}: {name}", file=sys.stderr)
            cells = " | ".join(measured(dataset, name, arguments.seeds, on_train=arguments.judge == "train"))
            print(f"| {dataset.name} | {name} | {cells} |", flush=True)


def measured(dataset: Dataset, name: str, num_seeds: int, *, on_train: bool) -> list[str]:
    """CPU seconds and metrics of a variant, as they are shown."""
    train_only = dataset.with_test(Split.empty(dataset.num_labels))
    # One thing at a time: what is tried beside the recipe is switched off unless it is the variant.
    settings = ["pool.try_hard_negatives=0", "augment.method=none", *VARIANTS[name]]
    rows = []
    for seed in range(num_seeds):
        started = time.process_time()
        with distilled() if name == LEVER else nullcontext():
            model = train(train_only, "auto", settings=settings, seed=seed)
        seconds = time.process_time() - started
        metrics = evaluate(model, dataset, with_train_texts=on_train).metrics
        rows.append([seconds, *(metrics[column] for column in COLUMNS)])
    seconds, *means = np.mean(rows, axis=0)
    spread = [f" ± {value:.1f}" for value in np.std(rows, axis=0, ddof=1)[1:]] if len(rows) > 1 else [""] * 6
    return [f"{seconds:.0f}", *(f"{mean:.2f}{more}" for mean, more in zip(means, spread, strict=True))]


if __name__ == "__main__":
    main()
