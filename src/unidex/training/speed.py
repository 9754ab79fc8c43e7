"""CPU time of every phase of a run: a few seconds of measurement on a sample, and formulas that scale it."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from unidex.config import Config
from unidex.data.dataset import Dataset
from unidex.distributed import ALONE
from unidex.encoders import registry as encoders
from unidex.features.extractor import MAX_COUNTED
from unidex.index.pq import LISTED_FROM
from unidex.scoring.label_index import chosen_kind
from unidex.training.held_out import wanted_share
from unidex.training.linear_fit import ALONE_ABOVE, num_negatives
from unidex.training.linear_fit import MAX_ENTRIES as MAX_LINEAR
from unidex.training.loop import Trainer
from unidex.training.phases import changed, with_metric
from unidex.training.ranker_fit import MIN_TREES
from unidex.training.run_sizes import Sizes
from unidex.training.sizes import fit_sizes
from unidex.training.stage_networks import StageNetworks
from unidex.training.timetable import FINISH, FIT, INDEX, PREPARE, TEST, TRAIN, TRIAL, stage_phase
from unidex.training.trials import may_try
from unidex.training.validation import CHOICE_TEXTS, EPOCH_TEXTS

MAX_STEPS = 4
# Seconds on the machine where `REFERENCE` was measured: `_reference` took so long there.
REFERENCE = 0.085
RANK_TEXT = 1.2e-3  # candidates, features and two fits of the ranker, per held-out text
PREDICT_TEXT = 0.35e-3  # per test text: search, features, ranking, metrics
CODE_ROW = 12e-6  # index kind pq, per label
DISK_ROW, DISK_NUMBER = 4e-6, 2.7e-8  # index kind disk, per label and per number of its row
# Its search, per text and label to the power of 3/4, as lists are scanned; and likewise per number of a row.
DISK_QUERY, DISK_SCORE = 0.5e-8, 0.8e-10
COUNTED = 0.6  # share of counting and naming features in the time to read a text; of very many texts, some are counted
TEXT_ROW = 12e-6  # lists of the kNN part, per text
LINEAR_EXAMPLE, LINEAR_ENTRY = 0.72e-6, 6.6e-9  # linear classifiers, per example and per feature of an example


@dataclass(frozen=True)
class Speed:
    """Measured CPU seconds.

    Attributes:
        read_byte: per byte of text, to count features and to make them.
        step: of a training step.
        batch_size: texts of that step.
        encode_label: of the vector of a label text by all encoders that read it.
        encode_text: of the vectors of a text.
        encode_row: of a row of the index, by array operations where the encoder has them.
        product: of one multiplication and addition in a matrix product.
        factor: how much slower than the reference this machine is.
    """

    read_byte: float
    step: float
    batch_size: int
    encode_label: float
    encode_text: float
    encode_row: float
    product: float
    factor: float

    @classmethod
    def measured(
        cls, sample: Dataset, config: Config, num_features: int, device: torch.device, num_texts: int = 0
    ) -> Speed:
        """Measure on a sample of a data set; the table of features gets as many rows as it will have.

        Batches are those of ``num_texts`` texts. A transformer has those of the sample, because a step takes seconds.
        """
        if encoders.get(config.encoder.kind).can.is_pretrained:
            num_texts = 0
        config = with_metric(fit_sizes(config, num_texts or len(sample.train), tell=False))
        config = changed(config, {"augment": {"method": "none"}, "train": {"table_storage": "memory"}})
        num_bytes = sample.train.texts.num_bytes + sample.labels.texts.num_bytes
        started = time.process_time()
        networks = StageNetworks(sample, config, seed=0, device=device, folder=None, processes=ALONE)
        read_byte = (time.process_time() - started) / max(1, num_bytes)
        data = networks.training_set(config, None)
        network = networks.network(config, data, None, "measurement")
        # With the table as it is: other arrays have as many rows as the sample has features.
        arrays, rows = network.arrays(config.predict.precision), data.labels[:2048]
        by_arrays = None if arrays is None else _seconds(lambda: arrays.text_vectors(rows)) / max(1, rows.shape[0])
        if num_features:
            _spread(network, data, num_features)
        trainer = Trainer(network, data, config)
        seconds = trainer.measure_steps(MAX_STEPS)
        network.eval()
        encode_text = _seconds(lambda: network.text_vectors(data.texts[:2048])) / min(2048, data.texts.shape[0])
        encode_label = _seconds(lambda: network.label_vectors(data.labels[:2048], slice(0, 2048)))
        encode_label /= min(2048, data.labels.shape[0])
        # A sample may have fewer texts than a batch.
        step, batch_size = min(seconds), min(config.train.batch_size, len(sample.train))
        return cls(
            read_byte,
            step,
            batch_size,
            encode_label,
            encode_text,
            encode_label if by_arrays is None else by_arrays,
            *_reference(),
        )


def _spread(network: Any, data: Any, num_features: int) -> None:
    """Give the tables of features as many rows as they will have, and use rows all over them: caches are small."""
    for encoder in {id(part): part for part in (network.encoder, network.classifier_encoder)}.values():
        table = getattr(encoder, "table", None)
        if table is None or num_features <= table.num_rows:
            continue
        table.weight = table.weight.repeat(-(-num_features // table.num_rows), 1)[:num_features].contiguous()
        if getattr(encoder, "feature_weights_F", None) is not None:
            encoder.weigh(torch.ones(num_features))
    for rows in (data.texts, data.labels):
        stride = max(1, num_features // rows.shape[1])
        rows.indices = (rows.indices * stride).astype(rows.indices.dtype)
        rows._shape = (rows.shape[0], max(num_features, rows.shape[1]))


def _reference() -> tuple[float, float]:
    """Seconds of one multiplication and addition, and how much slower than the reference this machine is."""
    a, b = torch.ones(512, 256), torch.ones(256, 4096)
    a @ b
    product = _seconds(lambda: a @ b) / (512 * 256 * 4096)
    keys = np.random.default_rng(0).integers(1 << 40, size=300_000)
    places = _seconds(lambda: np.unique(keys))
    words = _seconds(lambda: sorted(map(str, range(100_000))))
    return product, (places + words) / REFERENCE


def _seconds(work: Any) -> float:
    started = time.process_time()
    work()
    return max(1e-9, time.process_time() - started)


def expected_epochs(config: Config) -> int:
    """Passes over the texts: with patience, most runs stop after the first validation that gains too little."""
    train = config.train
    if not (train.patience and train.validation):
        return train.epochs
    return min(train.epochs, train.validate_every * (train.patience + 1))


def seconds_by_phase(stages: dict[str, Config], sizes: Sizes, speed: Speed, processes: int = 1) -> dict[str, float]:
    """CPU seconds of each phase, per process."""
    *earlier, (_, config) = [(name, fit_sizes(part, sizes.num_texts, tell=False)) for name, part in stages.items()]
    train = config.train
    num_held_out = sizes.num_texts * wanted_share(config, sizes.num_texts)

    def epoch(part: Config, num_texts: float) -> float:
        size = part.train.batch_size
        return num_texts / size * speed.step * size / speed.batch_size / processes

    heads = int(config.heads.dual) + int(config.heads.classifier)
    dim = (config.heads.dim if config.heads.projection else config.encoder.dim) * heads
    labels = sizes.num_labels / processes * speed.encode_label

    def score_all(num_texts: float) -> float:
        return num_texts * sizes.num_labels * dim * speed.product / processes

    def search(num_texts: float) -> float:
        return labels + score_all(num_texts)

    def on_disk(num_texts: float, number: int) -> float:
        """An index of kind disk, without the vectors of labels, and so many searches."""
        build = number * (DISK_ROW + DISK_NUMBER * dim)
        return (build + num_texts * (DISK_QUERY + DISK_SCORE * dim) * math.pow(number, 0.75)) * speed.factor

    num_trained = sizes.num_texts - num_held_out
    epochs = expected_epochs(config)
    validations = max(1, epochs // train.validate_every) if train.validation else 0
    num_bytes, counted_bytes = (
        min(limit, sizes.num_texts) * sizes.text_bytes + min(limit, sizes.num_labels) * sizes.label_bytes
        for limit in (math.inf, MAX_COUNTED)
    )
    found = {PREPARE: ((1 - COUNTED) * num_bytes + COUNTED * counted_bytes) * speed.read_byte}
    found |= {stage_phase(name): expected_epochs(part) * epoch(part, num_trained) for name, part in earlier}
    found[TRAIN] = epochs * epoch(config, num_trained) + validations * search(min(EPOCH_TEXTS, num_held_out))
    knn = sizes.num_texts * (speed.encode_text + TEXT_ROW * speed.factor)
    if train.validation:
        found[TRAIN] += search(min(CHOICE_TEXTS, num_held_out)) + knn
    if may_try(config, sizes.num_texts):
        # Label texts as further points, mined negatives, or smaller batches.
        found[TRIAL] = found[TRAIN] + epochs * epoch(config, min(sizes.num_labels, sizes.num_texts)) / 2
    if train.validation:
        rank = num_held_out * RANK_TEXT * speed.factor * (config.predict.rank == "learned")
        simulated = train.decay_epochs if sizes.num_texts <= train.simulate_decay_up_to else 0
        is_indexed = processes == 1 and sizes.num_labels >= LISTED_FROM
        searched = labels + on_disk(num_held_out, sizes.num_labels) if is_indexed else search(num_held_out)
        found[FIT] = searched + knn + rank + simulated * epoch(config, num_trained)
    linear = 0.0
    if config.predict.linear and config.predict.rank == "learned" and processes == 1 and num_held_out >= MIN_TREES:
        # Once for held-out texts, and again for the model.
        fit, num_searched = _linear(sizes)
        alone = min(sizes.num_labels, sizes.num_pairs)
        hard = on_disk(num_searched, alone) if sizes.num_labels > ALONE_ABOVE else score_all(num_searched)
        linear = fit * speed.factor + hard
        found[FIT] += linear
    if train.decay_epochs:
        found[FINISH] = train.decay_epochs * epoch(config, sizes.num_texts)
    kind = chosen_kind(config.predict.index, sizes.num_labels, dim + 1)
    row = DISK_ROW + DISK_NUMBER * dim if kind == "disk" else CODE_ROW
    predict = config.predict
    has_knn = predict.knn > 0 or predict.rank == "learned" or predict.snippet_length > 0 or train.validation
    rows = sizes.num_labels * (speed.encode_row + row * speed.factor)
    found[INDEX] = rows + (knn if has_knn else 0) + linear
    found[TEST] = sizes.num_test * (speed.encode_text + PREDICT_TEXT * speed.factor)
    return {name: round(value, 4 if value < 10 else 0) for name, value in found.items() if math.isfinite(value)}


def _linear(sizes: Sizes) -> tuple[float, int]:
    """Seconds of a fit of linear classifiers on the reference machine, and texts searched for negatives; 0 without."""
    num_entries = int(sizes.num_texts * sizes.text_entries)
    if num_entries > MAX_LINEAR or not num_entries:
        return 0.0, 0
    places, num_searched, random_per_text = num_negatives(
        sizes.num_texts, sizes.num_labels, sizes.num_pairs, num_entries
    )
    num_examples = sizes.num_pairs * (1 + random_per_text) + num_searched * places
    return num_examples * (LINEAR_EXAMPLE + LINEAR_ENTRY * sizes.text_entries), num_searched
