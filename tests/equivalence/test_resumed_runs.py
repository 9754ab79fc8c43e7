"""A run that was killed and resumed gives the model of an unbroken one, bit for bit."""

import json
import signal

import pytest

from helpers.command import run
from helpers.stopped_runs import digest, kill_at_checkpoint, train_command
from helpers.synthetic import QUICK, topics
from unidex.data import formats
from unidex.errors import UnidexError
from unidex.verbs.train import train


def command(data, out, *more):
    return train_command(data, out, "unidec", [*QUICK, "train.epochs=12", "train.checkpoint_every=3"], *more)


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "topics"
    formats.write(topics(), folder, "xc-raw")
    return folder


@pytest.fixture(scope="module")
def unbroken(on_disk, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "unbroken"
    assert run(*command(on_disk, folder)).returncode == 0
    return folder


@pytest.mark.parametrize("with_signal", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_run_resumes_to_the_same_model(on_disk, unbroken, tmp_path, with_signal):
    broken, work = tmp_path / "broken", tmp_path / "broken.training"
    code = kill_at_checkpoint(command(on_disk, broken), work / "training", with_signal=with_signal)
    assert code == (130 if with_signal == signal.SIGTERM else -signal.SIGKILL)
    assert not broken.exists()
    # Other settings are refused, and a new run does not delete the checkpoint.
    with pytest.raises(UnidexError, match="settings and the seed it started with"):
        train(on_disk, "unidec", out=broken, settings=QUICK, resume=True)
    with pytest.raises(UnidexError, match="continue it with --resume, or delete the folder"):
        train(on_disk, "unidec", out=broken, settings=QUICK)
    done = run(*command(on_disk, broken, "--resume"))
    assert done.returncode == 0, done.stderr
    assert "Resumed at step" in done.stderr
    assert digest(broken) == digest(unbroken)
    assert not work.exists()
    steps = [json.loads(line)["step"] for line in (broken / "train.jsonl").read_text().splitlines()]
    assert steps == sorted(set(steps))


def test_resuming_a_finished_run_gives_its_model(tmp_path):
    first = train(topics(), "unidec", out=tmp_path / "model", settings=QUICK)
    again = train(topics(), "unidec", out=tmp_path / "model", settings=QUICK, resume=True)
    assert again.metrics == first.metrics
    assert again.metrics["training"]["steps"] > 0
