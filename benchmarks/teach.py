"""What `unidex labels teach` is worth: how much better the taught labels are found, and what the others lose.

Trains once without a tenth of the labels (new labels) and without all but one train text of as many tail labels (known
labels). The new ones are added by their texts. Then each kind is taught from 1, 3 or all of the train texts that were
kept back: all labels of the kind at once, and a few at a time in groups, of which the mean is reported.

- old P@1: on the test pairs of the labels that are not taught. A taught label that is right is passed over; one that is
  wrong and comes first costs the text its hit.
- all P@1: on all test pairs.
- R@5, R@10: on the test pairs of the taught labels; every label may be predicted.

With --reference, what a model that was trained on everything has: its old P@1 where those labels may not be predicted
and where they may, which is the price of so many more labels, and its R@5 and R@10.

Run: python benchmarks/teach.py DATA [--recipe auto] [--few 20] [--groups 6] [--reference] [--json] [--set key=value]
"""

import argparse
import json
import tempfile
import time
from dataclasses import asdict, dataclass

import numpy as np
from scipy import sparse

from new_labels import without
from unidex.data.dataset import Dataset, Split
from unidex.data.formats import read
from unidex.metrics.evaluation import Evaluation
from unidex.model.incremental import teach
from unidex.model.model import Model
from unidex.topk import TopK
from unidex.verbs.train import train

TAIL = (2, 9)  # train texts of the known labels that are taught
PLACES = 30


@dataclass(frozen=True)
class Case:
    """One line of the table; metrics are percent, (before, after)."""

    labels: str
    texts_a_label: str
    num_labels: float
    num_pairs: float
    old_p1: tuple[float, float]
    all_p1: tuple[float, float]
    r5: tuple[float, float]
    r10: tuple[float, float]
    seconds: float
    cpu_seconds: float


class Trial:
    """A data set with labels that a model does not know, or hardly, and what it could be taught of them."""

    def __init__(self, dataset: Dataset, share: float) -> None:
        self.dataset = dataset
        rng = np.random.default_rng(0)
        order = rng.permutation(dataset.num_labels)
        number = round(dataset.num_labels * share)
        frequencies = dataset.label_frequencies()
        rest = order[number:]
        tail = rest[(frequencies[rest] >= TAIL[0]) & (frequencies[rest] <= TAIL[1])]
        self.labels = {"new": np.sort(order[:number]), "known": np.sort(tail[:number])}
        self.kept = np.setdiff1d(np.arange(dataset.num_labels), self.labels["new"])
        # Ids of the model, where new labels come last.
        self.dataset_ids = np.concatenate([self.kept, self.labels["new"]])
        self.model_ids = np.argsort(self.dataset_ids)
        self.held: dict[int, np.ndarray] = {}
        pairs = dataset.train.positives.tocsc()
        known = set(self.labels["known"].tolist())
        for label in np.concatenate(list(self.labels.values())).tolist():
            texts = rng.permutation(pairs.indices[pairs.indptr[label] : pairs.indptr[label + 1]])
            self.held[label] = texts[1:] if label in known else texts

    def part(self) -> Dataset:
        """What the model is trained on."""
        train_split = self.dataset.train
        columns = np.repeat(list(self.held), [len(texts) for texts in self.held.values()])
        held = sparse.csr_array(
            (np.ones(len(columns), dtype=np.float32), (np.concatenate(list(self.held.values())), columns)),
            shape=train_split.positives.shape,
        )
        positives = sparse.csr_array(train_split.positives - train_split.positives.multiply(held))
        positives.eliminate_zeros()
        split = Split.of(train_split.texts, positives, train_split.filter_pairs)
        return without(Dataset(self.dataset.name, self.dataset.labels, split), self.kept)

    def add_new(self, model: Model) -> None:
        """Let a model have the new labels, by their texts."""
        new = self.labels["new"]
        ids = model.add_labels([self.dataset.labels.texts[label] for label in new], [f"new {label}" for label in new])
        assert ids[0] == len(self.kept)

    def pairs(self, labels: np.ndarray, number: int | None) -> tuple[list[str], sparse.csr_array]:
        """Texts that are taught, and the labels that are; no other label of the text is told."""
        texts = np.concatenate([self.held[label][:number] for label in labels.tolist()])
        columns = np.repeat(self.model_ids[labels], [len(self.held[label][:number]) for label in labels.tolist()])
        rows, places = np.unique(texts, return_inverse=True)
        ones = np.ones(len(columns), dtype=np.float32)
        positives = sparse.csr_array((ones, (places, columns)), shape=(len(rows), self.dataset.num_labels))
        return list(self.dataset.train.texts.take(rows)), positives

    def predicted(self, model: Model) -> TopK:
        """What a model predicts for the test texts, by ids of the data set."""
        found = model.topk(list(self.dataset.test.texts), PLACES)
        return TopK(np.where(found.ids < 0, -1, self.dataset_ids[found.ids]), found.scores)

    def scores(self, found: TopK, labels: np.ndarray) -> tuple[float, float, float, float]:
        """Percent: old P@1, all P@1, R@5, R@10."""
        test = self.dataset.test
        taught = np.zeros(self.dataset.num_labels, dtype=np.float32)
        taught[labels] = 1
        own = sparse.csr_array(test.positives @ sparse.diags_array(taught, format="csr"))
        own.eliminate_zeros()
        old = sparse.csr_array(test.positives - own)
        old.eliminate_zeros()
        filters = sparse.csr_array(test.filter_pairs + own)
        filters.sort_indices()
        return (
            self._metrics(found, old, filters, {"P": [1]})["P@1"],
            self._metrics(found, test.positives, test.filter_pairs, {"P": [1]})["P@1"],
            *self._metrics(found, own, test.filter_pairs, {"R": [5, 10]}).values(),
        )

    def _metrics(self, found: TopK, truth: sparse.csr_array, filters: sparse.csr_array, wanted: dict) -> dict:
        rows = np.flatnonzero(np.diff(truth.indptr))
        dataset = self.dataset
        evaluation = Evaluation(dataset.label_frequencies(), len(dataset.train), dataset.propensity, wanted)
        evaluation.add(TopK(found.ids[rows], found.scores[rows]), truth[rows], filters[rows])
        return evaluation.results()


