"""What each kind of feature and start vector of the bag encoder is worth, on a validation split of train.

Run: python benchmarks/bag_features.py DATA... [--set section.key=value]
"""

import argparse
import sys
import time

from unidex.data.formats import read
from unidex.verbs.train import train

VARIANTS = {
    "words, parts, bigrams (default)": [],
    "without bigrams": ["features.bigrams=false"],
    "without parts": ["features.parts=false"],
    "with character n-grams": ["features.chars=true"],
    "with subword tokens": ["features.subwords=true"],
    "without hashed rows for rare features": ["features.num_buckets=0"],
    "start vectors of wordllama": ["encoder.path=wordllama"],
    "start vectors of MiniLM's tokens": ["encoder.path=minilm"],
}
COLUMNS = ("P@1", "P@5", "PSP@1", "PSP@5")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+")
    parser.add_argument("--set", action="append", default=[], dest="settings")
    chosen = parser.parse_args()
    print(f"| set | features | CPU s | {' | '.join(COLUMNS)} |")
    print("|---|---|---:|" + "---:|" * len(COLUMNS))
    for source in chosen.data:
        dataset = read(source)
        for variant, changes in VARIANTS.items():
            started = time.process_time()
            split = ["train.validation=0.1", "train.validate_every=1000"]
            model = train(dataset, "unidec", settings=[*split, *chosen.settings, *changes])
            metrics = model.metrics["validation"]
            values = " | ".join(f"{metrics[column]:.2f}" for column in COLUMNS)
            print(f"| {dataset.name} | {variant} | {time.process_time() - started:.0f} | {values} |")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
