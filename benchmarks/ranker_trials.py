"""What the parts of the learned ranker of `auto` bring, and what could make it better, judged on a part of train.

Run: python benchmarks/ranker_trials.py DATA [--text title] [--max-texts 10000] [--seeds 1] [--only "NAME;..."]
`auto` is trained once per seed, without trials. Its candidates for the held-out texts and for
the judged ones are kept, and each row is a ranker that is fitted to the former: the mean over trainings and over fits
with several seeds of LightGBM, and the difference from the first row. With several trainings each difference has its
standard deviation over them; with one, the last column is the standard deviation of P@1 over the fits.

weighted sum         no ranker: the heads, the kNN part and the label prior with the weights that were chosen
without ...          a ranker that neither reads these features nor gets the candidates that this part finds
free trees           trees that may follow the held-out texts in any direction, without monotone constraints
rising matches       trees whose score never falls where a match is more frequent, earlier, longer or more often right
three match features the same without the other features of matches
larger trees         60 trees of 15 leaves at a learning rate of 0.15, in place of 150 at 0.1
7 leaves             trees of 7 leaves, as with few held-out texts
15 leaves            trees of 15 leaves, as with many held-out texts
without links        a ranker that does not read links
three fits           the mean of three such rankers
three small fits     the mean of three rankers with a third of the trees each, at three times the learning rate
three fits to thirds the mean of three rankers, each fitted to two thirds of the held-out texts
half the texts       a ranker that is fitted to every second held-out text
rare pairs weigh less  right pairs weigh ip^0.25 in the fit, not ip^0.5, and ln ip counts 0.1 in the score, not 0.05
centroids            cosine with the mean vector of the label's train texts, by either head
prototypes           the same with the label's own vectors, which count as three texts
CSLS                 twice the score of a head minus the mean of the label's ten highest scores for train texts
ridge                one-vs-rest ridge regression on the vectors of both heads
more neighbours      kNN scores of 200 train texts
agreement            the share of the train texts of the text's ten best labels that have the label too
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from judged_part import with_judged_part
from unidex.data.dataset import Split
from unidex.data.formats import read
from unidex.data.read_options import ReadOptions
from unidex.metrics.evaluation import places_needed
from unidex.scoring import boosted_trees
from unidex.scoring.boosted_trees import BoostedTrees, BoostedTreesRanker, feature_names
from unidex.scoring.links import LINKS
from unidex.scoring.matches import MATCHES
from unidex.scoring.queries import Queries
from unidex.scoring.rankers import CandidateCounts, Candidates, Features, Rarity, WeightedSum
from unidex.scoring.ranking_features import _gap, _place
from unidex.scoring.scorer import Scorer
from unidex.sparse_rows import contains, values_at
from unidex.topk import TopK
from unidex.training import validation
from unidex.verbs.score import score_places
from unidex.verbs.train import train

COLUMNS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")
_PRIOR_TEXTS, _HUB_TEXTS, _HUB_PLACES, _RIDGE, _NEIGHBOURS = 3.0, 3000, 10, 10.0, 200
_AGREEING, _AGREEMENT_TEMPERATURE = 10, 0.05
_BLOCK = 256
Array = NDArray[np.float32]


@dataclass(frozen=True)
class Part:
    """A part of the ranker that a row leaves out: candidates that it finds, features whose names have these words."""

    words: tuple[str, ...] = ()
    counts: CandidateCounts = BoostedTreesRanker.counts

    def names(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """The features that are left."""
        return tuple(name for name in names if not any(word in name for word in self.words))


NO_PART = Part()
PARTS = {
    "without the kNN part": Part(("knn", "nearest_text"), replace(BoostedTreesRanker.counts, knn=0)),
    "without label matches": Part(MATCHES, replace(BoostedTreesRanker.counts, matches=0)),
    "without shared words": Part(("word_",)),
    "without shared characters": Part(("char_",)),
    "without shared words, characters, lengths, matches": Part(
        ("word_", "char_", "_length", *MATCHES), replace(BoostedTreesRanker.counts, lexical=0, matches=0)
    ),
    "without gaps and places": Part(("_gap", "_place")),
    "without linear classifiers": Part(("linear",)),
    "without links": Part(LINKS, replace(BoostedTreesRanker.counts, links=0)),
    "three match features": Part(("match_texts", "match_words", "match_ambiguity", "num_matches")),
}


@dataclass(frozen=True)
class Pairs:
    """Texts, their candidates, and the vectors that features are made of."""

    candidates: Candidates
    queries: Array  # N x J, of both heads side by side
    train: Array  # T x J
    positives: sparse.csr_array  # T x L
    heads: dict[str, tuple[slice, Array]]  # columns of a head, and its vectors of the labels

    @classmethod
    def of(
        cls, scorer: Scorer, queries: Queries, train_vectors: Array, positives: sparse.csr_array, without: Part
    ) -> Pairs:
        """The candidates of texts by a scorer, whose kNN part has these train texts, without a part of the ranker."""
        layout = scorer.layout
        parts = {"linear": scorer.linear is not None, "links": scorer.links is not None}
        names = without.names(feature_names(layout, **parts))
        found = scorer.candidates(queries, without.counts, (*names, "label_prior"))
        rows = scorer.index.vectors(np.arange(scorer.index.num_ids))
        columns = {"dual": slice(0, layout.dual), "classifier": slice(layout.dual, layout.num_head_columns)}
        heads = {head: (columns[head], layout.vectors_of(rows, head)) for head in layout.heads}
        scale = np.float32(1 / layout.knn_scale)
        return cls(found, layout.knn_queries(queries.vectors), train_vectors * scale, positives, heads)

    def compared(self, name: str, values: Array) -> dict[str, Array]:
        """A feature, its gap and its place."""
        there = np.where(self.candidates.ids_NK >= 0, values, -np.inf)
        found = {name: values, f"{name}_gap": _gap(there), f"{name}_place": _place(there)}
        return {key: np.where(np.isfinite(value), value, 0).astype(np.float32) for key, value in found.items()}

    def products(self, columns: slice, vectors: Array) -> Array:
        """The inner product of each text with these vectors of its candidates."""
        ids = np.maximum(self.candidates.ids_NK, 0)
        blocks = [slice(start, start + _BLOCK) for start in range(0, len(ids), _BLOCK)]
        parts = [np.einsum("nkd,nd->nk", vectors[ids[block]], self.queries[block, columns]) for block in blocks]
        return np.concatenate(parts).astype(np.float32)

    def sums(self, columns: slice) -> Array:
        """The sum of the vectors of each label's train texts."""
        found: Array = np.asarray(self.positives.T.astype(np.float32) @ self.train[:, columns])
        return found


