"""From a data set and a recipe to a trained model: trials on a validation split, training, the model folder."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from unidex.augment.label_points import check_label_texts
from unidex.config import Config
from unidex.config.recipes import join_stages
from unidex.config.rules import check_rules
from unidex.data.dataset import Dataset
from unidex.distributed import ALONE, Processes
from unidex.encoders import registry as encoders
from unidex.model.model import Model, label_set
from unidex.nn.assembly import build_network
from unidex.nn.initialisation import initialise_classifiers, initialise_cluster_biases
from unidex.nn.label_tree import LabelTree
from unidex.nn.network import BLOCK, Network
from unidex.scoring.calibration import Calibration
from unidex.scoring.decision_tree import check_installed
from unidex.scoring.fusion import Weights
from unidex.storage.atomic import write_text
from unidex.training.loop import Trainer
from unidex.training.parts_setup import make_parts, words_of_labels
from unidex.training.phases import FALLING, REHEARSAL, changed, falling, sized
from unidex.training.table_storage import tables_to_files
from unidex.training.training_set import TrainingSet, with_label_points
from unidex.training.transfer import (
    carry_on,
    encoder_weights,
    restore_encoder,
    set_dropout,
    surrogate_set,
    together,
)
from unidex.training.tree_setup import cluster_positives, grown_tree, learns_labels
from unidex.training.trials import PLAIN, SAID, tries
from unidex.training.unseen_labels import settle_unseen
from unidex.training.validation import Choice, Validation

logger = logging.getLogger(__name__)

# Between the seeds of two stages, so that none draws what another has drawn.
_STAGE_SEED = 1_000_003


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
        stages = {name: sized(part, len(dataset.train)) for name, part in config.in_stages().items()}
        check_rules(
            stages,
            encoder=encoders.get(config.encoder.kind).can,
            num_processes=processes.size,
            has_label_texts=bool(dataset.labels.texts.num_bytes),
            device=device.type,
            has_folder=folder is not None,
        )
        if config.predict.combine == "decision-tree":
            check_installed()
        # The last stage is the recipe of the model; those before it lead to where it begins.
        *self._earlier, (self._last, config) = stages.items()
        self._before: Network | None = None
        self._tree: LabelTree | None = None
        self._stage = 0
        self.dataset, self.config, self.seed, self.device, self.folder = dataset, config, seed, device, folder
        self.processes = processes
        torch.manual_seed(seed)
        self._encoder = encoders.build_encoder(config, dataset.train.texts, dataset.labels.texts)
        self._start: dict[str, torch.Tensor] | None = None
        self._validation: Validation | None = None
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
        stages = self._earlier_stages(resume=resume)
        best = self._best_trial(resume=resume)
        network, config, result = best.trainer.network, best.config, best.result
        fusing = None
        if config.predict.combine == "decision-tree":
            assert self._validation is not None
            fusing, found = self._validation.fused(network, config)
            calibration = self._validation.calibration_of(found)
        else:
            calibration = self._calibration(best, resume=resume)
        if config.train.decay_epochs > 0:
            network, result = self._go_on(best, resume=resume)
        metrics["training"] = result if not stages else together(stages | {self._last: result})
        if best.choice is not None:
            chosen = {name: value for name, value in vars(best.choice).items() if name not in ("metrics", "value")}
            metrics |= {"validation": best.choice.metrics, "choice": chosen}
            weights = {name: chosen[name] for name in ("fusion", "knn", "label_prior")}
            config = changed(config, {"predict": weights, "train": {"epochs": chosen["epochs"]}})
        if calibration is not None:
            metrics["calibration"] = calibration.summary()
        network.fold()
        if network.classifiers is not None and self.processes.size > 1:
            rows = self.processes.gather_on_first(network.classifiers.weight)
            if rows is not None:
                network.classifiers.weight = rows
        if not self.processes.is_first:
            return None
        learned = self.dataset.train.positives if config.train.decay_epochs > 0 else best.trainer.data.positives
        settle_unseen(network, config, learned)
        labels = label_set(self.dataset.labels.texts, self.dataset.labels.uids, self.dataset.label_frequencies())
        train = (self._texts, self.dataset.train.positives)
        model = Model.build(
            self._whole(config), network, labels, self._labels, metrics, train, self.dataset.train.texts
        )
        model.calibration, model.fusing = calibration, fusing
        return model

    def _whole(self, config: Config) -> Config:
        """The recipe of the last stage as that of all of them."""
        if not self._earlier:
            return config
        earlier = {name: part.model_copy(update={"predict": config.predict}) for name, part in self._earlier}
        return join_stages(earlier | {self._last: config}, where=config.recipe)

    def _earlier_stages(self, *, resume: bool) -> dict[str, dict[str, Any]]:
        """Train the stages before the last one; the result says how each went."""
        share = self.config.train.validation
        if share > 0:
            self._validation = Validation.of(self.dataset, share, self.seed, self._texts, self._labels, self.processes)
        rows = None if self._validation is None else self._validation.rows
        results = {}
        for name, config in self._earlier:
            logger.info("stage %d of %d: %s", self._stage + 1, len(self._earlier) + 1, name)
            validation = self._validation if learns_labels(config) else None
            trainer, results[name] = self._train(
                config, rows, f"training-{name}", resume=resume, validation=validation, followed=True
            )
            self._before = trainer.network
            self._stage += 1
        if self._earlier:
            logger.info("stage %d of %d: %s", self._stage + 1, len(self._earlier) + 1, self._last)
        return results

    def _best_trial(self, *, resume: bool) -> _Trial:
        """Train the recipe as it stands, and with what is tried beside it; the best on validation."""
        validation = self._validation
        rows = None if validation is None else validation.rows
        tried = tries(self.dataset, self.config, self.seed)
        if len(tried) > 1:
            # Every trial begins from the same weights.
            self._start = encoder_weights(self._encoder)
        best: _Trial | None = None
        values: dict[str, float] = {}
        trained: dict[str, torch.Tensor] = {}
        for name, changes in tried.items():
            config = changed(self.config, changes)
            if config.train.decay_epochs > 0:
                config = changed(config, {"train": {"schedule": "constant"}})
            phase = "training" if name == PLAIN else f"training-{name}"
            if self._earlier:
                phase = f"training-{self._last}"
            trainer, result = self._train(config, rows, phase, resume=resume, validation=validation)
            choice = None
            if validation is not None:
                choice = validation.choice(trainer.network, result["best_epoch"], config)
                values[name] = choice.value
            # Of equal trials the first stays: the plain one.
            if best is None or values[name] > max(values[other] for other in values if other != name):
                best = _Trial(config, trainer, choice, result)
                trained = encoder_weights(self._encoder) if len(tried) > 1 else {}
        assert best is not None
        for name in values.keys() - {PLAIN}:
            verdict = "pays" if values[name] > values[PLAIN] else "does not pay"
            said = (SAID[name], verdict, self.config.train.metric, values[name], values[PLAIN])
            logger.info("%s %s: %s %.2f, %.2f otherwise", *said)
        if trained:
            # All trials share the dual encoder, which is now as the last one left it.
            restore_encoder(self._encoder, trained)
        return best

    def _calibration(self, best: _Trial, *, resume: bool) -> Calibration | None:
        """Probabilities, fitted to the texts that are kept back; None without such texts.

        Where learning rates are still to fall, the scores of new texts will not be those of now. So that is rehearsed
        without the texts kept back, and then forgotten.
        """
        if self._validation is None or best.choice is None:
            return None
        weights = Weights(best.choice.fusion, best.choice.knn, best.choice.label_prior)
        train = best.config.train
        # Tables that live in a file are larger than memory: there is no second place for them.
        few = len(self.dataset.train) <= train.simulate_decay_up_to
        if train.decay_epochs == 0 or not few or train.table_storage == "file":
            return self._validation.calibration(best.trainer.network, best.config, weights)
        kept = None if self.folder is None else self.folder / f"{REHEARSAL}.json"
        if resume and kept is not None and kept.exists():
            found = json.loads(kept.read_text(encoding="utf-8"))
            return None if found is None else Calibration.from_dict(found)
        logger.info(
            "learning rates fall without the texts kept back, to fit probabilities to what that makes of scores"
        )
        before = best.trainer.state()
        network, _ = self._go_on(best, resume=resume, rows=self._validation.rows, phase=REHEARSAL)
        calibration = self._validation.calibration(network, best.config, weights)
        best.trainer.go_back(before)
        if kept is not None and self.processes.is_first:
            write_text(kept, json.dumps(None if calibration is None else calibration.as_dict()))
        self.processes.barrier()
        return calibration

    def _go_on(
        self, best: _Trial, *, resume: bool, rows: NDArray[np.int64] | None = None, phase: str = FALLING
    ) -> tuple[Network, dict[str, Any]]:
        """Go on with all train texts, or these, while learning rates fall to 0."""
        trainer, result = self._train(falling(best.config), rows, phase, resume=resume, after=best.trainer)
        return trainer.network, result

    def _training_set(self, config: Config, rows: NDArray[np.int64] | None) -> TrainingSet:
        """These train texts, or all, with the label texts that the recipe adds."""
        split = self.dataset.train if rows is None else self.dataset.train.take(rows)
        texts = self._texts if rows is None else self._texts[rows]
        data = TrainingSet(texts, self._labels, split.positives, split.filter_pairs)
        if config.augment.method != "none":
            check_label_texts(self.dataset)
            data = with_label_points(data, config.augment, self.seed, self._encoder.stack)
        if config.train.surrogate:
            # By what texts say; an encoder that reads no features has vectors of its own.
            features = data.texts if sparse.issparse(data.texts) else self._encoded(data.texts)
            words = words_of_labels(config, self._encoder, self._labels)
            return surrogate_set(data, features, config, self.seed, words)
        return data

    def _train(
        self,
        config: Config,
        rows: NDArray[np.int64] | None,
        phase: str,
        *,
        resume: bool,
        validation: Validation | None = None,
        after: Trainer | None = None,
        followed: bool = False,
    ) -> tuple[Trainer, dict[str, Any]]:
        """A trainer at its end; with ``after``, it has gone on from where another one ended."""
        data = self._training_set(config, rows)
        network = self._network(config, phase, data, rows) if after is None else after.network
        validate = None
        if validation is not None:

            def validate(now: Network) -> dict[str, float]:
                return validation.score(now, config.predict.fusion)

        trainer = Trainer(
            network,
            data,
            config,
            # Another seed, so that a phase that follows does not draw what the one before has drawn.
            seed=self.seed + (after is not None) + _STAGE_SEED * self._stage,
            folder=None if self.folder is None else self.folder / phase,
            validate=validate,
            processes=self.processes,
            followed=followed,
        )
        if after is not None:
            trainer.optimisers.load(after.optimisers.state())
        return trainer, trainer.run(resume=resume)

    def _encoded(self, texts: Any) -> NDArray[np.float32]:
        """Vectors of texts as the encoder gives them now."""
        self._encoder.to(self.device).eval()
        with torch.no_grad():
            blocks = [self._encoder(texts[start : start + BLOCK]) for start in range(0, texts.shape[0], BLOCK)]
        vectors: NDArray[np.float32] = torch.cat(blocks).cpu().numpy()
        return vectors

    def _network(self, config: Config, phase: str, data: TrainingSet, rows: NDArray[np.int64] | None) -> Network:
        """A network at its start, or at that of a stage: there it goes on from where the one before ended."""
        torch.manual_seed(self.seed)
        if self._start is not None:
            restore_encoder(self._encoder, self._start)
        set_dropout(self._encoder, config, self.config)
        shard = self.processes.shard(data.labels.shape[0])
        if config.has_tree and self._tree is None:
            # Grown once: clusters go on from stage to stage, and from trial to trial.
            self._tree = grown_tree(data.texts, data.positives, config.tree, self.seed)
        tree = self._tree if config.has_tree else None
        network = build_network(config, self._encoder, shard, self.device, tree)
        network.parts = make_parts(network, config, data, self.dataset.train.positives, rows, self.seed, self.processes)
        # Without dropout: what begins at vectors begins at those that are searched.
        network.eval()
        if config.heads.classifier_feature_smoothing > 0 and network.classifier_encoder is not None:
            network.classifier_encoder.smooth_rare_features(self._texts, config.heads.classifier_feature_smoothing)
        goes_on = False
        if self._before is not None:
            same_labels = learns_labels(self._earlier[self._stage - 1][1]) and learns_labels(config)
            goes_on = carry_on(network, self._before, same_labels=same_labels)
        if config.heads.classifier and not goes_on:
            initialise_classifiers(network, config, self._labels, data.texts, data.positives, self.processes)
        is_new = tree is not None and (self._before is None or self._before.tree is None)
        if tree is not None and is_new and config.heads.classifier_bias != "none":
            positives = cluster_positives(tree, data.positives)
            initialise_cluster_biases(network, config.heads.classifier_bias, positives)
        if config.train.table_storage == "file":
            assert self.folder is not None
            tables_to_files(network, self.folder / phase, self.processes.rank)
        return network
