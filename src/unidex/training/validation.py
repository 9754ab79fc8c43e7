"""Choosing on a validation split of train: how a network is scored there, and what is chosen by it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex.config import Config
from unidex.data.dataset import Dataset, Split, split_rows
from unidex.distributed import Processes
from unidex.errors import UnidexError
from unidex.metrics.evaluation import places_needed
from unidex.nn.network import Network, Vectors
from unidex.scoring.calibration import Calibration
from unidex.scoring.calibration_fit import LEAST_TEXTS, Places, calibrated
from unidex.scoring.calibration_fit import PLACES as CALIBRATED_PLACES
from unidex.scoring.decision_tree import CANDIDATES, Fusing
from unidex.scoring.fusion import EVEN, FUSIONS, NEIGHBOURS, PRIORS, Parts, Weights, best_weights, parts_of
from unidex.scoring.knn import Neighbours
from unidex.scoring.network_metrics import PLACES, metric_value, metrics_of, score_network
from unidex.sparse_rows import contains
from unidex.topk import PADDING, TopK

logger = logging.getLogger(__name__)

# More validation texts than this make a choice slower, not better: of weights, and of when to stop. What is not held
# back is trained on.
_MOST_TEXTS = 3000
_A_LOOK = 800


@dataclass(frozen=True)
class Choice:
    """What the validation split has decided.

    Attributes:
        epochs: passes over the texts.
        fusion: weight of the dual encoder.
        knn: weight of the nearest train texts' labels.
        label_prior: weight of a label's frequency.
        augment: the method of augmentation.
        hard_negatives: mined labels drawn for each text.
        metrics: of the best trial.
        value: what they were compared by.
    """

    epochs: int
    fusion: float
    knn: float
    label_prior: float
    augment: str
    hard_negatives: int
    metrics: dict[str, float]
    value: float


@dataclass(frozen=True, eq=False)
class Validation:
    """Train texts that are kept back, as a network in training is scored on them.

    Labels that only these texts have are left out, as positives and as answers: the model that is trained on all texts
    in the end will know them, and a choice that is good at unknown labels would be made for a problem nobody has.

    Attributes:
        dataset: whose train split is divided.
        rows: ids of the texts that are trained on.
        split: the texts kept back, without those that have no label left.
        texts: their prepared form.
        train_texts: the prepared form of all train texts.
        labels: prepared texts of this process's labels.
        forbidden: ids of the labels that are left out.
        processes: who takes part.
    """

    dataset: Dataset
    rows: NDArray[np.int64]
    split: Split
    texts: Any
    train_texts: Any
    labels: Any
    forbidden: NDArray[np.int64]
    processes: Processes

    @classmethod
    def of(cls, dataset: Dataset, share: float, seed: int, texts: Any, labels: Any, processes: Processes) -> Validation:
        """Keep a share of the train texts back; ``texts`` and ``labels`` are the prepared ones, all of them."""
        rows, held_out = _held_out(texts, len(dataset.train), share, seed)
        known = np.bincount(dataset.train.positives[rows].indices, minlength=dataset.num_labels) > 0
        lost = np.flatnonzero(~known & (dataset.label_frequencies() > 0))
        split = dataset.train.take(held_out)
        columns = sparse.dia_array((known[None].astype(np.float32), [0]), shape=(len(known), len(known)))
        left = sparse.csr_array(split.positives @ columns)
        left.eliminate_zeros()
        answered = np.flatnonzero(np.diff(left.indptr))
        if len(answered) == 0:
            raise UnidexError(
                f"a validation split needs a text whose labels other texts have too, but {share:g} of "
                f"{len(dataset.train)} texts has none; raise train.validation or set it to 0"
            )
        kept = Split.of(split.texts, left, split.filter_pairs).take(answered)
        own = labels[processes.shard(dataset.num_labels)]
        return cls(dataset, rows, kept, texts[held_out[answered]], texts, own, lost, processes)

    def score(self, network: Network, fusion: float) -> dict[str, float]:
        """The metrics of a network on some of the texts: for a look between two epochs."""
        split = self.split.take(np.arange(min(_A_LOOK, len(self.split))))
        texts = self.texts[: len(split)]
        return score_network(
            network, texts, self.labels, self.dataset, split, fusion, self.processes, forbidden=self.forbidden
        )

    def choice(self, network: Network, epochs: int, config: Config) -> Choice:
        """What a trial has come to: a network that was best after ``epochs``."""
        predict, metric = config.predict, config.train.metric
        both = network.dual is not None and network.classifier is not None
        fusions = FUSIONS if predict.choose_fusion and both else ()
        priors = PRIORS if predict.choose_label_prior else ()
        places = places_needed(self.split, PLACES)
        if network.tree is not None:
            metrics = metrics_of(self._by_tree(network, places), self.dataset, self.split)
            value = metric_value(metrics, metric)
            return Choice(epochs, predict.fusion, 0.0, 0.0, config.augment.method, 0, metrics, value)
        parts = self._parts(network, config, places, near=predict.choose_knn or predict.knn > 0)

        def metrics_with(tried: Weights) -> dict[str, float]:
            return metrics_of(parts.ranked(tried, places), self.dataset, self.split)

        weights = best_weights(
            lambda tried: metric_value(metrics_with(tried), metric),
            Weights(predict.fusion, predict.knn, predict.label_prior),
            fusions=fusions,
            neighbours=NEIGHBOURS if predict.choose_knn else (),
            priors=priors,
        )
        metrics = metrics_with(weights)
        if fusions or priors or predict.choose_knn:
            logger.info(
                "best on validation: weight %g of the dual encoder, %g of neighbours, %g of label frequency",
                weights.fusion,
                weights.knn,
                weights.label_prior,
            )
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

    def fused(self, network: Network, config: Config) -> tuple[Fusing, TopK]:
        """A tree that fuses the scores of both heads, and what it predicts for the texts kept back.

        Each half of the texts is predicted by a tree that was fitted to the other half.
        """
        places = places_needed(self.split, CANDIDATES)
        parts = self._parts(network, config, places, near=False)
        frequencies_L = self.dataset.label_frequencies()
        hits_NK = contains(self.split.positives, parts.ids_NK)
        counts_NK = (parts.ids_NK >= 0) & ~contains(self.split.filter_pairs, parts.ids_NK)

        def fit(chosen_N: NDArray[np.bool_]) -> Fusing:
            pairs = counts_NK & chosen_N[:, None]
            return Fusing.fit(
                parts.classifier_NK[pairs],
                parts.dual_NK[pairs],
                frequencies_L[parts.ids_NK[pairs]],
                hits_NK[pairs],
                weight=config.predict.decision_tree_weight,
                num_train=len(self.dataset.train),
                propensity=self.dataset.propensity,
            )

        half_N = np.arange(len(self.split)) % 2 == 0
        ids_NK = np.full_like(parts.ids_NK, PADDING)
        scores_NK = np.full(ids_NK.shape, -np.inf, dtype=np.float32)
        for chosen_N in (half_N, ~half_N) if len(self.split) > 1 else ():
            own = (parts.ids_NK[chosen_N], parts.classifier_NK[chosen_N], parts.dual_NK[chosen_N])
            found = fit(~chosen_N).ranked(*own, frequencies_L)
            ids_NK[chosen_N], scores_NK[chosen_N] = found.ids, found.scores
        return fit(np.ones(len(self.split), dtype=bool)), TopK(ids_NK, scores_NK)

    def calibration_of(self, found: TopK) -> Calibration | None:
        """Probabilities fitted to predictions for the texts kept back; None where texts are too few."""
        if len(self.split) < LEAST_TEXTS:
            logger.info("no probabilities: %d validation texts, %d are needed", len(self.split), LEAST_TEXTS)
            return None
        return calibrated(Places.of(found, self.split.positives, self.split.filter_pairs, self._counts()))[0]

    def calibration(self, network: Network, config: Config, weights: Weights) -> Calibration | None:
        """Probabilities fitted to what a network says with these weights; None where texts are too few."""
        places = places_needed(self.split, CALIBRATED_PLACES)
        if network.tree is not None:
            return self.calibration_of(self._by_tree(network, places))
        parts = self._parts(network, config, places, near=weights.knn > 0)
        return self.calibration_of(parts.ranked(weights, places))

    def _by_tree(self, network: Network, places: int) -> TopK:
        """The best labels of the texts kept back, as a label tree finds them."""
        queries = network.text_vectors(self.texts, self.processes).joined()
        return network.tree_index(self.labels, self.processes).search(queries, places, forbidden=self.forbidden)

    def _counts(self) -> NDArray[np.int64]:
        """Number of texts that are trained on of each label."""
        return np.bincount(self.dataset.train.positives[self.rows].indices, minlength=self.dataset.num_labels)

    def _parts(self, network: Network, config: Config, places: int, *, near: bool) -> Parts:
        """The parts of the scores of candidates for the texts kept back; ``near``: with those of neighbours."""
        queries = network.text_vectors(self.texts, self.processes)
        own = network.label_vectors(self.labels)
        labels = Vectors(
            *(None if part is None else self.processes.gather(part) for part in (own.dual, own.classifier))
        )
        neighbours = None
        if near:
            neighbours = Neighbours.of(
                network.text_vectors(self.train_texts[self.rows], self.processes).joined(EVEN).cpu().numpy(),
                self.dataset.train.positives[self.rows],
                num_neighbours=config.predict.knn_texts,
                temperature=config.predict.knn_temperature,
            )
        return parts_of(queries, labels, self._counts(), neighbours, least=places, forbidden=self.forbidden)


def _held_out(texts: Any, num_texts: int, share: float, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows to train on, and rows to keep back: texts that are much alike together, where their features are known.

    Train texts are often more like each other (versions, editions, parts of one thing) than new texts will be like
    them. Texts whose rarest shared feature is the same go to the same side.
    """
    if not sparse.issparse(texts):
        return split_rows(num_texts, min(share, _MOST_TEXTS / max(1, num_texts)), seed)
    groups = rarest_features(sparse.csr_array(texts))
    order = np.random.default_rng(seed).permutation(texts.shape[1] + 1)
    # Texts of one group stand together; a group that is cut by the end of the held-out part does no harm.
    ranked = np.argsort(order[groups], kind="stable")
    count = min(max(1, round(share * num_texts)), max(0, num_texts - 1), _MOST_TEXTS)
    return np.sort(ranked[count:]), np.sort(ranked[:count])


def rarest_features(rows_NF: sparse.csr_array) -> NDArray[np.int64]:
    """For each text, which of its features that other texts have too is the rarest; the last of all where none is.

    Features that one text alone has say nothing of likeness. Of equally rare ones the lower id counts.

    >>> rarest_features(sparse.csr_array(np.array([[1, 1, 0, 0], [1, 1, 0, 1], [1, 0, 1, 0]]))).tolist()
    [1, 1, 0]
    """
    num_rows, num_features = rows_NF.shape
    counts_F = np.bincount(rows_NF.indices, minlength=num_features)
    rows = np.repeat(np.arange(num_rows), np.diff(rows_NF.indptr))
    shared = counts_F[rows_NF.indices] > 1
    rows, columns = rows[shared], rows_NF.indices[shared].astype(np.int64)
    found = np.full(num_rows, num_features, dtype=np.int64)
    best = np.full(num_rows, np.iinfo(np.int64).max)
    keys = counts_F[columns].astype(np.int64) * (num_features + 1) + columns
    np.minimum.at(best, rows, keys)
    has = best < np.iinfo(np.int64).max
    found[has] = best[has] % (num_features + 1)
    return found
