"""A small slice of a data set: some train texts with their labels, and the test texts that have one of these labels.

usage: python benchmarks/slice_of_set.py DATA OUT [--text title] [--texts 1000]
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from unidex.data.dataset import Dataset, Labels, Split
from unidex.data.formats import read, write
from unidex.data.read_options import ReadOptions
from unidex.data.texts import Texts


def main() -> None:
    """Write the slice."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("out", type=Path)
    parser.add_argument("--text", default="title+content")
    parser.add_argument("--texts", type=int, default=1000)
    chosen = parser.parse_args()
    dataset = read(chosen.data, ReadOptions(text=chosen.text))
    drawn = np.random.default_rng(0).choice(len(dataset.train), min(len(dataset.train), chosen.texts), replace=False)
    train = dataset.train.take(np.sort(drawn))
    found = with_labels(replace(dataset, train=train), np.unique(train.positives.indices).astype(np.int64))
    write(found, chosen.out, "unidex")
    print(f"{len(found.train)} train texts, {found.num_labels} labels, {len(found.test)} test texts")


def with_labels(dataset: Dataset, kept: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Dataset:
    """The data set with these labels alone, ascending, and the texts that have one of them."""
    labels = dataset.labels
    texts = Texts.of([labels.texts[label] for label in kept])
    uids = None if labels.uids is None else Texts.of([labels.uids[label] for label in kept])
    concepts = {new: labels.concepts[old] for new, old in enumerate(kept.tolist()) if old in labels.concepts}

    def part(split: Split) -> Split:
        positives, filter_pairs = split.positives[:, kept], split.filter_pairs[:, kept]
        rows = np.flatnonzero(np.diff(positives.indptr))
        return replace(split, positives=positives, filter_pairs=filter_pairs).take(rows)

    train, test = (part(split) for split in dataset.splits)
    return replace(dataset, labels=Labels(texts, uids, concepts), train=train, test=test)


if __name__ == "__main__":
    main()