def taught_case(trial: Trial, folder: str, before: TopK, kind: str, number: int | None, groups: list) -> Case:
    rows = []
    for labels in groups:
        model = Model.load(folder)
        trial.add_new(model)
        texts, positives = trial.pairs(labels, number)
        started = time.perf_counter(), time.process_time()
        teach(model, texts, positives)
        seconds = time.perf_counter() - started[0], time.process_time() - started[1]
        both = trial.scores(before, labels), trial.scores(trial.predicted(model), labels)
        rows.append([len(labels), positives.nnz, *both[0], *both[1], *seconds])
    mean = np.mean(rows, axis=0).tolist()
    metrics = [(mean[2 + place], mean[6 + place]) for place in range(4)]
    return Case(kind, "all" if number is None else str(number), *mean[:2], *metrics, *mean[10:])


def reference_cases(trial: Trial, model: Model) -> list[Case]:
    """A model that was trained on all pairs, without the labels and with them."""
    cases = []
    for kind, labels in trial.labels.items():
        texts = list(trial.dataset.test.texts)
        both = [trial.scores(model.topk(texts, PLACES, forbidden=hidden), labels) for hidden in (labels, None)]
        metrics = list(zip(*both, strict=True))
        num_pairs = sum(len(trial.held[label]) for label in labels.tolist())
        cases.append(Case(kind, "trained on all", len(labels), num_pairs, *metrics, 0.0, 0.0))
    return cases


def row_of(case: Case) -> str:
    metrics = " | ".join(
        f"{before:.1f} -> {after:.1f} ({after - before:+.2f})"
        for before, after in (case.old_p1, case.all_p1, case.r5, case.r10)
    )
    return (
        f"| {case.labels} | {case.texts_a_label} | {case.num_labels:.0f} | {case.num_pairs:.0f} | {metrics} | "
        f"{case.seconds:.1f} ({case.cpu_seconds:.1f}) |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--recipe", default="auto")
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--few", type=int, default=20, help="labels of a group")
    parser.add_argument("--groups", type=int, default=6, help="groups of a few labels; 0: only all at once")
    parser.add_argument("--reference", action="store_true", help="also train on everything")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--set", action="append", default=[], dest="settings")
    chosen = parser.parse_args()
    trial = Trial(read(chosen.data), chosen.share)
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        train(trial.part(), chosen.recipe, settings=chosen.settings, out=f"{folder}/model")
        model = Model.load(f"{folder}/model")
        trial.add_new(model)
        before = trial.predicted(model)
        if not chosen.json:
            sizes = ", ".join(f"{len(labels)} {kind}" for kind, labels in trial.labels.items())
            print(f"{trial.dataset.name}: {sizes} labels, {len(trial.dataset.test)} test texts\n")
            print("| labels | texts a label | labels at once | pairs | old P@1 | all P@1 | R@5 | R@10 | s (CPU) |")
            print("|---|---|---|---|---|---|---|---|---|")
        for kind, labels in trial.labels.items():
            order = np.random.default_rng(1).permutation(labels)
            few = [np.sort(order[start : start + chosen.few]) for start in range(0, len(order), chosen.few)]
            for groups in ([labels], few[: chosen.groups]):
                for number in (1, 3, None) if groups else ():
                    cases.append(taught_case(trial, f"{folder}/model", before, kind, number, groups))
                    if not chosen.json:
                        print(row_of(cases[-1]), flush=True)
    if chosen.reference:
        model = train(trial.dataset, chosen.recipe, settings=chosen.settings)
        cases += reference_cases(trial, model)
        if not chosen.json:
            print(*[row_of(case) for case in cases[-2:]], sep="\n")
    if chosen.json:
        print(json.dumps({"data": trial.dataset.name, "cases": [asdict(case) for case in cases]}, indent=2))


if __name__ == "__main__":
    main()
