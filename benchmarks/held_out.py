"""How `auto` should hold out texts: one by one, by groups of like texts, or half of each, judged on both kinds.

Run: python benchmarks/held_out.py DATA [--text title] [--only random] > table.md
A part of the train texts takes the place of test, drawn one by one or by groups, so that real test texts decide
nothing. A group is made of texts whose words have a cosine (TF-IDF) of at least 0.5 with one of the group, at most 40
of them, as binary packages of one source or volumes of one book. Trials are switched off.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer

from unidex.data.dataset import Dataset, Split, split_rows
from unidex.data.formats import read
from unidex.data.read_options import ReadOptions
from unidex.training import validation
from unidex.verbs.evaluate import evaluate
from unidex.verbs.train import train

KINDS = ("random", "groups", "mixed")
COLUMNS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")
MIN_COSINE, MAX_GROUP = 0.5, 40
JUDGED, MAX_JUDGED = 0.15, 6000
_ROWS_AT_ONCE = 500
Rows = NDArray[np.int64]


def groups_of(texts: list[str]) -> Rows:
    """The group of each text: the most similar pairs join first, as long as a group is small enough."""
    vectoriser = TfidfVectorizer(sublinear_tf=True, dtype=np.float32, min_df=2, max_df=0.2)
    features = vectoriser.fit_transform(texts).tocsr()
    by_feature, pairs = features.T.tocsr(), []
    for start in range(0, len(texts), _ROWS_AT_ONCE):
        cosines = (features[start : start + _ROWS_AT_ONCE] @ by_feature).tocoo()
        near = (cosines.data >= MIN_COSINE) & (cosines.col > cosines.row + start)
        pairs.append(np.stack([cosines.data[near], cosines.row[near] + start, cosines.col[near]]))
    joined = np.concatenate(pairs, axis=1)
    parents, sizes = list(range(len(texts))), [1] * len(texts)

    def root(text: int) -> int:
        while parents[text] != text:
            parents[text] = text = parents[parents[text]]
        return text

    for first, second in joined[1:, np.argsort(-joined[0], kind="stable")].T.astype(int).tolist():
        one, other = root(first), root(second)
        if one != other and sizes[one] + sizes[other] <= MAX_GROUP:
            parents[other], sizes[one] = one, sizes[one] + sizes[other]
    return np.array([root(text) for text in range(len(texts))])


def split_groups(groups: Rows, fraction: float, seed: int) -> tuple[Rows, Rows]:
    """As `split_rows`, by whole groups."""
    drawn = np.random.default_rng(seed).permutation(np.unique(groups))
    ends = np.cumsum(np.bincount(groups, minlength=groups.max() + 1)[drawn])
    held_out = np.isin(groups, drawn[: int(np.searchsorted(ends, fraction * len(groups))) + 1])
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def splitter(kind: str, groups: Rows) -> Callable[[int, float, int], tuple[Rows, Rows]]:
    """What holds out texts in place of `split_rows`."""

    def split(num_rows: int, fraction: float, seed: int) -> tuple[Rows, Rows]:
        if kind == "random":
            return split_rows(num_rows, fraction, seed)
        if kind == "groups":
            return split_groups(groups, fraction, seed)
        rest, by_groups = split_groups(groups, fraction / 2, seed)
        held_out = np.union1d(by_groups, rest[split_rows(len(rest), fraction / 2, seed)[1]])
        return np.setdiff1d(np.arange(num_rows), held_out), held_out

    return split


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--text", help="title, content or title+content, where the data set has both")
    parser.add_argument("--only", choices=KINDS, nargs="+", default=KINDS)
    parser.add_argument("--set", action="append", default=[], dest="settings")
    chosen = parser.parse_args()
    dataset = read(chosen.data, ReadOptions(text=chosen.text) if chosen.text else None)
    groups = groups_of(list(dataset.train.texts))
    print(f"| {dataset.name}: judged on | held out | CPU s | {' | '.join(COLUMNS)} |")
    print("|---|---|" + "---:|" * (len(COLUMNS) + 1), flush=True)
    settings = ["augment.method=none", "pool.try_hard_negatives=0", *chosen.settings]
    for judged_by in ("random", "groups"):
        rows, judged = splitter(judged_by, groups)(len(groups), JUDGED, 99)
        if len(judged) > MAX_JUDGED:
            judged = np.sort(np.random.default_rng(7).permutation(judged)[:MAX_JUDGED])
        data: Dataset = replace(dataset, train=dataset.train.take(rows), test=dataset.train.take(judged))
        for kind in chosen.only:
            started = time.process_time()
            with mock.patch.object(validation, "held_out_rows", splitter(kind, groups[rows])):
                model = train(data.with_test(Split.empty(data.num_labels)), "auto", settings=settings)
            seconds = time.process_time() - started
            metrics = evaluate(model, data, with_train_texts=True).metrics
            cells = " | ".join(f"{metrics[column]:.2f}" for column in COLUMNS)
            print(f"| {judged_by} | {kind} | {seconds:.0f} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
