"""From a data set and a recipe to a trained model: trials on a validation split, training, the model folder."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unidex import progress
from unidex.config import Config
from unidex.config.recipes import join_stages
from unidex.config.rules import check_rules
from unidex.data.dataset import Dataset
from unidex.data.text_hashes import TextHashes
from unidex.distributed import ALONE, Processes
from unidex.encoders import registry as encoders
from unidex.model.label_set import LabelSet
from unidex.model.model import Model
from unidex.nn.encoder_protocol import HasRecentVectors
from unidex.nn.network import Network
from unidex.scoring.decision_tree import check_installed
from unidex.scoring.layout import Layout, Weights
from unidex.scoring.linear_ranker import LinearWeights
from unidex.scoring.links import LINKS
from unidex.scoring.rankers import Rarity
from unidex.storage.allocator import give_back_memory
from unidex.training.analyser_choice import choose_analyser
from unidex.training.centroid_fusion import add_centroids
from unidex.training.data_description import describe_data
from unidex.training.final_recipe import final_recipe
from unidex.training.fitted_parts import FittedParts, read_fitted, write_fitted
from unidex.training.held_out import NothingHeldOutError, wanted_share
from unidex.training.lexical_setup import lexical_part, links_of, with_other_texts
from unidex.training.linear_fit import fit_linear
from unidex.training.loop import Trainer
from unidex.training.phases import DECAY, SIMULATED_DECAY, changed, decay_recipe, with_metric
from unidex.training.pretrained_vectors import PretrainedVectors
from unidex.training.sizes import fit_sizes
from unidex.training.stage_networks import StageNetworks
from unidex.training.timetable import FINISH, FIT, INDEX, TRAIN, TRIAL, stage_phase
from unidex.training.transfer import summarise_stages
from unidex.training.tree_setup import learns_labels
from unidex.training.trials import PLAIN, TRIALS, log_decisions, plan_trials
from unidex.training.unseen_labels import settle_unseen
from unidex.training.validation import Choice, Validation

logger = logging.getLogger(__name__)

# Between the seeds of two stages, so that each draws other numbers.
_STAGE_SEED = 1_000_003


@dataclass(frozen=True, eq=False)
class _Trial:
    """A finished trial: its recipe, its trainer, and the choice on the validation split."""

    config: Config
    trainer: Trainer
    choice: Choice | None
    result: dict[str, Any]


class Run:
    """The training of one model.

    Args:
        dataset: its train split is trained on; its test split is not used.
        config: the recipe.
        seed: of every random choice.
        device: where to train.
        folder: for checkpoints and logs, or None to keep nothing.
        processes: the processes that train together.
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
        num_texts = len(dataset.train)
        stages = {name: with_metric(fit_sizes(part, num_texts)) for name, part in config.in_stages().items()}
        check_rules(
            stages,
            encoder=encoders.get(config.encoder.kind).can,
            num_processes=processes.size,
            has_label_texts=bool(dataset.labels.texts.num_bytes),
            device=device.type,
            has_folder=folder is not None,
        )
        if config.predict.rank == "decision-tree":
            check_installed()
        # The last stage is the recipe of the model; the stages before it prepare its network.
        *self._earlier, (self._last, config) = stages.items()
        config = choose_analyser(dataset, config, seed)
        self._stage = 0
        self.dataset, self.config, self.seed, self.folder = dataset, config, seed, folder
        self.processes = processes
        self._networks = StageNetworks(dataset, config, seed=seed, device=device, folder=folder, processes=processes)
        self._validation: Validation | None = None
        prepared = None if folder is None else folder / "prepared"
        self._frozen = PretrainedVectors.of(config, dataset, prepared, processes, self._networks.beside_words)
        self._nothing_held_out = False

    def model(self, *, resume: bool = False) -> Model | None:
        """Train, with a choice on validation where the recipe asks for one.

        Of several processes the first gets the model, with the classifiers of all; the others get None.
        """
        metrics: dict[str, Any] = {"data": describe_data(self.dataset)}
        stages = self._earlier_stages(resume=resume)
        best = self._best_trial(resume=resume)
        network, config, result = best.trainer.network, best.config, best.result
        give_back_memory()
        with progress.phase(FIT):
            ranker, calibration = self._fit(best, resume=resume)
        if config.train.decay_epochs > 0:
            logger.info(
                "Final training: all %d texts, also those held out before, while learning rates decay to 0.",
                len(self.dataset.train),
            )
            give_back_memory()
            with progress.phase(FINISH):
                network, result = self._decay(best, resume=resume)
        metrics["training"] = result if not stages else summarise_stages(stages | {self._last: result})
        if best.choice is not None:
            chosen = {name: value for name, value in vars(best.choice).items() if name not in ("metrics", "value")}
            metrics |= {"validation": best.choice.metrics, "choice": chosen}
        config = final_recipe(config, network, best.choice, ranker, self._frozen)
        if calibration is not None:
            metrics["calibration"] = calibration.summary()
        has_parts = network.parts is not None
        network.fold()
        if has_parts:
            add_centroids(network, config, best.trainer.data, self.processes)
        if network.classifiers is not None and self.processes.size > 1:
            rows = self.processes.gather_on_first(network.classifiers.weight)
            if rows is not None:
                network.classifiers.weight = rows
        if not self.processes.is_first:
            return None
        learned = self.dataset.train.positives if config.train.decay_epochs > 0 else best.trainer.data.positives
        settle_unseen(network, config, learned)
        # With its optimisers and its texts, of which the index needs nothing.
        del best
        labels = LabelSet.of(self.dataset)
        train = (self._networks.texts, self.dataset.train.positives)
        logger.info("Building the search index of %d labels.", len(labels))
        give_back_memory()
        with progress.phase(INDEX):
            model = Model.build(
                self._whole(config),
                network,
                labels,
                self._networks.labels,
                metrics,
                train,
                self.dataset.train.texts,
                self.folder,
            )
            if config.predict.linear:
                encode = model.vectoriser.text_vectors
                model.scorer.linear = fit_linear(model.scorer, encode, *train, self.seed, self.folder)
        if isinstance(network.encoder, HasRecentVectors):
            network.encoder.forget_vectors()
        model.scorer.calibration, model.scorer.fitted = calibration, ranker
        if self._frozen is not None and config.predict.pretrained:
            model.scorer.pretrained = self._frozen.part(config.predict)
        model.train_texts = TextHashes.of(self.dataset.train.texts)
        if config.predict.rank == "learned":
            validation, every = self._validation, np.arange(len(self.dataset.train))
            model.scorer.lexical = (
                lexical_part(self.dataset, self._networks.analyser, every, self.folder)
                if validation is None
                else with_other_texts(validation.lexical, self.dataset, validation.rows)
            )
            if ranker is not None and set(LINKS) & set(model.scorer.ranker().features):
                model.scorer.links = links_of(self.dataset, model.scorer.lexical, every)
        return model

    def _whole(self, config: Config) -> Config:
        """The recipe of the last stage as that of all of them."""
        if not self._earlier:
            return config
        earlier = {name: part.model_copy(update={"predict": config.predict}) for name, part in self._earlier}
        return join_stages(earlier | {self._last: config}, where=config.recipe)

    def _earlier_stages(self, *, resume: bool) -> dict[str, dict[str, Any]]:
        """Train the stages before the last one; the result says how each went."""
        share = wanted_share(self.config, len(self.dataset.train))
        if share > 0:
            prepared = (self._networks.texts, self._networks.labels)
            try:
                new = Validation.of(self.dataset, share, self.seed, *prepared, self.processes)
                new = replace(new, analyser=self._networks.analyser, folder=self.folder)
                self._validation = new = new.with_new_labels() if self.config.predict.rank == "learned" else new
                logger.info(
                    "Training on %d texts; %d are held out, to decide when to stop and how to rank.",
                    len(new.rows),
                    len(new.split),
                )
            except NothingHeldOutError as error:
                if self.config.predict.rank == "decision-tree":
                    raise
                # A few texts must be enough to start with.
                logger.info("No choices on validation: %s.", error.reason)
                self.config = changed(self.config, {"train": {"validation": 0.0}})
                self._nothing_held_out = True
        rows = None if self._validation is None else self._validation.rows
        results = {}
        for name, config in self._earlier:
            logger.info("Stage %d of %d: %s.", self._stage + 1, len(self._earlier) + 1, name)
            validation = self._validation if learns_labels(config) else None
            with progress.phase(stage_phase(name)):
                trainer, results[name] = self._train(
                    config, rows, f"training-{name}", resume=resume, validation=validation, has_next_phase=True
                )
            self._networks.start_from(trainer.network, config)
            self._stage += 1
        if self._earlier:
            logger.info("Stage %d of %d: %s.", self._stage + 1, len(self._earlier) + 1, self._last)
        return results

    def _best_trial(self, *, resume: bool) -> _Trial:
        """Train the recipe as it is, and what is tried beside it; the best on validation."""
        validation = self._validation
        rows = None if validation is None else validation.rows
        tried = plan_trials(self.dataset, self.config, self.seed)
        if len(tried) > 1:
            self._networks.start_trials()
        best: _Trial | None = None
        values: dict[str, float] = {}
        resting: Mapping[str, torch.Tensor] | None = None
        for number, (name, changes) in enumerate(tried.items()):
            config = changed(self.config, changes)
            if config.train.decay_epochs > 0:
                config = changed(config, {"train": {"schedule": "constant"}})
            phase = "training" if name == PLAIN else f"training-{name}"
            if self._earlier:
                phase = f"training-{self._last}"
            if name != PLAIN:
                logger.info("Trial of %s: training again, to see whether held-out texts score higher.", TRIALS[name])
            choice = None
            with progress.phase(TRAIN if name == PLAIN else TRIAL):
                trainer, result = self._train(config, rows, phase, resume=resume, validation=validation)
                if validation is not None:
                    choice = validation.choice(trainer.network, result["best_epoch"], config)
                    values[name] = choice.value
            # Of equal trials the first stays: the plain one.
            if best is None or values[name] > max(values[other] for other in values if other != name):
                best = _Trial(config, trainer, choice, result)
                # All trials share the encoder, and the next one needs the memory.
                resting = trainer.rest(self._networks.shared_table) if number + 1 < len(tried) else None
            # Its memory is free before the next one starts, or the best one is restored.
            del trainer
            give_back_memory()
        assert best is not None
        log_decisions(values)
        if resting is not None:
            best.trainer.restore(resting)
        return best

    def _fit(self, best: _Trial, *, resume: bool) -> FittedParts:
        """Fit the ranker and probabilities to the held-out texts; None without such texts.

        A decay phase still changes the scores. So it is simulated on the training part, and then undone.
        """
        if self._validation is None or best.choice is None:
            if best.config.predict.rank != "learned":
                return None, None
            if not self._nothing_held_out:
                logger.info("Labels are ranked by the weighted sum: a ranker needs held-out texts (train.validation).")
                return None, None
            predict = best.config.predict
            layout = Layout.of(best.trainer.network, Weights.of(predict))
            rarity = Rarity.of(predict.favour, len(self.dataset.train), self.dataset.propensity)
            return LinearWeights.prior(layout, rarity, pretrained=self._frozen is not None), None
        weights = best.choice.weights
        train = best.config.train
        # Tables that live in a file are larger than memory: there is no second place for them.
        few = len(self.dataset.train) <= train.simulate_decay_up_to
        if train.decay_epochs == 0 or not few or train.table_storage == "file":
            return self._validation.fit(best.trainer.network, best.config, weights, self._frozen, self.seed)
        file = None if self.folder is None else self.folder / f"{SIMULATED_DECAY}.json"
        if resume and file is not None and file.exists():
            return read_fitted(file)
        logger.info(
            "Ranker and probabilities: fitted to the held-out texts after a simulated final training without them, so "
            "that they match the final scores."
        )
        before = best.trainer.end_state()
        network, _ = self._decay(best, resume=resume, rows=self._validation.rows, phase=SIMULATED_DECAY)
        fitted = self._validation.fit(network, best.config, weights, self._frozen, self.seed)
        best.trainer.restore(before)
        if file is not None and self.processes.is_first:
            write_fitted(file, fitted)
        self.processes.barrier()
        return fitted

    def _decay(
        self, best: _Trial, *, resume: bool, rows: NDArray[np.int64] | None = None, phase: str = DECAY
    ) -> tuple[Network, dict[str, Any]]:
        """Continue with all train texts, or these, while learning rates decay to 0."""
        trainer, result = self._train(decay_recipe(best.config), rows, phase, resume=resume, after=best.trainer)
        return trainer.network, result

    def _train(
        self,
        config: Config,
        rows: NDArray[np.int64] | None,
        phase: str,
        *,
        resume: bool,
        validation: Validation | None = None,
        after: Trainer | None = None,
        has_next_phase: bool = False,
    ) -> tuple[Trainer, dict[str, Any]]:
        """Train one phase; with ``after``, it continues with the network and the optimisers of another one."""
        data = self._networks.training_set(config, rows)
        network = self._networks.network(config, data, rows, phase) if after is None else after.network
        validate = None
        if validation is not None:

            def validate(now: Network) -> dict[str, float]:
                return validation.score(now, config.predict.fusion)

        trainer = Trainer(
            network,
            data,
            config,
            # Another seed for each phase: it draws other batches than the one before.
            seed=self.seed + (after is not None) + _STAGE_SEED * self._stage,
            folder=None if self.folder is None else self.folder / phase,
            validate=validate,
            processes=self.processes,
            has_next_phase=has_next_phase,
        )
        if after is not None:
            trainer.optimisers.load(after.optimisers.state())
        result = trainer.run(resume=resume)
        if not has_next_phase and config.train.decay_epochs == 0 and network.parts is None:
            add_centroids(network, config, data, self.processes)
        return trainer, result
