"""Runs that are stopped and go on: the command of one, one that stops in a step, and what must be equal then."""

import hashlib
import os
import signal
import subprocess
from contextlib import contextmanager

import pytest

from helpers import warm_start
from helpers.waits import PATIENCE, wait_until
from unidex.training.loop import Trainer
from unidex.training.optimisers import Optimisers
from unidex.training.stop_signals import TrainingStoppedError
from unidex.training.training_set import Batching
from unidex.verbs.train import train


def digest(folder):
    """One hash of everything in a model folder that training decides (times are not)."""
    files = [folder / name for name in ("encoder.safetensors", "labels.jsonl", "config.toml")]
    files += sorted((folder / "index").glob("vectors*"))
    assert len(files) > 3, "an index has the vectors of labels"
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def train_command(data, out, recipe, settings, *more):
    """The arguments of ``unidex`` for a run."""
    chosen = [word for setting in settings for word in ("--set", setting)]
    return list(map(str, ["train", data, "--out", out, "--recipe", recipe, *chosen, *more]))


def kill_at_checkpoint(command, checkpoints, *, with_signal=signal.SIGKILL):
    """Start a command, send it a signal as soon as there is a checkpoint in this folder, and give its exit code."""
    process = warm_start.start(*command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    wait_until(lambda: list(checkpoints.glob("checkpoint-*")) or process.poll() is not None, pause=0.002)
    process.send_signal(with_signal)
    process.communicate(timeout=PATIENCE)
    assert process.returncode != 0, "the run was over before the signal came: make it longer"
    return process.returncode


def train_stopped_and_resumed(data, recipe, *, settings, seed, out, step, monkeypatch):
    """A model folder of a run that was stopped in this step, behind its last checkpoint, and then resumed."""
    real = Optimisers.step

    def stopping(self, touched, now):
        real(self, touched, now)
        if now == step:
            raise TrainingStoppedError("here")

    with monkeypatch.context() as patched:
        patched.setattr(Optimisers, "step", stopping)
        with pytest.raises(TrainingStoppedError):
            train(data, recipe, settings=settings, seed=seed, out=out)
    return train(data, recipe, settings=settings, seed=seed, out=out, resume=True)


@contextmanager
def stopped_at_batch(number, monkeypatch):
    """A training in here gets a signal when it makes this batch, counted from 0 over all phases, and stops."""
    made, left = Batching.batch, iter(range(number, -1, -1))

    def batch(self, texts, rng):
        if next(left) == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        return made(self, texts, rng)

    with monkeypatch.context() as patch:
        patch.setattr(Batching, "batch", batch)
        with pytest.raises(TrainingStoppedError, match="stopped by a signal at step"):
            yield


@contextmanager
def stopped_in_phase(phase, number, monkeypatch):
    """A training in here gets a signal in this step of a phase, counted from 1, and stops behind the step."""
    step, left = Trainer._step, iter(range(number - 1, -1, -1))

    def stopping(self, rows, now):
        if self.folder.name == phase and next(left) == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        return step(self, rows, now)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", stopping)
        with pytest.raises(
            TrainingStoppedError, match=rf"stopped by a signal at step {number} of .*; continue it with"
        ):
            yield
