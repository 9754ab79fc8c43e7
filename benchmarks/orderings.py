"""The orderings of the UniDEC paper on real data: heads, losses, hard negatives, positives a text, log q.

Run: python benchmarks/orderings.py DATA... [--text title] [--set section.key=value] [--only NAME,NAME] > table.md
Each variant is one training run with the bag encoder and the same seed; all are scored on test with the filter files.
"""

import argparse
import sys
import time

from unidex.data.formats import read
from unidex.data.read_options import ReadOptions
from unidex.verbs.evaluate import evaluate
from unidex.verbs.train import train

VARIANTS = {
    "unidec": [],
    "supcon instead of decoupled softmax": ["loss.dual=supcon", "loss.classifier=supcon"],
    "one positive (POL) on the same pool": ["loss.dual=one-positive", "loss.classifier=one-positive"],
    "without hard negatives": ["pool.hard_negatives=0"],
    "random batches": ["pool.batches=random"],
    "text to label only": ["loss.text_to_label=1.0"],
    "with log q": ["loss.log_q=1.0"],
    "with BCE on the classifier": ["loss.classifier_bce=1.0"],
}
COLUMNS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5", "R@10")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+")
    parser.add_argument("--recipe", default="unidec")
    parser.add_argument("--text", default="title+content")
    parser.add_argument("--set", action="append", default=[], dest="settings")
    parser.add_argument("--only", default="", help="names of variants, separated by commas")
    chosen = parser.parse_args()
    print(f"| set | variant | CPU s | {' | '.join(COLUMNS)} |")
    print("|---|---|---:|" + "---:|" * len(COLUMNS))
    wanted = [name.strip() for name in chosen.only.split(",") if name.strip()]
    for source in chosen.data:
        dataset = read(source, ReadOptions(text=chosen.text))
        name = dataset.name if chosen.text == "title+content" else f"{dataset.name}, {chosen.text}"
        for variant, changes in VARIANTS.items():
            if wanted and variant not in wanted:
                continue
            started = time.process_time()
            model = train(dataset, chosen.recipe, settings=[*chosen.settings, *changes])
            seconds = time.process_time() - started
            row(name, variant, f"{seconds:.0f}", model.metrics["test"])
            if variant == "unidec":
                for mode in ("dual", "classifier"):
                    row(name, f"its {mode} head alone", "", evaluate(model, dataset, mode=mode).metrics)


def row(name: str, variant: str, seconds: str, metrics: dict[str, float]) -> None:
    print(f"| {name} | {variant} | {seconds} | {' | '.join(f'{metrics[column]:.2f}' for column in COLUMNS)} |")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
