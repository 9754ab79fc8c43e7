"""How sure a model is of texts of random letters, with and without trust (docs/concepts/calibration.md).

Trains a model, and the same model without trust, on each data set. Reports the share of 500 texts of one to four random
words whose first label has a probability of at least 50%, and the expected calibration error on the test texts.

Run: python benchmarks/random_texts.py DATA [DATA ...]
"""

import argparse
import random
from types import SimpleNamespace

import numpy as np

from unidex.data.dataset import Dataset
from unidex.data.formats import read
from unidex.features.known_words import KnownWords
from unidex.model.model import Model
from unidex.scoring.calibration_fit import PLACES, Places
from unidex.training import validation
from unidex.verbs.evaluate import predict_split
from unidex.verbs.train import train

CONSONANTS, VOWELS = "bcdfghklmnprstvz", "aeiou"
NUM_TEXTS = 500


# Stands in for KnownWords: nothing tells what is known.
NO_WORDS = SimpleNamespace(of=lambda *_: None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+")
    chosen = parser.parse_args()
    for data in map(read, chosen.data):
        for name, words in (("without trust", NO_WORDS), ("with trust", KnownWords)):
            validation.KnownWords = words
            model = train(data, "auto")
            shares = {kind: f"{share_of_sure(model, texts):.1%}" for kind, texts in random_kinds().items()}
            print(f"{data.name}, {name}: ECE {error(model, data):.4f}, at least 50%: {shares}", flush=True)


def random_kinds() -> dict[str, list[str]]:
    """Texts of random letters, and of random syllables, which are more like words."""
    rng = random.Random(0)

    def letters() -> str:
        return "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randint(4, 10)))

    def syllables() -> str:
        return "".join(rng.choice(CONSONANTS) + rng.choice(VOWELS) for _ in range(rng.randint(2, 4)))

    kinds = {"letters": letters, "syllables": syllables}
    return {
        name: [" ".join(word() for _ in range(rng.randint(1, 4))) for _ in range(NUM_TEXTS)]
        for name, word in kinds.items()
    }


def share_of_sure(model: Model, texts: list[str]) -> float:
    probabilities = model.probabilities(model.topk(texts, 1), known=model.known_shares(texts))
    return float(np.mean(probabilities[:, 0] >= 0.5))


def error(model: Model, data: Dataset) -> float:
    known = model.known_shares(list(data.test.texts))
    topk = predict_split(model, data.test, None, PLACES)
    split = data.test
    places = Places.of(topk, split.positives, split.filter_pairs, model.labels.frequencies, known.familiarity_N)
    return places.error(places.probabilities(model.scorer.calibration))


if __name__ == "__main__":
    main()
