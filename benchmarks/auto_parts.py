"""What each part of the recipe `auto` is worth: the recipe as it is, and with one thing changed at a time.

Run: python benchmarks/auto_parts.py DATA [--text title] [--only "NAME;NAME"] > table.md
Each row is one whole training run with the same seed, scored on test with the filter files. CPU seconds are of the run
from reading to the finished model, start-up apart.
"""

import argparse
import sys
import time

from unidex.data.dataset import Split
from unidex.data.formats import read
from unidex.data.read_options import ReadOptions
from unidex.verbs.evaluate import evaluate
from unidex.verbs.train import train

VARIANTS = {
    "auto": [],
    "one encoder for both heads": ["heads.shared_encoder=true"],
    "rare features count in full": ["heads.classifier_feature_smoothing=0"],
    "without neighbours": ["predict.choose_knn=false"],
    "without the prior": ["predict.choose_label_prior=false"],
    "heads weighed alike": ["predict.choose_fusion=false"],
    "a residual layer": ["encoder.residual=true"],
    "features dropped out, 0.3": ["encoder.dropout=0.3"],
    "192 dimensions": ["encoder.dim=192"],
    "hard negatives, 2 a text": ["pool.hard_negatives=2", "pool.size=3000"],
    "label texts as points (Gandalf)": ["augment.method=gandalf"],
    "more steady epochs": ["train.min_gain=0.02"],
}
COLUMNS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--text", default="title+content")
    parser.add_argument("--only", default="", help="names of variants, separated by semicolons")
    arguments = parser.parse_args()
    dataset = read(arguments.data, ReadOptions(text=arguments.text))
    train_only = dataset.with_test(Split.empty(dataset.num_labels))
    wanted = [name.strip() for name in arguments.only.split(";") if name.strip()] or list(VARIANTS)
    print(f"| {dataset.name} | CPU s | {' | '.join(COLUMNS)} |")
    print("|---|" + "---:|" * (len(COLUMNS) + 1))
    for name in wanted:
        print(name, file=sys.stderr)
        # One thing at a time: what is tried beside the recipe is switched off unless it is the variant.
        settings = ["pool.try_hard_negatives=0", "augment.method=none", *VARIANTS[name]]
        started = time.process_time()
        model = train(train_only, "auto", settings=settings)
        seconds = time.process_time() - started
        metrics = evaluate(model, dataset).metrics
        print(
            f"| {name} | {seconds:.0f} | " + " | ".join(f"{metrics[column]:.2f}" for column in COLUMNS) + " |",
            flush=True,
        )


if __name__ == "__main__":
    main()