def unit(vectors: Array) -> Array:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)


def centroids(pairs: Pairs, prior_texts: float = 0.0) -> dict[str, Array]:
    found = {}
    for head, (columns, labels) in pairs.heads.items():
        vectors = unit(pairs.sums(columns) + prior_texts * unit(labels))
        found |= pairs.compared(f"centroid_{head}", pairs.products(columns, vectors))
    return found


def prototypes(pairs: Pairs) -> dict[str, Array]:
    return centroids(pairs, _PRIOR_TEXTS)


def csls(pairs: Pairs) -> dict[str, Array]:
    some = np.random.default_rng(0).permutation(len(pairs.train))[:_HUB_TEXTS]
    found = {}
    for head, (columns, labels) in pairs.heads.items():
        scores = pairs.train[some, columns] @ labels.T
        places = min(_HUB_PLACES, len(scores) - 1)
        hubs = -np.partition(-scores, places, axis=0)[:places].mean(axis=0)
        own = hubs[np.maximum(pairs.candidates.ids_NK, 0)].astype(np.float32)
        found |= {f"hub_{head}": own} | pairs.compared(f"csls_{head}", 2 * pairs.candidates.features[head] - own)
    return found


def ridge(pairs: Pairs) -> dict[str, Array]:
    everything = slice(None)
    kernel = pairs.train.T @ pairs.train + _RIDGE * np.eye(pairs.train.shape[1], dtype=np.float32)
    weights = np.linalg.solve(kernel, pairs.sums(everything).T).T.astype(np.float32)
    return pairs.compared("ridge", pairs.products(everything, weights))


def more_neighbours(pairs: Pairs) -> dict[str, Array]:
    number, ids = min(_NEIGHBOURS, len(pairs.train) - 1), np.maximum(pairs.candidates.ids_NK, 0)
    parts = []
    for start in range(0, len(ids), _BLOCK):
        scores = pairs.queries[start : start + _BLOCK] @ pairs.train.T / len(pairs.heads)
        near = np.argpartition(-scores, number, axis=1)[:, :number]
        logits = np.take_along_axis(scores, near, axis=1) / 0.1
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        ends = np.arange(0, shares.size + 1, number)
        votes = sparse.csr_array((shares.ravel(), near.ravel(), ends), shape=scores.shape) @ pairs.positives
        parts.append(values_at(sparse.csr_array(votes), ids[start : start + _BLOCK]))
    return pairs.compared("more_neighbours", np.concatenate(parts))


