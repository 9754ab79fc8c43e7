"""How well labels are found that were added after training, without training.

Hides a tenth of the labels of a data set, trains without them, adds them to the model, and reports R@10 on the test
pairs of those labels: against a model that saw them in training, and against TF-IDF of the label texts.

Run: python benchmarks/new_labels.py DATA [--recipe unidec] [--share 0.1] [--set section.key=value]
"""

import argparse

import numpy as np
from scipy import sparse

from unidex.config import Features as FeatureSettings
from unidex.data.dataset import Dataset, Labels, Split
from unidex.data.formats import read
from unidex.data.texts import Texts
from unidex.features.extractor import FeatureExtractor
from unidex.metrics.evaluation import Evaluation
from unidex.topk import TopK
from unidex.verbs.train import train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--recipe", default="unidec")
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--set", action="append", default=[], dest="settings")
    chosen = parser.parse_args()
    dataset = read(chosen.data)
    rng = np.random.default_rng(0)
    hidden = np.sort(rng.permutation(dataset.num_labels)[: round(dataset.num_labels * chosen.share)])
    kept = np.setdiff1d(np.arange(dataset.num_labels), hidden)
    truth = dataset.test.positives.tocsc()[:, hidden].tocsr()
    rows = np.flatnonzero(np.diff(truth.indptr))
    print(f"{dataset.name}: {len(hidden)} labels hidden, {truth.nnz} test pairs of {len(rows)} texts")

    seen = train(dataset, chosen.recipe, settings=chosen.settings)
    show("a model that saw them, both heads", recall(dataset, hidden, rows, seen.topk(texts(dataset, rows), 15)))

    part = train(without(dataset, kept), chosen.recipe, settings=chosen.settings)
    new_ids = part.add_labels([dataset.labels.texts[label] for label in hidden], [f"new {label}" for label in hidden])
    to_dataset = np.concatenate([kept, hidden])
    assert new_ids[0] == len(kept)
    for mode in ("both", "dual"):
        found = part.topk(texts(dataset, rows), 15, mode=mode)
        show(f"added after training, {mode}", recall(dataset, hidden, rows, TopK(to_dataset[found.ids], found.scores)))

    features = FeatureExtractor.fit(
        dataset.train.texts, dataset.labels.texts, FeatureSettings(bigrams=False, num_buckets=0)
    )
    products = features.transform(texts(dataset, rows)) @ features.transform(dataset.labels.texts).T
    show("TF-IDF of the label texts", recall(dataset, hidden, rows, TopK.from_csr(sparse.csr_array(products), 15)))


def texts(dataset: Dataset, rows: np.ndarray) -> list[str]:
    return list(dataset.test.texts.take(rows))


def without(dataset: Dataset, kept: np.ndarray) -> Dataset:
    """The data set with these labels only; train texts that lose all of theirs are left out."""
    positives = dataset.train.positives.tocsc()[:, kept].tocsr()
    rows = np.flatnonzero(np.diff(positives.indptr))
    filters = dataset.train.filter_pairs.tocsc()[:, kept].tocsr()
    split = Split.of(dataset.train.texts.take(rows), positives[rows], filters[rows])
    uids = Texts.of_uids([dataset.labels.uid(int(label)) for label in kept])
    return Dataset(f"{dataset.name} in part", Labels(dataset.labels.texts.take(kept), uids), split)


def recall(dataset: Dataset, hidden: np.ndarray, rows: np.ndarray, found: TopK) -> float:
    """R@10 on the pairs of the hidden labels only; every label may be predicted."""
    only = np.zeros(dataset.num_labels, dtype=np.float32)
    only[hidden] = 1
    truth = sparse.csr_array(dataset.test.positives[rows] @ sparse.diags_array(only, format="csr"))
    truth.eliminate_zeros()
    evaluation = Evaluation(dataset.label_frequencies(), len(dataset.train), dataset.propensity, {"R": [10]})
    evaluation.add(found, truth, dataset.test.filter_pairs[rows])
    return evaluation.results()["R@10"]


def show(what: str, value: float) -> None:
    print(f"| {what} | {value:.1f} |", flush=True)


if __name__ == "__main__":
    main()
