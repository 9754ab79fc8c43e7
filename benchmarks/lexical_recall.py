"""Which share of the labels of held-out texts the lexical part finds by shared words, beginnings of words and stems.

    python benchmarks/lexical_recall.py DATA [--labels vocabulary.tsv] [--language fi]

Judges 1,500 train texts, drawn by a seed; test texts are not read and nothing is trained, so a label counts as one
without training texts does.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from unidex.data.dataset import Split
from unidex.data.formats import read
from unidex.data.read_options import ReadOptions
from unidex.features.analyser import PLAIN, Analyser
from unidex.scoring.lexical import LexicalPart
from unidex.scoring.lexical_columns import READING, Reading

_NUM_TEXTS = 1500
_PLACES = (6, 20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--labels", type=Path)
    parser.add_argument("--language", default="", help="language of the stems, for two more rows")
    asked = parser.parse_args()
    dataset = read(asked.data, ReadOptions(labels=asked.labels))
    texts = dataset.train.take(np.random.default_rng(7).permutation(len(dataset.train))[:_NUM_TEXTS])
    labels = dataset.labels
    print("| compared | " + " | ".join(f"R@{k}" for k in _PLACES) + " |\n|---|" + "---|" * len(_PLACES))
    for language in sorted({"", asked.language}):
        for letters in (0, 5, READING.beginning, 7, 8):
            analyser = Analyser("stems", language) if language else PLAIN
            part = LexicalPart.of(labels.texts, labels.concepts, Reading(analyser, letters))
            name = f"stems ({language})" if language else "words"
            name += f" and beginnings of {letters} letters" if letters else ""
            print(f"| {name} | " + " | ".join(f"{found:.1f}" for found in _recalls(part, texts)) + " |", flush=True)


def _recalls(part: LexicalPart, texts: Split) -> list[float]:
    found = part.search(part.rows(list(texts.texts)), max(_PLACES)).ids
    truth = texts.positives
    hits = np.zeros(len(_PLACES))
    for row, ids in enumerate(found):
        own = truth.indices[truth.indptr[row] : truth.indptr[row + 1]]
        hits += [np.isin(own, ids[:k]).sum() for k in _PLACES]
    return (100 * hits / truth.nnz).tolist()


if __name__ == "__main__":
    main()