def agreement(pairs: Pairs) -> dict[str, Array]:
    ids, sums = pairs.candidates.ids_NK, pairs.candidates.features["weighted_sum"]
    positives, places = sparse.csr_array(pairs.positives, dtype=np.float32), np.arange(len(ids))[:, None]
    together = sparse.csr_array(positives.T @ positives)
    together.setdiag(0)
    shares = sparse.diags_array(1 / (1 + positives.sum(axis=0))) @ together
    there = np.where(ids >= 0, sums, -np.inf)
    best = np.argsort(-there, axis=1, kind="stable")[:, :_AGREEING]
    chances = np.exp((there[places, best] - there.max(axis=1, keepdims=True)) / _AGREEMENT_TEMPERATURE)
    chances /= chances.sum(axis=1, keepdims=True)
    ends = np.arange(0, best.size + 1, best.shape[1])
    labels = np.maximum(ids[places, best], 0)
    votes = sparse.csr_array((chances.ravel(), labels.ravel(), ends), shape=(len(ids), shares.shape[0])) @ shares
    return pairs.compared("agreement", values_at(sparse.csr_array(votes), np.maximum(ids, 0)))


# How a score may change where a feature of matches rises.
RISING = {"match_count": 1, "match_rate": 1, "match_words": 1, "match_first": -1}
FEATURES: dict[str, Callable[[Pairs], dict[str, Array]]] = {
    "centroids": centroids,
    "prototypes": prototypes,
    "CSLS": csls,
    "ridge": ridge,
    "more neighbours": more_neighbours,
    "agreement": agreement,
}
ROWS = (
    "auto",
    "weighted sum",
    *PARTS,
    "rising matches",
    "free trees",
    "larger trees",
    "7 leaves",
    "15 leaves",
    "three fits",
    "three small fits",
    "three fits to thirds",
    "half the texts",
    "rare pairs weigh less",
    *FEATURES,
)


@dataclass(frozen=True)
class Judge:
    """Fits rankers to held-out pairs and scores them on judged ones."""

    split: Split
    held_out: Callable[[Part], Pairs]
    judged: Callable[[Part], Pairs]
    metrics: Callable[[TopK], dict[str, float]]
    rarity: Rarity
    weighted_sum: WeightedSum

    def row(self, name: str, num_fits: int) -> NDArray[np.float64]:
        """The metrics of each fit."""
        part, more = PARTS.get(name, NO_PART), FEATURES.get(name)
        held_out, judged = self.held_out(part), self.judged(part)
        asked = judged.candidates.features
        if name == "weighted sum":
            return np.array([self._scored(judged, self.weighted_sum.scores(asked))])
        fitted_to = part.names(tuple(name for name in asked if name != "label_prior"))
        features = [{name: some.candidates.features[name] for name in fitted_to} for some in (held_out, judged)]
        if more:
            features = [found | more(some) for found, some in zip(features, (held_out, judged), strict=True)]
        size = 3 if name.startswith("three") and "fits" in name else 1
        logits = [self._logits(held_out, *features, seed, name) for seed in range(num_fits * size)]
        means = [np.mean(logits[start : start + size], axis=0) for start in range(0, len(logits), size)]
        rare = self.rarity(asked["frequency"]) * (2 if name == "rare pairs weigh less" else 1)
        return np.array([self._scored(judged, -np.logaddexp(0, -mean) + rare) for mean in means])

    def _logits(self, held_out: Pairs, known: Features, asked: Features, seed: int, name: str) -> NDArray[np.float64]:
        ids = held_out.candidates.ids_NK
        counts = (ids >= 0) & ~contains(self.split.filter_pairs, ids)
        places = np.arange(len(ids))[:, None]
        if name == "three fits to thirds":
            counts &= places % 3 != seed % 3
        if name == "half the texts":
            counts &= places % 2 == seed % 2
        settings, is_free, is_small = boosted_trees._SETTINGS | {"seed": seed}, name == "free trees", "small" in name
        settings |= {"feature_fraction": 0.5} if is_free else {}
        settings |= {"learning_rate": 3 * settings["learning_rate"]} if is_small else {}
        trees = boosted_trees._NUM_TREES // (3 if is_small else 1)
        many_texts = boosted_trees._MANY_TEXTS
        if name == "larger trees":
            settings, trees = settings | {"learning_rate": 0.15, "num_leaves": 15}, 60
        if name in ("7 leaves", "15 leaves"):
            many_texts = len(ids) + (name == "7 leaves")
        own, matches = boosted_trees._direction, RISING if "match" in name and "without" not in name else {}
        direction = (lambda name: 0) if is_free else (lambda name: matches.get(name, own(name)))
        power = 0.25 if name == "rare pairs weigh less" else boosted_trees._FIT_POWER
        patched = {"_SETTINGS": settings, "_direction": direction, "_NUM_TREES": trees, "_FIT_POWER": power}
        patched |= {"_MANY_TEXTS": many_texts}
        with mock.patch.multiple(boosted_trees, **patched):
            some = {name: values[counts] for name, values in known.items()}
            hits = contains(self.split.positives, ids)[counts]
            fitted = BoostedTrees.fit(some, hits, self.rarity, num_texts=len(ids))
        columns = boosted_trees._columns(asked, fitted.names)
        return fitted.tree_scores(columns).reshape(next(iter(asked.values())).shape)

    def _scored(self, judged: Pairs, scores: NDArray[Any]) -> list[float]:
        ids = judged.candidates.ids_NK
        found = self.metrics(TopK.rank(ids, np.where(ids >= 0, scores, -np.inf).astype(np.float32)))
        return [found[column] for column in COLUMNS]


