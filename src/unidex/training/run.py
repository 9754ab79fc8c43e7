"""From a data set and a recipe to a trained model: trials on a validation split, training, the model folder."""

from __future__ import annotations

import json
import logging
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unidex.augment.points import check_label_texts
from unidex.building import build_encoder, build_network, start_classifiers
from unidex.config import Config
from unidex.data.dataset import Dataset
from unidex.distributed import ALONE, Processes
from unidex.encoders.bag import rare_weights
from unidex.errors import UnidexError
from unidex.model import Model, label_set
from unidex.network import Network
from unidex.training.batching import TrainingSet, with_label_points
from unidex.training.choosing import Choice, Validation
from unidex.training.loop import Trainer
from unidex.training.trying import PLAIN, SAID, tries

logger = logging.getLogger(__name__)

_FALLING = "falling"


@dataclass(frozen=True, eq=False)
class _Trial:
    """A finished trial: the recipe as it was tried, its trainer, and what the validation split says of it."""

    config: Config
    trainer: Trainer
    choice: Choice | None
    result: dict[str, Any]


class Run:
    """The training of one model.

    Args:
        dataset: its train split is trained on; its test split is never looked at.
        config: the recipe.
        seed: of every random choice.
        device: where to train.
        folder: for checkpoints and logs, or None to keep nothing.
        processes: who trains together.
    """

    def __init__(
        self,
        dataset: Dataset,
        config: Config,
        *,
        seed: int,
        device: torch.device,
        folder: Path | None,
        processes: Processes = ALONE,
    ) -> None:
        if config.train.batch_size == 0:
            size = batch_size_for(len(dataset.train))
            logger.info("%d train texts: batches of %d", len(dataset.train), size)
            config = _changed(config, {"train": {"batch_size": size}})
        self.dataset, self.config, self.seed, self.device, self.folder = dataset, config, seed, device, folder
        self.processes = processes
        self._shard = processes.shard(dataset.num_labels)
        torch.manual_seed(seed)
        self._encoder = build_encoder(config, dataset.train.texts, dataset.labels.texts)
        self._start: dict[str, torch.Tensor] | None = None
        # Texts are read once: a resumed run finds them as the first one left them. One process writes, the rest read.
        self._encoder.cache = None if folder is None else folder / "prepared"
        if not processes.is_first:
            processes.barrier()
        self._texts = self._encoder.prepare(dataset.train.texts)
        self._labels = self._encoder.prepare(dataset.labels.texts)
        if processes.is_first:
            processes.barrier()
        self._encoder.cache = None

    def model(self, *, resume: bool = False) -> Model | None:
        """Train, with a choice on validation where the recipe asks for one.

        Of several processes the first gets the model, with the classifiers of all; the others get None.
        """
        metrics: dict[str, Any] = {"data": {"name": self.dataset.name, "num_train": len(self.dataset.train)}}
        best = self._best_trial(resume=resume)
        network, config, result = best.trainer.network, best.config, best.result
        if config.train.falling_epochs > 0:
            network, result = self._go_on(best, resume=resume)
        metrics["training"] = result
        if best.choice is not None:
            chosen = {name: value for name, value in vars(best.choice).items() if name not in ("metrics", "value")}
            metrics |= {"validation": best.choice.metrics, "choice": chosen}
            weights = {name: chosen[name] for name in ("fusion", "neighbours", "prior")}
            config = _changed(config, {"predict": weights, "train": {"epochs": chosen["epochs"]}})
        if network.classifiers is not None and self.processes.size > 1:
            rows = self.processes.gather_on_first(network.classifiers.weight)
            if rows is not None:
                network.classifiers.weight = rows
        if not self.processes.is_first:
            return None
        labels = label_set(self.dataset.labels.texts, self.dataset.labels.uids, self.dataset.label_frequencies())
        train = (self._texts, self.dataset.train.positives)
        return Model.build(config, network, labels, self._labels, metrics, train)

    def _best_trial(self, *, resume: bool) -> _Trial:
        """Train the recipe as it stands, and with what is tried beside it; the best on validation."""
        share, validation = self.config.train.validation, None
        if share > 0:
            validation = Validation.of(self.dataset, share, self.seed, self._texts, self._labels, self.processes)
        rows = None if validation is None else validation.rows
        tried = tries(self.dataset, self.config, self.seed)
        if len(tried) > 1:
            # Every trial begins from the same weights.
            self._start = _weights(self._encoder)
        best: _Trial | None = None
        values: dict[str, float] = {}
        trained: dict[str, torch.Tensor] = {}
        for name, changes in tried.items():
            config = _changed(self.config, changes)
            if config.train.falling_epochs > 0:
                config = _changed(config, {"train": {"schedule": "constant"}})
            phase = "training" if name == PLAIN else f"training-{name}"
            trainer, result = self._train(config, rows, phase, resume=resume, validation=validation)
            choice = None
            if validation is not None:
                choice = validation.choice(trainer.network, result["best_epoch"], config)
                values[name] = choice.value
            # Of equal trials the first stays: the plain one.
            if best is None or values[name] > max(values[other] for other in values if other != name):
                best = _Trial(config, trainer, choice, result)
                trained = _weights(self._encoder) if len(tried) > 1 else {}
        assert best is not None
        for name in values.keys() - {PLAIN}:
            verdict = "pays" if values[name] > values[PLAIN] else "does not pay"
            said = (SAID[name], verdict, self.config.train.metric, values[name], values[PLAIN])
            logger.info("%s %s: %s %.2f, %.2f otherwise", *said)
        if trained:
            # All trials share the dual encoder, which is now as the last one left it.
            _restore(self._encoder, trained)
        return best

    def _go_on(self, best: _Trial, *, resume: bool) -> tuple[Network, dict[str, Any]]:
        """Go on with all train texts while learning rates fall to 0."""
        epochs = best.config.train.falling_epochs
        changes: dict[str, dict[str, Any]] = {
            "train": {"schedule": "linear", "warmup": 0.0, "epochs": epochs, "falling_epochs": 0},
            # Negatives are mined at once: the network is trained already.
            "pool": {"start": 0},
        }
        config = _changed(best.config, changes)
        trainer, result = self._train(config, None, _FALLING, resume=resume, after=best.trainer)
        return trainer.network, result

    def _training_set(self, config: Config, rows: NDArray[np.int64] | None) -> TrainingSet:
        """These train texts, or all, with the label texts that the recipe adds."""
        split = self.dataset.train if rows is None else self.dataset.train.take(rows)
        texts = self._texts if rows is None else self._texts[rows]
        data = TrainingSet(texts, self._labels, split.positives, split.filter_pairs)
        if config.augment.method == "none":
            return data
        check_label_texts(self.dataset)
        return with_label_points(data, config.augment, self.seed, self._encoder.stack)

    def _train(
        self,
        config: Config,
        rows: NDArray[np.int64] | None,
        phase: str,
        *,
        resume: bool,
        validation: Validation | None = None,
        after: Trainer | None = None,
    ) -> tuple[Trainer, dict[str, Any]]:
        """A trainer at its end; with ``after``, it has gone on from where another one ended."""
        data = self._training_set(config, rows)
        network = self._network(config, phase) if after is None else after.network
        validate = None
        if validation is not None:

            def validate(now: Network) -> dict[str, float]:
                return validation.score(now, config.predict.fusion)

        trainer = Trainer(
            network,
            data,
            config,
            # Another seed, so that a phase that follows does not draw what the one before has drawn.
            seed=self.seed + (after is not None),
            folder=None if self.folder is None else self.folder / phase,
            validate=validate,
            processes=self.processes,
        )
        if after is not None:
            trainer.optimisers.load(after.optimisers.state())
        return trainer, trainer.run(resume=resume)

    def _network(self, config: Config, phase: str) -> Network:
        """A network at its start."""
        torch.manual_seed(self.seed)
        if self._start is not None:
            _restore(self._encoder, self._start)
        network = build_network(config, self._encoder, self._shard, self.device)
        if config.heads.classifier_rare > 0 and network.classifier_encoder is not None:
            weights = rare_weights(self._texts, config.heads.classifier_rare)
            network.classifier_encoder.weigh(torch.from_numpy(weights).to(self.device))
        if config.heads.classifier and config.heads.classifier_start == "label-text":
            start_classifiers(network, self._labels[self._shard])
        if config.train.tables == "file":
            if self.folder is None or self.device.type != "cpu":
                raise UnidexError(
                    "train.tables = 'file' needs a model folder (--out) and the device cpu, but has not both"
                )
            (self.folder / phase).mkdir(parents=True, exist_ok=True)
            for name, table in network.tables().items():
                table.move_to(self.folder / phase / f"{name}.{self.processes.rank}.table")
        return network


