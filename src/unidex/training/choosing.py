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
from unidex.evaluating import fusion_scores, metric_value, score_network
from unidex.network import Network

logger = logging.getLogger(__name__)

# More validation texts than this make a choice slower, not better.
_MOST_TEXTS = 5000
# Neither head quite alone: one of weight 0 could not be searched by itself any more, as a new label's neighbours are.
_FUSIONS = (0.02, *(round(0.1 * tenth, 1) for tenth in range(1, 10)), 0.98)


@dataclass(frozen=True)
class Choice:
    """What the validation split has decided.

    Attributes:
        epochs: passes over the texts.
        fusion: weight of the dual encoder.
        dual_weight: weight of the dual encoder's loss.
        augment: the method of augmentation.
        metrics: of the best trial.
        value: what they were compared by.
    """

    epochs: int
    fusion: float
    dual_weight: float
    augment: str
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
        labels: prepared texts of this process's labels.
        forbidden: ids of the labels that are left out.
        processes: who takes part.
    """

    dataset: Dataset
    rows: NDArray[np.int64]
    split: Split
    texts: Any
    labels: Any
    forbidden: NDArray[np.int64]
    processes: Processes

    @classmethod
    def of(cls, dataset: Dataset, share: float, seed: int, texts: Any, labels: Any, processes: Processes) -> Validation:
        """Keep a share of the train texts back; ``texts`` and ``labels`` are the prepared ones, all of them."""
        rows, held_out = split_rows(len(dataset.train), share, seed)
        held_out = held_out[:: max(1, -(-len(held_out) // _MOST_TEXTS))]
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
        return cls(dataset, rows, kept, texts[held_out[answered]], own, lost, processes)

    def score(self, network: Network, fusion: float) -> dict[str, float]:
        """The metrics of a network."""
        return score_network(
            network,
            self.texts,
            self.labels,
            self.dataset,
            self.split,
            fusion,
            self.processes,
            forbidden=self.forbidden,
        )

    def best_fusion(self, network: Network, metric: str) -> float:
        """The fusion weight of the highest value; of equal ones, the one nearest to the middle."""
        scores = fusion_scores(
            network,
            self.texts,
            self.labels,
            self.dataset,
            self.split,
            _FUSIONS,
            self.processes,
            forbidden=self.forbidden,
        )
        values = {weight: metric_value(found, metric) for weight, found in scores.items()}
        best = max(values, key=lambda weight: (values[weight], -abs(weight - 0.5)))
        logger.info("fusion weight %g of the dual encoder is best on validation", best)
        return best

    def choice(self, network: Network, epochs: int, config: Config) -> Choice:
        """What a trial has come to: a network that was best after ``epochs``."""
        fusion = config.predict.fusion
        if config.predict.choose_fusion and network.dual is not None and network.classifier is not None:
            fusion = self.best_fusion(network, config.train.metric)
        metrics = self.score(network, fusion)
        value = metric_value(metrics, config.train.metric)
        return Choice(epochs, fusion, config.loss.dual_weight, config.augment.method, metrics, value)
