"""The validation split: held-out training texts that a network is scored on, and the choices made on them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex.config import Config
from unidex.data.dataset import Dataset, Split
from unidex.distributed import Processes
from unidex.features.analyser import PLAIN, Analyser
from unidex.features.known_words import KnownWords
from unidex.metrics.evaluation import places_needed
from unidex.nn.network import Network
from unidex.scoring.calibration import Calibration
from unidex.scoring.calibration_fit import MIN_TEXTS, Places, fit_calibration
from unidex.scoring.calibration_fit import PLACES as CALIBRATED_PLACES
from unidex.scoring.computed_rows import TextRows
from unidex.scoring.fusion import FUSIONS, KNN_WEIGHTS, LABEL_PRIORS, best_weights
from unidex.scoring.knn import KnnPart
from unidex.scoring.label_counts import LabelFrequencies
from unidex.scoring.label_index import build_index
from unidex.scoring.layout import EVEN, Layout, Weights
from unidex.scoring.lexical import LexicalPart
from unidex.scoring.links import Links
from unidex.scoring.network_metrics import PLACES, metric_value, metrics_of, score_network
from unidex.scoring.queries import Queries
from unidex.scoring.rankers import CandidateCounts, FittedRanker, WeightedSum, part_names
from unidex.scoring.scorer import Scorer
from unidex.topk import TopK
from unidex.training.chosen_rows import chosen
from unidex.training.held_out import NothingHeldOutError, held_out_rows, held_out_share
from unidex.training.lexical_setup import lexical_part, true_links
from unidex.training.linear_fit import fit_linear, obstacle
from unidex.training.pretrained_vectors import PretrainedVectors
from unidex.training.ranker_fit import MIN_TREES, RankerFit

logger = logging.getLogger(__name__)

# Held-out texts that weights are chosen on and that are scored after an epoch: more are slower, not better.
CHOICE_TEXTS, EPOCH_TEXTS = 3000, 800
# Labels per text among which weights are chosen.
_CANDIDATES = 64
# With fewer answered texts, others decide too.
_MIN_ANSWERED = 10
# What a further part of the score must raise the metric by, as a share: it costs time, and held-out texts may err.
_MIN_GAIN = 0.003


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
    and knows them, so that a choice must not favour labels without training texts. See ``with_new_labels``.

    Attributes:
        dataset: the data set whose train split is divided.
        rows: ids of the texts that are trained on.
        held_out: the held-out texts with all of their labels.
        held_out_texts: their prepared form.
        answered: places of those that have a label left.
        split: these, with the labels that are left.
        train_texts: the prepared form of all train texts.
        labels: prepared texts of this process's labels.
        forbidden: ids of the labels that are left out.
        processes: all processes of the run.
        analyser: which words the lexical part reads texts as.
        folder: where it has its files.
    """

    dataset: Dataset
    rows: NDArray[np.int64]
    held_out: Split
    held_out_texts: Any
    answered: NDArray[np.int64]
    split: Split
    train_texts: Any
    labels: Any
    forbidden: NDArray[np.int64]
    processes: Processes
    analyser: Analyser = PLAIN
    folder: Path | None = None

    @classmethod
    def of(cls, dataset: Dataset, share: float, seed: int, texts: Any, labels: Any, processes: Processes) -> Validation:
        """Hold out a share of the train texts; ``texts`` and ``labels`` are all prepared texts."""
        num_texts = len(dataset.train)
        rows, held_out = held_out_rows(num_texts, share, seed)
        known = np.bincount(dataset.train.positives[rows].indices, minlength=dataset.num_labels) > 0
        lost = np.flatnonzero(~known & (dataset.label_frequencies() > 0))
        split = dataset.train.take(held_out)
        columns = sparse.dia_array((known[None].astype(np.float32), [0]), shape=(len(known), len(known)))
        left = sparse.csr_array(split.positives @ columns)
        left.eliminate_zeros()
        answered = np.flatnonzero(np.diff(left.indptr))
        if len(answered) == 0:
            raise NothingHeldOutError(held_out_share(num_texts, share), num_texts)
        kept = Split.of(split.texts, left, split.filter_pairs).take(answered)
        own = processes.own_rows(labels)
        return cls(dataset, rows, split, texts[held_out], answered, kept, texts, own, lost, processes)

    def with_new_labels(self) -> Validation:
        """All held-out texts with all of their labels, where these are few and hardly any has a label of the others.

        New texts will mostly have labels that no train text has, too, and a few answered texts decide by chance.
        """
        labelled = np.flatnonzero(np.diff(self.held_out.positives.indptr))
        if len(self.answered) >= min(_MIN_ANSWERED, len(labelled) / 2) or len(labelled) >= MIN_TREES:
            return self
        no_labels = np.empty(0, dtype=np.int64)
        return replace(self, answered=labelled, split=self.held_out.take(labelled), forbidden=no_labels)

    @cached_property
    def texts(self) -> Any:
        """The prepared form of the texts of the split."""
        return self.held_out_texts[self.answered]

    def score(self, network: Network, fusion: float) -> dict[str, float]:
        """The metrics of a network on some of the texts, for a check between two epochs."""
        split, texts = self._some(EPOCH_TEXTS)
        return score_network(
            network, texts, self.labels, self.dataset, split, fusion, self.processes, forbidden=self.forbidden
        )

    def choice(self, network: Network, epochs: int, config: Config) -> Choice:
        """The result of a trial: a network that was best after ``epochs``, and the best weights of its parts."""
        predict, metric = config.predict, config.train.metric
        split, texts = self._some(CHOICE_TEXTS)
        places, weights = places_needed(split, PLACES), Weights.of(predict)
        fusions = FUSIONS if predict.choose_fusion and len(Layout.of(network, weights).heads) == 2 else ()
        knn_weights = KNN_WEIGHTS if predict.choose_knn else ()
        priors = LABEL_PRIORS if predict.choose_label_prior else ()
        if fusions or knn_weights or priors:
            # The best labels under any weights are among the best by the mean of both heads and by the kNN part.
            scorer = self._scorer(network, config, Weights(EVEN, float(predict.choose_knn or predict.knn > 0)))
            queries = self._queries(scorer, network, texts, split)
            candidates = scorer.candidates(
                queries,
                CandidateCounts(max(_CANDIDATES, places)),
                part_names(scorer.layout),
                forbidden=self.forbidden,
            )

            def metrics_with(tried: Weights, wanted: str | None = None) -> dict[str, float]:
                ranker = WeightedSum.of(scorer.layout, tried)
                return metrics_of(ranker.rank(candidates, places), self.dataset, split, wanted)

            weights = best_weights(
                lambda tried: metric_value(metrics_with(tried, metric), metric),
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
            found = self._predicted(network, config, weights, places, (split, texts))
            metrics = metrics_of(found, self.dataset, split)
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

    def fit(
        self, network: Network, config: Config, weights: Weights, frozen: PretrainedVectors | None = None, seed: int = 0
    ) -> tuple[FittedRanker | None, Calibration | None]:
        """The ranker of the recipe and the probabilities of its scores, fitted to a network's predictions.

        The ranker is None where the parts are summed. Probabilities are None where texts are too few. With ``frozen``
        a second ranker reads its vectors too, and stays if it ranks the held-out texts better.
        """
        has_linear = config.predict.linear
        reason = obstacle(config.predict.rank, self.train_texts, len(self.answered), self.processes.size)
        if has_linear and reason:
            logger.info("No linear classifiers of labels: %s.", reason)
            has_linear = False
        if config.predict.rank == "sum":
            places = places_needed(self.split, CALIBRATED_PLACES)
            found = self._predicted(network, config, weights, places, (self.split, self.texts))
            return None, self._calibration(network, found)
        scorer = self._scorer(network, config, weights, for_many_texts=True)
        if has_linear:
            logger.info("Linear classifiers of labels: fitted to the train texts, for the ranker.")
            rows, positives = self.train_texts[self.rows], self.dataset.train.positives[self.rows]
            scorer.linear = fit_linear(scorer, network.text_vectors, rows, positives, seed, self.folder)
        fit = self._ranker_fit(scorer, network, config)
        found = fit.predictions()
        if frozen is not None:
            scorer.pretrained = frozen.part(config.predict, self.rows)
            second = self._ranker_fit(scorer, network, config)
            better = second.predictions()
            if self._pays(better, found, config, f"vectors of {frozen.source}"):
                fit, found = second, better
        return fit.ranker(), self._calibration(network, found)

    def _pays(self, found: TopK, without: TopK, config: Config, what: str) -> bool:
        """Whether predictions with a further part are better by the share that is asked for."""
        values = [
            metric_value(metrics_of(some, self.dataset, self.split), config.train.metric) for some in (found, without)
        ]
        pays = values[0] > (1 + _MIN_GAIN) * values[1]
        said = (what, "" if pays else "not ", *values)
        logger.info("A ranker that reads %s is %skept: held-out texts score %.2f with them, %.2f without.", *said)
        return pays

    def _ranker_fit(self, scorer: Scorer, network: Network, config: Config) -> RankerFit:
        """The fit of rankers that read all parts of a scorer."""

        def queries_of(rows: NDArray[np.int64]) -> Queries:
            prepared = self.held_out_texts[rows]
            vectors = network.text_vectors(prepared, self.processes)
            return scorer.queries(vectors, self.held_out.take(rows).texts, prepared=prepared)

        return RankerFit(
            scorer,
            config.predict,
            self.held_out,
            queries_of,
            answered=self.answered,
            forbidden=self.forbidden,
            num_train=len(self.dataset.train),
            propensity=self.dataset.propensity,
        )

    def _calibration(self, network: Network, found: TopK) -> Calibration | None:
        """Probabilities fitted to predictions for the held-out texts; None where texts are too few."""
        if len(self.split) < MIN_TEXTS:
            logger.info("No probabilities: %d validation texts, but %d are needed.", len(self.split), MIN_TEXTS)
            return None
        texts = list(self.split.texts)
        words = KnownWords.of(network.encoder, self.dataset.labels.encoder_texts)
        familiarity_N, random_M = (None, None) if words is None else words.familiarities(texts)
        places = Places.of(found, self.split.positives, self.split.filter_pairs, self._counts(), familiarity_N)
        return fit_calibration(places, random_M=random_M)[0]

    def _some(self, number: int) -> tuple[Split, Any]:
        """So many of the texts, evenly spread, and their prepared form: files are often sorted by subject."""
        if len(self.split) <= number:
            return self.split, self.texts
        rows = np.linspace(0, len(self.split) - 1, number).astype(np.int64)
        return self.split.take(rows), self.texts[rows]

    def _predicted(
        self, network: Network, config: Config, weights: Weights, places: int, asked: tuple[Split, Any]
    ) -> TopK:
        """The best labels of held-out texts, as a model with these weights predicts them."""
        scorer, (split, texts) = self._scorer(network, config, weights), asked
        return scorer.search(self._queries(scorer, network, texts, split), places, forbidden=self.forbidden)

    def _counts(self) -> NDArray[np.int64]:
        """Number of texts per label among those that are trained on."""
        return np.bincount(self.dataset.train.positives[self.rows].indices, minlength=self.dataset.num_labels)

    @cached_property
    def lexical(self) -> LexicalPart:
        """The words of the labels."""
        return lexical_part(self.dataset, self.analyser, self.rows, self.folder)

    @cached_property
    def links(self) -> Links | None:
        """Links between labels; None where too few of them are true, or where no ranker reads them."""
        return None if len(self.answered) < MIN_TREES else true_links(self.dataset, self.lexical, self.rows)

    def _scorer(self, network: Network, config: Config, weights: Weights, *, for_many_texts: bool = False) -> Scorer:
        """The scorer that a model with this network has.

        The frequencies are those of the texts that are trained on, and so is the kNN part.
        """
        layout, predict = Layout.of(network, weights), config.predict
        counts = self._counts()
        knn = None
        if weights.knn > 0 or predict.rank == "learned":
            with self._train_vectors(network, layout) as vectors:
                knn = KnnPart.of(
                    vectors,
                    self.dataset.train.positives[self.rows],
                    num_nearest=predict.knn_texts,
                    temperature=predict.knn_temperature,
                )
        where: dict[str, Any] = {"processes": self.processes, "scratch": self.folder}
        index = build_index(network, layout, self.labels, counts, **where, for_many_texts=for_many_texts)
        if predict.rank != "learned":
            return Scorer(layout, index, LabelFrequencies(counts), knn)
        return Scorer(layout, index, LabelFrequencies(counts), knn, lexical=self.lexical, links=self.links)

    @contextmanager
    def _train_vectors(self, network: Network, layout: Layout) -> Iterator[NDArray[np.float32]]:
        """The vectors of the texts that are trained on, for the kNN part."""
        if self.processes.size > 1:
            prepared = self.train_texts[self.rows]
            yield layout.knn_vectors(network.text_vectors(prepared, self.processes)).cpu().numpy()
            return
        with TextRows(network, layout, chosen(self.train_texts, self.rows)).stored() as vectors:
            yield vectors

    def _queries(self, scorer: Scorer, network: Network, prepared: Any, split: Split) -> Queries:
        """The queries of held-out texts."""
        return scorer.queries(network.text_vectors(prepared, self.processes), split.texts)