def batch_size_for(num_texts: int) -> int:
    """Texts of a step: about 32 steps an epoch, so that a small data set has steps enough, at most 1024.

    >>> batch_size_for(1000), batch_size_for(9000), batch_size_for(30_000), batch_size_for(10**6)
    (128, 256, 1024, 1024)
    """
    return int(min(1024, max(128, 2 ** round(math.log2(max(1, num_texts) / 32)))))


def _weights(encoder: Any) -> dict[str, torch.Tensor]:
    found = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    return found | ({"table": encoder.table.weight.clone()} if hasattr(encoder, "table") else {})


def _restore(encoder: Any, weights: dict[str, torch.Tensor]) -> None:
    encoder.load_state_dict({name: tensor for name, tensor in weights.items() if name != "table"})
    if "table" in weights:
        encoder.table.weight = weights["table"].clone()


def _changed(config: Config, sections: dict[str, dict[str, Any]]) -> Config:
    """The recipe with other values of some keys, by section."""
    return config.model_copy(
        update={name: getattr(config, name).model_copy(update=keys) for name, keys in sections.items()}
    )


def read_log(folder: Path) -> str:
    """The log of a run, all phases: a JSON object a line."""
    lines: list[str] = []
    for phase in ("training", *(f"training-{name}" for name in SAID), _FALLING):
        file = folder / phase / "train.jsonl"
        if file.exists():
            records = map(json.loads, file.read_text(encoding="utf-8").splitlines())
            lines += [json.dumps({"phase": phase} | record) + "\n" for record in records]
    return "".join(lines)
