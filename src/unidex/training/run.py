"""From a data set and a recipe to a trained model: choosing on a validation split, training, the model folder."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from unidex.augment.agreement import agreement
from unidex.augment.points import check_label_texts, label_points
from unidex.building import build_encoder, build_network, encoders_apart, start_classifiers
from unidex.config import Augment, Config
from unidex.data.dataset import Dataset
from unidex.distributed import ALONE, Processes
from unidex.errors import UnidexError
from unidex.model import Model, label_set
from unidex.network import Network
from unidex.training.batching import TrainingSet
from unidex.training.choosing import Choice, Validation
from unidex.training.loop import Trainer

logger = logging.getLogger(__name__)

# Targets of label texts are judged where at least so many labels are train texts, and left out below this share of true
# ones. On see-also pages it is above a half, on dependencies of packages 4% (docs/results.md).
_FEWEST_KNOWN = 100
_LEAST_PRECISION = 0.2
# What a trial beside the plain one was about, as the log says it.
_SAID = {
    "classifier": "leaving the dual encoder's loss out",
    "gandalf": "taking label texts as training points (gandalf)",
}


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
        if config.augment.method == "auto" and not (config.train.validation > 0 and config.train.refit):
            logger.info(
                "label texts as training points (gandalf) are not tried: there is nothing to choose and refit on"
            )
            config = _with(config, augment="none")
        self.dataset, self.config, self.seed, self.device, self.folder = dataset, config, seed, device, folder
        self.processes = processes
        self._shard = processes.shard(dataset.num_labels)
        torch.manual_seed(seed)
        self._encoder = build_encoder(config, dataset.train.texts, dataset.labels.texts)
        # Trained twice, the encoder begins twice from the same weights.
        self._start = _weights(self._encoder) if config.train.refit and config.train.validation > 0 else None
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
        """Train, with a choice on validation first where the recipe asks for one.

        Of several processes the first gets the model, with the classifiers of all; the others get None.
        """
        config = self.config
        metrics: dict[str, Any] = {"data": {"name": self.dataset.name, "num_train": len(self.dataset.train)}}
        if config.train.validation > 0:
            network, choice = self._choose(resume=resume)
            metrics["validation"] = choice.metrics
            chosen = {name: value for name, value in vars(choice).items() if name not in ("metrics", "value")}
            metrics["choice"] = chosen
            config = _with(config, **chosen)
            if config.train.refit:
                del network
                network, metrics["training"] = self._train(config, None, "final", resume=resume)
        else:
            network, metrics["training"] = self._train(config, None, "final", resume=resume)
        if network.classifiers is not None and self.processes.size > 1:
            rows = self.processes.gather_on_first(network.classifiers.weight)
            if rows is not None:
                network.classifiers.weight = rows
        if not self.processes.is_first:
            return None
        labels = label_set(self.dataset.labels.texts, self.dataset.labels.uids, self.dataset.label_frequencies())
        return Model.build(config, network, labels, self._labels, metrics)

    def _choose(self, *, resume: bool) -> tuple[Network, Choice]:
        """Train on a part of train, look at the rest for the number of epochs, the fusion weight and Gandalf or not."""
        config = self.config
        validation = Validation.of(
            self.dataset, config.train.validation, self.seed, self._texts, self._labels, self.processes
        )
        alternatives = self._alternatives()
        if len(alternatives) == 1:
            config = _with(config, **alternatives["plain"])
            network, result = self._train(config, validation.rows, "choosing", resume=resume, validation=validation)
            return network, validation.choice(network, result["best_epoch"], config)
        choices = {}
        epochs = -(-config.train.epochs // 2)
        for name, changes in alternatives.items():
            trial = _with(config, epochs=epochs, **changes)
            phase = f"choosing-{name}"
            network, result = self._train(trial, validation.rows, phase, resume=resume, validation=validation)
            choices[name] = validation.choice(network, result["best_epoch"], trial)
        best = max(choices.values(), key=lambda choice: choice.value)
        plain = choices["plain"].value
        for name, said in _SAID.items():
            if name in choices:
                verdict = "pays" if choices[name] is best else "does not pay"
                value = choices[name].value
                logger.info("%s %s: %s %.2f, %.2f otherwise", said, verdict, config.train.metric, value, plain)
        # A trial that was best at its end stands for the whole number of epochs.
        return network, replace(best, epochs=round(config.train.epochs * best.epochs / epochs))

    def _alternatives(self) -> dict[str, dict[str, Any]]:
        """What is tried on validation, in trials of half the epochs, by name."""
        config = self.config
        found: dict[str, dict[str, Any]] = {"plain": {}}
        # Where the heads share no encoder, the dual encoder's loss takes nothing from the classifier.
        both = config.heads.dual and config.heads.classifier
        if config.loss.choose_dual and both and not encoders_apart(config):
            found["classifier"] = {"dual_weight": 0.0}
        if config.augment.method == "auto":
            found = {name: changes | {"augment": "none"} for name, changes in found.items()}
            if self._may_gandalf_pay():
                found["gandalf"] = {"augment": "gandalf"}
        return found

    def _may_gandalf_pay(self) -> bool:
        """Whether a trial with label texts is worth its time: not where their targets are known to be wrong."""
        train = self.dataset.train
        if not self.dataset.labels.texts.num_bytes:
            return False
        settings = self.config.augment.model_copy(update={"method": "gandalf"})
        found = agreement(label_points(train.positives, settings, self.seed), train.positives, train.filter_pairs)
        if found.num_labels < _FEWEST_KNOWN or found.precision >= _LEAST_PRECISION:
            return True
        logger.info(
            "label texts as training points (gandalf) are not tried: of %d labels that are train texts themselves, "
            "only %.0f%% of the targets would be true",
            found.num_labels,
            100 * found.precision,
        )
        return False

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
    ) -> tuple[Network, dict[str, Any]]:
        data = self._training_set(config, rows)
        torch.manual_seed(self.seed)
        if self._start is not None:
            _restore(self._encoder, self._start)
        network = build_network(config, self._encoder, self._shard, self.device)
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
        validate = None
        if validation is not None:

            def validate(now: Network) -> dict[str, float]:
                return validation.score(now, config.predict.fusion)

        folder = None if self.folder is None else self.folder / phase
        trainer = Trainer(
            network, data, config, seed=self.seed, folder=folder, validate=validate, processes=self.processes
        )
        return network, trainer.run(resume=resume)


def with_label_points(data: TrainingSet, settings: Augment, seed: int, stack: Any) -> TrainingSet:
    """A training set with label texts as further texts (Gandalf): kept texts first, then label texts.

    A label text has no filter pairs, except that its own label does not count against it where it is no target.

    Args:
        data: what there is; co-occurrence comes from its positives.
        settings: the section [augment] of a recipe.
        seed: of what is drawn.
        stack: joins prepared texts.
    """
    points = label_points(data.positives, settings, seed)
    num_points, num_labels = len(points.labels), data.positives.shape[1]
    logger.info(
        "%s: %d label texts as training points beside %d texts, %.1f targets each",
        settings.method,
        num_points,
        len(points.texts),
        points.targets.nnz / max(1, num_points),
    )
    own = np.arange(num_points) if not settings.self_label else np.arange(0)
    pairs = (np.ones(len(own), dtype=bool), (own, points.labels[own]))
    return TrainingSet(
        stack([data.texts[points.texts], data.labels[points.labels]]),
        data.labels,
        sparse.vstack([data.positives[points.texts], points.targets], format="csr"),
        sparse.vstack(
            [data.filter_pairs[points.texts], sparse.csr_array(pairs, shape=(num_points, num_labels))], format="csr"
        ),
    )


def _weights(encoder: Any) -> dict[str, torch.Tensor]:
    found = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    return found | ({"table": encoder.table.weight.clone()} if hasattr(encoder, "table") else {})


def _restore(encoder: Any, weights: dict[str, torch.Tensor]) -> None:
    encoder.load_state_dict({name: tensor for name, tensor in weights.items() if name != "table"})
    if "table" in weights:
        encoder.table.weight = weights["table"].clone()


def _with(
    config: Config,
    *,
    augment: str | None = None,
    epochs: int | None = None,
    fusion: float | None = None,
    dual_weight: float | None = None,
) -> Config:
    """The recipe with what was chosen."""
    chosen: dict[str, dict[str, Any]] = {
        "augment": {"method": augment},
        "train": {"epochs": epochs},
        "predict": {"fusion": fusion},
        "loss": {"dual_weight": dual_weight},
    }
    sections = {
        name: getattr(config, name).model_copy(update={key: value for key, value in keys.items() if value is not None})
        for name, keys in chosen.items()
    }
    return config.model_copy(update=sections)


def read_log(folder: Path) -> str:
    """The log of a run, all phases: a JSON object a line."""
    lines: list[str] = []
    for phase in ("choosing", "choosing-plain", "choosing-classifier", "choosing-gandalf", "final"):
        file = folder / phase / "train.jsonl"
        if file.exists():
            records = map(json.loads, file.read_text(encoding="utf-8").splitlines())
            lines += [json.dumps({"phase": phase} | record) + "\n" for record in records]
    return "".join(lines)