def judge_of(dataset: Any, seed: int) -> Judge:
    """Train once, and keep the candidates."""
    kept: dict[str, Any] = {}
    plain_fit = validation.RankerFit

    def keeping(scorer: Scorer, predict: Any, held_out: Split, queries_of: Any, **more: Any) -> Any:
        # The run goes on to count matches in the held-out texts too: these must not be told.
        now = copy.copy(scorer)
        now.lexical = copy.deepcopy(scorer.lexical)
        kept.update(scorer=now, split=held_out.take(more["answered"]), queries=queries_of(more["answered"]))
        return plain_fit(scorer, predict, held_out, queries_of, **more)

    train_vectors = validation.Validation._train_vectors

    def keeping_vectors(self: Any, network: Any, layout: Any) -> Any:
        kept["vectors"] = np.asarray(layout.knn_vectors(network.text_vectors(self.train_texts[self.rows])))
        kept["positives"] = self.dataset.train.positives[self.rows]
        return train_vectors(self, network, layout)

    settings = ["pool.try_hard_negatives=0", "augment.method=none"]
    with (
        mock.patch.object(validation, "RankerFit", keeping),
        mock.patch.object(validation.Validation, "_train_vectors", keeping_vectors),
    ):
        model = train(dataset.with_test(Split.empty(dataset.num_labels)), "auto", settings=settings, seed=seed)
    texts = list(dataset.train.texts)
    vectors = np.concatenate([np.asarray(model.scorer.layout.knn_vectors(part)) for part in model.vector_blocks(texts)])
    queries, positives = model.queries(list(dataset.test.texts)), dataset.train.positives
    places = places_needed(dataset.test, 5)

    def metrics(found: TopK) -> dict[str, float]:
        about = (dataset.label_frequencies(), len(dataset.train), dataset.propensity)
        return score_places(found.first(places), dataset.test, *about).metrics

    return Judge(
        kept["split"],
        lambda part: Pairs.of(kept["scorer"], kept["queries"], kept["vectors"], kept["positives"], part),
        lambda part: Pairs.of(model.scorer, queries, vectors, positives, part),
        metrics,
        Rarity.of("balanced", len(dataset.train), dataset.propensity),
        WeightedSum.of(model.scorer.layout, model.scorer.layout.weights),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--text", default="title+content")
    parser.add_argument("--max-texts", type=int, help="train texts to take, the judged ones among them")
    parser.add_argument("--fits", type=int, default=3, help="number of seeds of LightGBM, from 0")
    parser.add_argument("--seeds", type=int, default=1, help="number of trainings, with seeds from 0")
    parser.add_argument(
        "--only", default="", help="names of rows, separated by semicolons; the first row is always there"
    )
    chosen = parser.parse_args()
    dataset = with_judged_part(read(chosen.data, ReadOptions(text=chosen.text)), chosen.max_texts)
    wanted = [name.strip() for name in chosen.only.split(";") if name.strip()] or ROWS
    rows = dict.fromkeys((ROWS[0], *wanted))
    # By row, one array per training: fits x metrics.
    found: dict[str, list[NDArray[np.float64]]] = {name: [] for name in rows}
    for seed in range(chosen.seeds):
        judge = judge_of(dataset, seed)
        for name in rows:
            found[name].append(judge.row(name, chosen.fits))
    print(f"| {dataset.name} | {' | '.join(COLUMNS)} |", "spread |" if chosen.seeds == 1 else "")
    print(f"|---|{'---:|' * (len(COLUMNS) + (chosen.seeds == 1))}")
    first = np.array([fits.mean(axis=0) for fits in found[ROWS[0]]])
    for name, trainings in found.items():
        is_first = name == ROWS[0]
        gains = np.array([fits.mean(axis=0) for fits in trainings]) - (0 if is_first else first)
        shown = [f"{mean:.2f}" if is_first else f"{mean:+.2f}" for mean in gains.mean(axis=0)]
        if chosen.seeds == 1:
            shown.append(f"{trainings[0][:, 0].std():.2f}")
        else:
            shown = [f"{mean} ± {one:.2f}" for mean, one in zip(shown, gains.std(axis=0, ddof=1), strict=True)]
        print(f"| {name} | {' | '.join(shown)} |", flush=True)


if __name__ == "__main__":
    main()
