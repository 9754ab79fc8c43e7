"""The loop: epochs of batches, mining, validation, checkpoints.

Every random choice of a step comes from (seed, epoch, step) alone, so that a run that was killed and resumed makes the
same choices as one that was not.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unidex import progress
from unidex.config import Config
from unidex.distributed import ALONE, Processes
from unidex.encoders import registry as encoders
from unidex.errors import UnidexError
from unidex.nn.device import seed_torch
from unidex.nn.network import Network
from unidex.nn.row_table import RowTable
from unidex.scoring.network_metrics import metric_value
from unidex.training import checkpoint
from unidex.training.frozen import freeze
from unidex.training.log import TrainingLog
from unidex.training.network_state import State, copied, load_network, network_state, part
from unidex.training.optimisers import Optimisers
from unidex.training.step import Step
from unidex.training.stop_signals import StopSignals, TrainingStoppedError
from unidex.training.training_set import STEP, Batching, TrainingSet

logger = logging.getLogger(__name__)

Ids = NDArray[np.int64]

_LOG_EVERY = 10
# Attributes of a trainer that a checkpoint keeps.
_PROGRESS = ("epoch", "batch", "step", "total", "best_epoch", "validations_without_gain")


class Trainer:
    """One run.

    The network, with the classifiers of this process's labels, is trained in place. ``folder`` is for checkpoints and
    train.jsonl, None keeps nothing; ``validate`` gives the metrics of the network as it is now. With ``has_next_phase``
    another run continues from the end of this one.
    """

    def __init__(
        self,
        network: Network,
        data: TrainingSet,
        config: Config,
        *,
        seed: int = 0,
        folder: Path | None = None,
        validate: Any = None,
        processes: Processes = ALONE,
        has_next_phase: bool = False,
    ) -> None:
        # The network itself, or its heads on vectors that are encoded once.
        self._stepped = network
        if config.train.freeze_encoder:
            self._stepped, data = freeze(network, data, config, processes)
        self.network, self.data, self.config, self.seed, self.folder = network, data, config, seed, folder
        self.processes, self._has_next_phase = processes, has_next_phase or config.train.decay_epochs > 0
        self._validate = validate
        self._batching = Batching(data, config, seed, processes)
        self.num_steps = self._batching.num_steps
        self.optimisers = Optimisers(self._stepped, config, self.num_steps, processes)
        self._take_step = Step(self._stepped, data, config, processes, self._move_rows)
        self.epoch = self.batch = self.step = self.best_epoch = self.validations_without_gain = 0
        self._best: Mapping[str, Tensor] | None = None
        self._best_value = -math.inf
        self._signals = StopSignals()
        self._log = TrainingLog(folder if processes.is_first else None, config.train.epochs)
        self._seen = 0
        self.total = 0.0  # of the losses of the epoch so far, as of the last checkpoint
        self._losses: dict[int, float] = {}  # mean loss by epoch, of those that this process has run
        self._before: float | None = None  # the validation metric before training, of a pretrained encoder

    def run(self, *, resume: bool = False) -> dict[str, Any]:
        """Train to the end; the result says how it went. With ``resume``, continues from the newest checkpoint."""
        started = time.monotonic()
        if resume:
            self._resume()
        epochs, patience = self.config.train.epochs, self.config.train.patience or math.inf
        with (
            self._signals.listening(),
            progress.task("training", self.num_steps, unit="steps", fills_phase=True) as advance,
        ):
            advance(self.step)
            if self.step == 0:
                self._validate_before()
            while self.epoch < epochs and self.validations_without_gain < patience:
                self._keep_best()
                self._run_epoch(advance)
                if self.epoch % self.config.train.validate_every == 0 or self.epoch == epochs:
                    self._validate_now()
                if self._is_checkpoint_due() and self.epoch < epochs:
                    self._save_checkpoint()
        if self._validate is not None or self._has_next_phase:
            # A run that is resumed in the next phase does not train this one again.
            self._save_checkpoint()
        if self._best is not None:
            load_network(self.network, self._best)
            # Its memory is that of the network, and nothing reads it any more.
            self._best = None
        seconds = time.monotonic() - started
        self._tell_end(seconds)
        return {
            "epochs": self.epoch,
            "steps": self.step,
            "seconds": round(seconds, 1),
            "best_epoch": self.best_epoch or self.epoch,
            "best": {self.config.train.metric: self._best_value} if self.best_epoch else None,
        }

    def measure_steps(self, number: int) -> list[float]:
        """CPU seconds of the first steps, at most so many of them and one at least; the network learns from them."""
        self.network.train()
        seconds = []
        for place, batch in enumerate(self._batching.batches(0)[:number]):
            started = time.process_time()
            self._step(batch, place)
            seconds.append(time.process_time() - started)
        return seconds

    def _tell_end(self, seconds: float) -> None:
        train = self.config.train
        logger.info("%d steps took %.1f s.", self.step, seconds)
        self._warn_if_nothing_learned()
        if self.epoch < train.epochs:
            logger.info(
                "Stopped after epoch %d of at most %d, and kept epoch %d: a further epoch raised the score of held-out "
                "texts by less than %g%% (train.min_gain).",
                self.epoch,
                train.epochs,
                self.best_epoch,
                100 * train.min_gain,
            )

    def _warn_if_nothing_learned(self) -> None:
        """Say it where training has made nothing better: a rate that ruins the encoder shows in nothing else."""
        rates = f"train.lr_encoder {self.config.train.lr_encoder:g}, train.lr_heads {self.config.train.lr_heads:g}"
        if self._before is not None and self._best_value <= self._before:
            logger.warning(
                "The run has learned nothing: held-out texts score %.2f, and scored %.2f before training. Lower the "
                "learning rates (%s), or train for more epochs (now at most %d, with train.patience %d).",
                self._best_value,
                self._before,
                rates,
                self.config.train.epochs,
                self.config.train.patience,
            )
        elif 1 in self._losses and len(self._losses) > 2 and min(self._losses.values()) == self._losses[1]:
            logger.warning(
                "The run may have learned nothing: no epoch had a lower loss than the first (%.4f). Change the "
                "learning rates (%s), or train with a validation split (train.validation) to see more.",
                self._losses[1],
                rates,
            )

    def _is_checkpoint_due(self) -> bool:
        return self.step % self.config.train.checkpoint_every == 0

    def _run_epoch(self, advance: progress.Advance) -> None:
        if self.batch == 0:
            self._batching.refresh(self._stepped, self.epoch)
        batches = self._batching.batches(self.epoch)
        total = torch.tensor(self.total, device=self.network.device)
        started, texts_before = time.monotonic(), self._seen
        self.network.train()
        for number in range(self.batch, len(batches)):
            total += self._step(batches[number], number)
            self.step += 1
            self.batch = number + 1
            advance(1)
            if self.step % _LOG_EVERY == 0:
                self._check(total)
                speed = (self._seen - texts_before) / max(time.monotonic() - started, 1e-9)
                advance(0, f"epoch {self.epoch + 1}, {speed:,.0f} texts/s")
            stopping = self.processes.any(self._signals.is_stopping)
            # At the end of an epoch, validation comes first.
            if stopping or (self._is_checkpoint_due() and self.batch < len(batches)):
                self._check(total)
                self.total = float(total)
                self._save_checkpoint()
            if stopping:
                raise TrainingStoppedError(
                    f"stopped by a signal at step {self.step} of {self.num_steps}; "
                    + ("continue it with --resume" if self.folder else "nothing was saved, as there is no model folder")
                )
        self._check(total)
        self.network.eval()
        seconds = max(time.monotonic() - started, 1e-9)
        loss = float(total) / max(1, len(batches))
        self._losses[self.epoch + 1] = loss
        self._log.epoch(self.epoch + 1, self.step, loss, (self._seen - texts_before) / seconds)
        self.epoch += 1
        self.batch = 0
        self.total = 0.0

    def _step(self, rows: Ids, number: int) -> Tensor:
        rng = np.random.default_rng([self.seed, STEP, self.epoch, number])
        seed_torch(int(rng.integers(2**63)))
        batch = self._batching.batch(rows, rng)
        self._seen += len(batch.texts)
        value, touched = self._take_step(batch, self.epoch, rng)
        self.optimisers.step(touched, self.step)
        return value

    def _move_rows(self, table: RowTable, rows: slice, gradient: Tensor) -> None:
        self.optimisers.step_rows(table, rows, gradient, self.step)

    def _check(self, total: Tensor) -> None:
        if not bool(torch.isfinite(total)):
            raise UnidexError(
                f"the loss must be a finite number, but is not at step {self.step}; "
                "lower the learning rates (train.lr_encoder, train.lr_heads, train.lr_classifier)"
                + (" or switch encoder.autocast off" if self.config.encoder.autocast != "off" else "")
            )

    def _validate_before(self) -> None:
        """Score a pretrained encoder before its first step: training must make it better."""
        if self._validate is None or not encoders.get(self.config.encoder.kind).can.is_pretrained:
            return
        self.network.eval()
        metrics = self._validate(self.network)
        self._before = metric_value(metrics, self.config.train.metric)
        self._log.before(metrics)

    def _validate_now(self) -> None:
        if self._validate is None:
            return
        self.network.eval()
        metrics = self._validate(self.network)
        value = metric_value(metrics, self.config.train.metric)
        self._log.validation(self.epoch, self.step, metrics)
        gains = value > self._best_value + self.config.train.min_gain * abs(self._best_value) or not self.best_epoch
        self.validations_without_gain = 0 if gains else self.validations_without_gain + 1
        if value > self._best_value:
            # The network itself is the best until it learns more. The room of the last copy is free for a checkpoint.
            self._best = None
            if self._best_file is not None:
                self._best_file.unlink(missing_ok=True)
            self._best_value, self.best_epoch = value, self.epoch

    def end_state(self) -> Mapping[str, Tensor]:
        """The network and its optimisers as ``run`` left them: mapped from the last checkpoint, or else a copy."""
        found = None if self.folder is None else checkpoint.newest(self.folder)
        if found is None:
            return {name: tensor.clone() for name, tensor in self._state().items()}
        return checkpoint.best_tensors(found, self._shards())

    def rest(self, shared: RowTable | None) -> Mapping[str, Tensor]:
        """What ``end_state`` gives, after which the tables, but a shared one, have no memory until ``restore``."""
        state = self.end_state()
        for table in self.network.tables().values():
            if table is not shared:
                table.free()
        return state

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Take what ``end_state`` gave."""
        load_network(self.network, state)
        self.optimisers.load(part(state, "optimiser."))

    def _state(self) -> State:
        optimisers = {f"optimiser.{name}": tensor for name, tensor in self.optimisers.state().items()}
        return network_state(self.network) | optimisers

    @property
    def _is_best(self) -> bool:
        """Whether the network itself is the best, as it is right after the best validation."""
        return self.best_epoch > 0 and self.batch == 0 and self.epoch == self.best_epoch

    @property
    def _best_file(self) -> Path | None:
        return None if self.folder is None else self.folder / f"best-{self.processes.rank}.safetensors"

    def _keep_best(self) -> None:
        """Copy the network before it learns more, if it is the best."""
        if self._is_best:
            self._best = copied(network_state(self.network), self._best_file)

    def _save_checkpoint(self) -> None:
        if self.folder is None:
            return
        tensors = self._state()
        if self._best is not None and not self._is_best:
            tensors |= {f"{checkpoint.BEST}{name}": value for name, value in self._best.items()}
        tensors |= self._batching.state()
        state = {
            **{name: getattr(self, name) for name in _PROGRESS},
            "seed": self.seed,
            "best_value": self._best_value if self.best_epoch else None,
            "before": self._before,
            "config": self.config.model_dump(),
        }
        checkpoint.save(self.folder, self.step, tensors, state, self._shards())

    def _shards(self) -> checkpoint.Shards:
        """Which tensors of a checkpoint are rows of a table that is split over processes."""
        return checkpoint.Shards(self.processes, self.data.labels.shape[0], ("classifiers",))

    def _resume(self) -> None:
        found = None if self.folder is None else checkpoint.newest(self.folder)
        if found is None:
            logger.info("No checkpoint yet: training starts at the first step.")
            self._log.keep_until(0)
            return
        tensors, state = checkpoint.load(found, self._shards())
        if state["config"] != self.config.model_dump() or state["seed"] != self.seed:
            raise UnidexError(
                f"{found}: a run must be resumed with the settings and the seed it started with, but they differ; "
                "use the same ones, or delete the folder and train without --resume"
            )
        self.restore(tensors)
        self._best = part(tensors, checkpoint.BEST) or None
        self._best_value = -math.inf if state["best_value"] is None else state["best_value"]
        for name in _PROGRESS:
            setattr(self, name, state[name])
        self._before = state.get("before")
        self._batching.load(tensors)
        self._log.keep_until(self.step)
        logger.info("Resumed at step %d of %d.", self.step, self.num_steps)
