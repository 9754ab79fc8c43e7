"""From a data set and a recipe to a trained model: choosing on a validation split, training, the model folder."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unidex.building import build_encoder, build_network, start_classifiers
from unidex.config import Config
from unidex.data.dataset import Dataset, Split, split_rows
from unidex.errors import UnidexError
from unidex.evaluating import fusion_scores, metric_value, score_network
from unidex.model import Model, label_set
from unidex.network import Network
from unidex.training.loop import Trainer, TrainingSet

logger = logging.getLogger(__name__)

# More validation texts than this make a choice slower, not better.
_MOST_VALIDATION_TEXTS = 5000
_FUSIONS = tuple(round(0.1 * tenth, 1) for tenth in range(11))


@dataclass(frozen=True)
class Choice:
    """What the validation split has decided."""

    epochs: int
    fusion: float
    metrics: dict[str, float]


class Run:
    """The training of one model.

    Args:
        dataset: its train split is trained on; its test split is never looked at.
        config: the recipe.
        seed: of every random choice.
        device: where to train.
        folder: for checkpoints and logs, or None to keep nothing.
    """

    def __init__(
        self, dataset: Dataset, config: Config, *, seed: int, device: torch.device, folder: Path | None
    ) -> None:
        self.dataset, self.config, self.seed, self.device, self.folder = dataset, config, seed, device, folder
        torch.manual_seed(seed)
        self._encoder = build_encoder(config, dataset.train.texts, dataset.labels.texts)
        # Trained twice, the encoder begins twice from the same weights.
        self._start = _weights(self._encoder) if config.train.refit and config.train.validation > 0 else None
        # Texts are read once: a resumed run finds them as the first one left them.
        self._encoder.cache = None if folder is None else folder / "prepared"
        self._texts = self._encoder.prepare(dataset.train.texts)
        self._labels = self._encoder.prepare(dataset.labels.texts)
        self._encoder.cache = None

    def model(self, *, resume: bool = False) -> Model:
        """Train, with a choice on validation first where the recipe asks for one."""
        config = self.config
        metrics: dict[str, Any] = {"data": {"name": self.dataset.name, "num_train": len(self.dataset.train)}}
        if config.train.validation > 0:
            network, choice = self._choose(resume=resume)
            metrics["validation"] = choice.metrics
            metrics["choice"] = {"epochs": choice.epochs, "fusion": choice.fusion}
            config = _with(config, epochs=choice.epochs, fusion=choice.fusion)
            if config.train.refit:
                del network
                network, metrics["training"] = self._train(config, None, "final", resume=resume)
        else:
            network, metrics["training"] = self._train(config, None, "final", resume=resume)
        labels = label_set(self.dataset.labels.texts, self.dataset.labels.uids, self.dataset.label_frequencies())
        return Model.build(config, network, labels, self._labels, metrics)

    def _choose(self, *, resume: bool) -> tuple[Network, Choice]:
        """Train on a part of train, look at the rest for the number of epochs and the fusion weight."""
        rows, held_out = split_rows(len(self.dataset.train), self.config.train.validation, self.seed)
        held_out = held_out[:: max(1, -(-len(held_out) // _MOST_VALIDATION_TEXTS))]
        if len(held_out) == 0:
            raise UnidexError(
                f"a validation split needs at least one text, but {self.config.train.validation:g} of "
                f"{len(self.dataset.train)} is none; raise train.validation or set it to 0"
            )
        validation = self.dataset.train.take(held_out)
        network, result = self._train(self.config, rows, "choosing", resume=resume, validation=(validation, held_out))
        texts = self._texts[held_out]
        fusion = self.config.predict.fusion
        if self.config.predict.choose_fusion and network.dual is not None and network.classifier is not None:
            scores = fusion_scores(network, texts, self._labels, self.dataset, validation, _FUSIONS)
            values = {weight: metric_value(found, self.config.train.metric) for weight, found in scores.items()}
            fusion = max(values, key=lambda weight: (values[weight], -abs(weight - 0.5)))
            logger.info("fusion weight %.1f of the dual encoder is best on validation", fusion)
        metrics = score_network(network, texts, self._labels, self.dataset, validation, fusion)
        return network, Choice(result["best_epoch"], fusion, metrics)

    def _train(
        self,
        config: Config,
        rows: NDArray[np.int64] | None,
        phase: str,
        *,
        resume: bool,
        validation: tuple[Split, NDArray[np.int64]] | None = None,
    ) -> tuple[Network, dict[str, Any]]:
        split = self.dataset.train if rows is None else self.dataset.train.take(rows)
        data = TrainingSet(
            self._texts if rows is None else self._texts[rows], self._labels, split.positives, split.filter_pairs
        )
        torch.manual_seed(self.seed)
        if self._start is not None:
            _restore(self._encoder, self._start)
        network = build_network(config, self._encoder, self.dataset.num_labels, self.device)
        if config.heads.classifier and config.heads.classifier_start == "label-text":
            start_classifiers(network, self._labels)
        if config.train.tables == "file":
            if self.folder is None or self.device.type != "cpu":
                raise UnidexError(
                    "train.tables = 'file' needs a model folder (--out) and the device cpu, but has not both"
                )
            (self.folder / phase).mkdir(parents=True, exist_ok=True)
            for name, table in network.tables().items():
                table.move_to(self.folder / phase / f"{name}.table")
        validate = None
        if validation is not None:
            held_out, held_out_rows = validation
            texts = self._texts[held_out_rows]

            def validate(now: Network) -> dict[str, float]:
                return score_network(now, texts, self._labels, self.dataset, held_out, config.predict.fusion)

        folder = None if self.folder is None else self.folder / phase
        trainer = Trainer(network, data, config, seed=self.seed, folder=folder, validate=validate)
        return network, trainer.run(resume=resume)


def _weights(encoder: Any) -> dict[str, torch.Tensor]:
    found = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    return found | ({"table": encoder.table.weight.clone()} if hasattr(encoder, "table") else {})


def _restore(encoder: Any, weights: dict[str, torch.Tensor]) -> None:
    encoder.load_state_dict({name: tensor for name, tensor in weights.items() if name != "table"})
    if "table" in weights:
        encoder.table.weight = weights["table"].clone()


def _with(config: Config, *, epochs: int, fusion: float) -> Config:
    return config.model_copy(
        update={
            "train": config.train.model_copy(update={"epochs": epochs}),
            "predict": config.predict.model_copy(update={"fusion": fusion}),
        }
    )


def read_log(folder: Path) -> str:
    """The log of a run, all phases: a JSON object a line."""
    lines: list[str] = []
    for phase in ("choosing", "final"):
        file = folder / phase / "train.jsonl"
        if file.exists():
            records = map(json.loads, file.read_text(encoding="utf-8").splitlines())
            lines += [json.dumps({"phase": phase} | record) + "\n" for record in records]
    return "".join(lines)
