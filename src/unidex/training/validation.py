"""The validation split: held-out training texts that a network is scored on, and the choices made on them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex.config import Config
from unidex.data.dataset import Dataset, Split, split_rows
from unidex.distributed import Processes
from unidex.errors import UnidexError
from unidex.features.known_words import KnownWords
from unidex.metrics.evaluation import places_needed
from unidex.nn.network import Network
from unidex.scoring.boosted_trees import BoostedTrees, BoostedTreesRanker, feature_names
from unidex.scoring.calibration import Calibration
from unidex.scoring.calibration_fit import MIN_TEXTS, Places, fit_calibration
from unidex.scoring.calibration_fit import PLACES as CALIBRATED_PLACES
from unidex.scoring.decision_tree import FEATURES as TREE_FEATURES
from unidex.scoring.decision_tree import DecisionTreeFusion, DecisionTreeRanker
from unidex.scoring.fusion import FUSIONS, KNN_WEIGHTS, LABEL_PRIORS, best_weights
from unidex.scoring.knn import KnnPart
from unidex.scoring.label_index import build_index
from unidex.scoring.layout import EVEN, Layout, Weights
from unidex.scoring.lexical import LexicalPart
from unidex.scoring.network_metrics import PLACES, metric_value, metrics_of, score_network
from unidex.scoring.queries import Queries
from unidex.scoring.rankers import CandidateCounts, Candidates, WeightedSum, added_weights, part_names
from unidex.scoring.scorer import FittedRanker, LabelFrequencies, Scorer
from unidex.sparse_rows import contains
from unidex.topk import PADDING, TopK

logger = logging.getLogger(__name__)

# More validation texts make the choice of weights and of the epoch slower, not better. The others are trained on.
_MAX_TEXTS = 3000
# Validation texts that are scored after an epoch.
_EPOCH_TEXTS = 800
# Labels per text among which weights are chosen.
_CANDIDATES = 64
# With fewer validation texts, a learned ranker is chance.
_MIN_RANKED = 200


class NothingHeldOutError(UnidexError):
    """No held-out text has a label that the other texts have too."""

    def __init__(self, share: float, num_texts: int) -> None:
        self.reason = f"no held-out text of {share:g} of {num_texts} texts has a label that the others have too"
        super().__init__(f"a validation split must have labels of the other texts, but {self.reason}; add texts")


@dataclass(frozen=True)
class Choice:
    """The settings chosen on the validation split.

    Attributes:
        epochs: passes over the texts.
        fusion: weight of the dual encoder.
        knn: weight of the kNN part.
        label_prior: weight of the label prior.
        augment: the method of augmentation.
        hard_negatives: mined labels drawn per text.
        metrics: of the best trial.
        value: of the metric that trials are compared by.
    """

    epochs: int
    fusion: float
    knn: float
    label_prior: float
    augment: str
    hard_negatives: int
    metrics: dict[str, float]
    value: float

    @property
    def weights(self) -> Weights:
        """The chosen weights of the parts of a score."""
        return Weights(self.fusion, self.knn, self.label_prior)


@dataclass(frozen=True, eq=False)
class Validation:
    """Held-out training texts, on which a network in training is scored.

    Labels that only these texts have are left out, as positives and as answers: the final model is trained on all texts
    and knows them, so that a choice must not favour labels without training texts.

    Attributes:
        dataset: the data set whose train split is divided.
        rows: ids of the texts that are trained on.
        split: the held-out texts, without those that have no label left.
        positives: their labels, also those that only these texts have.
        texts: their prepared form.
        train_texts: the prepared form of all train texts.
        labels: prepared texts of this process's labels.
        forbidden: ids of the labels that are left out.
        processes: all processes of the run.
    """

    dataset: Dataset
    rows: NDArray[np.int64]
    split: Split
    positives: sparse.csr_array
    texts: Any
    train_texts: Any
    labels: Any
    forbidden: NDArray[np.int64]
    processes: Processes

    @classmethod
    def of(cls, dataset: Dataset, share: float, seed: int, texts: Any, labels: Any, processes: Processes) -> Validation:
        """Hold out a share of the train texts; ``texts`` and ``labels`` are all prepared texts."""
        num_texts = len(dataset.train)
        at_least_one = max(share, 1 / max(1, num_texts))
        rows, held_out = split_rows(num_texts, min(at_least_one, _MAX_TEXTS / max(1, num_texts)), seed)
        known = np.bincount(dataset.train.positives[rows].indices, minlength=dataset.num_labels) > 0
        lost = np.flatnonzero(~known & (dataset.label_frequencies() > 0))
        split = dataset.train.take(held_out)
        columns = sparse.dia_array((known[None].astype(np.float32), [0]), shape=(len(known), len(known)))
        left = sparse.csr_array(split.positives @ columns)
        left.eliminate_zeros()
        answered = np.flatnonzero(np.diff(left.indptr))
        if len(answered) == 0:
            raise NothingHeldOutError(share, num_texts)
        kept = Split.of(split.texts, left, split.filter_pairs).take(answered)
        own = labels[processes.shard(dataset.num_labels)]
        positives = split.positives[answered]
        return cls(dataset, rows, kept, positives, texts[held_out[answered]], texts, own, lost, processes)

    def score(self, network: Network, fusion: float) -> dict[str, float]:
        """The metrics of a network on some of the texts, for a check between two epochs."""
        split = self.split.take(np.arange(min(_EPOCH_TEXTS, len(self.split))))
        texts = self.texts[: len(split)]
        return score_network(
            network, texts, self.labels, self.dataset, split, fusion, self.processes, forbidden=self.forbidden
        )

    def choice(self, network: Network, epochs: int, config: Config) -> Choice:
        """The result of a trial: a network that was best after ``epochs``, and the best weights of its parts."""
        predict, metric = config.predict, config.train.metric
        places, weights = places_needed(self.split, PLACES), Weights.of(predict)
        fusions = FUSIONS if predict.choose_fusion and len(Layout.of(network, weights).heads) == 2 else ()
        knn_weights = KNN_WEIGHTS if predict.choose_knn else ()
        priors = LABEL_PRIORS if predict.choose_label_prior else ()
        if fusions or knn_weights or priors:
            # The best labels under any weights are among the best by the mean of both heads and by the kNN part.
            scorer, queries = self._scorer(network, config, Weights(EVEN, float(predict.choose_knn or predict.knn > 0)))
            candidates = scorer.candidates(
                queries,
                CandidateCounts(max(_CANDIDATES, places)),
                part_names(scorer.layout),
                forbidden=self.forbidden,
            )

            def metrics_with(tried: Weights) -> dict[str, float]:
                ranker = WeightedSum.of(scorer.layout, tried)
                return metrics_of(ranker.rank(candidates, places), self.dataset, self.split)

            weights = best_weights(
                lambda tried: metric_value(metrics_with(tried), metric),
                weights,
                fusions=fusions,
                knn_weights=knn_weights,
                priors=priors,
            )
            metrics = metrics_with(weights)
            logger.info(
                "Fusion weights, the best on held-out texts: dual %g, classifier %g, kNN %g, label prior %g.",
                weights.fusion,
                1 - weights.fusion,
                weights.knn,
                weights.label_prior,
            )
        else:
            metrics = metrics_of(self._predicted(network, config, weights, places), self.dataset, self.split)
        return Choice(
            epochs,
            weights.fusion,
            weights.knn,
            weights.label_prior,
            config.augment.method,
            config.pool.hard_negatives,
            metrics,
            metric_value(metrics, metric),
        )

    def fit(self, network: Network, config: Config, weights: Weights) -> tuple[FittedRanker | None, Calibration | None]:
        """The ranker of the recipe and the probabilities of its scores, fitted to a network's predictions.

        The ranker is None where the parts are summed. Probabilities are None where texts are too few.
        """
        too_few = config.predict.rank == "learned" and len(self.split) < _MIN_RANKED
        if too_few:
            logger.info(
                "Labels are ranked by the weighted sum: a ranker needs %d held-out texts, but there are %d.",
                _MIN_RANKED,
                len(self.split),
            )
        if too_few or config.predict.rank == "sum":
            places = places_needed(self.split, CALIBRATED_PLACES)
            return None, self._calibration(network, self._predicted(network, config, weights, places))
        ranker, found = self._fitted_ranker(network, config, weights)
        return ranker, self._calibration(network, found)

    def _fitted_ranker(self, network: Network, config: Config, weights: Weights) -> tuple[FittedRanker, TopK]:
        """A ranker, and its predictions for the held-out texts.

        Each half of the texts is predicted by a ranker that was fitted to the other half.
        """
        scorer, queries = self._scorer(network, config, weights)
        predict, num_train, propensity = config.predict, len(self.dataset.train), self.dataset.propensity
        names = (*TREE_FEATURES, *added_weights(weights))
        counts = DecisionTreeRanker.counts
        if predict.rank == "learned":
            names, counts = feature_names(scorer.layout), BoostedTreesRanker.counts
        counts = counts.at_least(places_needed(self.split, counts.index))
        # Labels that only these texts have show the ranker what it may expect of labels without training texts.
        candidates = scorer.candidates(queries, counts, names)
        ids_NK = candidates.ids_NK
        hits_NK = contains(self.positives, ids_NK)
        counts_NK = (ids_NK >= 0) & ~contains(self.split.filter_pairs, ids_NK)

        def fit(chosen_N: NDArray[np.bool_]) -> FittedRanker:
            pairs = counts_NK & chosen_N[:, None]
            features = {name: values[pairs] for name, values in candidates.features.items()}
            hits = hits_NK[pairs]
            if predict.rank == "learned":
                return BoostedTrees.fit(
                    features, hits, favour=predict.favour, num_train=num_train, propensity=propensity
                )
            weight = predict.decision_tree_weight
            return DecisionTreeFusion.fit(features, hits, weight=weight, num_train=num_train, propensity=propensity)

        known = Candidates(np.where(np.isin(ids_NK, self.forbidden), PADDING, ids_NK), candidates.features)
        half_N = np.arange(len(self.split)) % 2 == 0
        found = TopK(np.full_like(ids_NK, PADDING), np.full(ids_NK.shape, -np.inf, dtype=np.float32))
        for chosen_N in (half_N, ~half_N) if len(self.split) > 1 else ():
            best = fit(~chosen_N).ranker(scorer.layout).rank(known.take(chosen_N), ids_NK.shape[1])
            found.ids[chosen_N], found.scores[chosen_N] = best.ids, best.scores
        return fit(np.ones(len(self.split), dtype=bool)), found

    def _calibration(self, network: Network, found: TopK) -> Calibration | None:
        """Probabilities fitted to predictions for the held-out texts; None where texts are too few."""
        if len(self.split) < MIN_TEXTS:
            logger.info("No probabilities: %d validation texts, but %d are needed.", len(self.split), MIN_TEXTS)
            return None
        texts = list(self.split.texts)
        words = KnownWords.of(network.encoder, self.dataset.labels.texts)
        familiarity_N, random_M = (None, None) if words is None else words.familiarities(texts)
        places = Places.of(found, self.split.positives, self.split.filter_pairs, self._counts(), familiarity_N)
        return fit_calibration(places, random_M=random_M)[0]

    def _predicted(self, network: Network, config: Config, weights: Weights, places: int) -> TopK:
        """The best labels of the held-out texts, as a model with these weights predicts them."""
        scorer, queries = self._scorer(network, config, weights)
        return scorer.search(queries, places, forbidden=self.forbidden)

    def _counts(self) -> NDArray[np.int64]:
        """Number of texts per label among those that are trained on."""
        return np.bincount(self.dataset.train.positives[self.rows].indices, minlength=self.dataset.num_labels)

    @cached_property
    def lexical(self) -> LexicalPart:
        """The words of the labels."""
        return LexicalPart.of(self.dataset.labels.texts)

    def _scorer(self, network: Network, config: Config, weights: Weights) -> tuple[Scorer, Queries]:
        """The scorer that a model with this network has, and the queries of the held-out texts.

        The frequencies are those of the texts that are trained on, and so is the kNN part.
        """
        layout, predict = Layout.of(network, weights), config.predict
        counts = self._counts()
        labels = network.label_vectors(self.labels).gathered(self.processes)
        knn = None
        if weights.knn > 0 or predict.rank == "learned":
            train = network.text_vectors(self.train_texts[self.rows], self.processes)
            knn = KnnPart.of(
                layout.knn_vectors(train).cpu().numpy(),
                self.dataset.train.positives[self.rows],
                num_nearest=predict.knn_texts,
                temperature=predict.knn_temperature,
            )
        index = build_index(network, layout, labels, counts)
        lexical = self.lexical if predict.rank == "learned" else None
        scorer = Scorer(layout, index, LabelFrequencies(counts), knn, lexical=lexical)
        return scorer, scorer.queries(network.text_vectors(self.texts, self.processes), self.split.texts)
