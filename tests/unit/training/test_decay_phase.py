"""Training in phases: trials on a validation split, then all texts while learning rates decay."""

import hashlib
import json
import logging
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import sparse

from helpers.stopped_runs import stopped_at_batch
from helpers.synthetic import topics
from unidex.config.recipes import load
from unidex.data.dataset import Dataset, Split
from unidex.distributed import ALONE
from unidex.encoders.registry import build_encoder
from unidex.model.model import Model
from unidex.nn.assembly import build_network
from unidex.training.loop import Trainer
from unidex.training.optimisers import Optimisers
from unidex.training.training_set import Batching, TrainingSet
from unidex.training.validation import Validation
from unidex.verbs.train import train

# The recipe auto, with less of everything; batches so small that hard negatives change the pool.
# Rehearsals are looked at in test_calibration.py.
SMALL = ["encoder.dim=16", "features.min_df=1", "train.epochs=2", "train.batch_size=12", "train.simulate_decay_up_to=0"]
PLAIN = ["augment.method=none", "pool.try_hard_negatives=0"]
DATA = topics(num_train=120, num_test=0)


def hashes(folder, *names):
    """The hashes of the files that training decides: all but those that tell times, or of the named ones."""
    found = {str(file.relative_to(folder)): file for file in sorted(folder.rglob("*")) if file.is_file()}
    timed = {"metrics.json", "train.jsonl", "MODEL_CARD.md", "manifest.json"}
    chosen = names or [name for name in found if name not in timed and not name.startswith("tensorboard")]
    return {name: hashlib.sha256(found[name].read_bytes()).hexdigest() for name in chosen}


def phases(folder):
    """The last step of each phase, in the order they were made."""
    records = map(json.loads, (folder / "train.jsonl").read_text().splitlines())
    return {record["phase"]: record["step"] for record in records}


def trial_values(monkeypatch, better):
    """Let the validation split prefer a number of hard negatives, whatever it has seen."""
    choice = Validation.choice

    def preferring(self, network, epochs, config):
        found = choice(self, network, epochs, config)
        return replace(found, value=float(config.pool.hard_negatives == better))

    monkeypatch.setattr(Validation, "choice", preferring)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of three phases whose second trial is in vain."""
    out = tmp_path_factory.mktemp("models") / "whole"
    with pytest.MonkeyPatch.context() as patch:
        trial_values(patch, better=0)
        train(DATA, "auto", settings=[*SMALL, "augment.method=none", "train.checkpoint_every=5"], out=out)
    return out


def test_trials_of_different_settings_give_different_models(whole):
    """Else nothing below could tell one from the other."""
    records = [json.loads(line) for line in (whole / "train.jsonl").read_text().splitlines()]
    losses = {(record["phase"], record["epoch"]): record["loss"] for record in records if "loss" in record}
    assert losses["training", 1] == losses["training-hard", 1]
    assert losses["training", 2] != losses["training-hard", 2]


@pytest.mark.parametrize("phase", ["training", "training-hard", "decay"])
@pytest.mark.parametrize("tables", ["memory", "file"])
def test_a_run_stopped_in_any_phase_equals_an_unbroken_one(whole, phase, tables, monkeypatch, tmp_path):
    trial_values(monkeypatch, better=0)
    steps = phases(whole)
    assert list(steps) == ["training", "training-hard", "decay"]
    before = sum(steps[name] for name in list(steps)[: list(steps).index(phase)])
    settings = [*SMALL, "augment.method=none", "train.checkpoint_every=5", f"train.table_storage={tables}"]
    with stopped_at_batch(before + 7, monkeypatch):
        train(DATA, "auto", settings=settings, out=tmp_path / "broken")
    assert list((tmp_path / "broken.training" / phase).glob("checkpoint-8"))
    made, batches = Batching.batch, []

    def counted(self, texts, rng):
        batches.append(texts)
        return made(self, texts, rng)

    monkeypatch.setattr(Batching, "batch", counted)
    train(DATA, "auto", settings=settings, out=tmp_path / "broken", resume=True)
    # Nothing that was done is done again.
    assert len(batches) == sum(steps.values()) - before - 8
    assert phases(tmp_path / "broken") == steps
    found, wanted = hashes(tmp_path / "broken"), hashes(whole)
    assert {"encoder.safetensors", "index/vectors_int8.numbers", "config.toml", "labels.jsonl"} < wanted.keys()
    assert found.keys() == wanted.keys()
    differing = {name for name in wanted if found[name] != wanted[name]}
    assert differing == ({"config.toml"} if tables == "file" else set())


def with_a_label_of_held_out_texts():
    """Label 0 is that of the held-out texts alone: whatever is held out of these texts has it and another."""
    rows = np.arange(len(DATA.train))
    held_out = np.setdiff1d(rows, validation_of(DATA).rows)
    positives = DATA.train.positives.toarray()
    positives[:, 0] = np.isin(rows, held_out)
    positives[positives.sum(axis=1) == 0, 1] = 1
    return Dataset("held out", DATA.labels, Split.of(DATA.train.texts, sparse.csr_array(positives)))


def validation_of(data):
    config = load("auto", SMALL)
    encoder = build_encoder(config, data.train.texts, data.labels.texts)
    texts, labels = encoder.prepare(data.train.texts), encoder.prepare(data.labels.texts)
    return Validation.of(data, config.train.validation, 0, texts, labels, ALONE)


def test_held_out_texts_are_trained_on_in_the_end():
    data = with_a_label_of_held_out_texts()
    assert validation_of(data).forbidden.tolist() == [0]
    settings = [*SMALL, *PLAIN, "train.schedule=constant", "train.validate_every=9", "predict.precision=float32"]
    rows = {}
    for epochs, decay in ((1, 0), (2, 0), (1, 1)):
        changes = [f"train.epochs={epochs}", f"train.decay_epochs={decay}"]
        rows[epochs, decay] = train(data, "auto", settings=[*settings, *changes]).network.classifiers.weight
    # No pool of the first phase has the label, however long it is.
    assert torch.equal(rows[1, 0][0], rows[2, 0][0])
    assert not torch.equal(rows[1, 0][1], rows[2, 0][1])
    assert not torch.equal(rows[1, 0][0], rows[1, 1][0])


def test_learning_rates_are_constant_before_the_decay_phase_and_optimisers_continue(monkeypatch):
    factors, states = [], []
    factor_of, run = Optimisers._factor, Trainer.run

    def noted(self, step):
        factors.append(factor_of(self, step))
        return factors[-1]

    def run_noted(self, **how):
        states.append(self.optimisers.state()["rows.classifiers.sum"].clone())
        result = run(self, **how)
        states.append(self.optimisers.state()["rows.classifiers.sum"].clone())
        return result

    monkeypatch.setattr(Optimisers, "_factor", noted)
    monkeypatch.setattr(Trainer, "run", run_noted)
    train(DATA, "auto", settings=[*SMALL, *PLAIN, "train.warmup=0", "train.validation=0.0"])
    # 120 texts are 10 batches of 12, for 2 epochs and 2.
    assert factors == pytest.approx([1.0] * 20 + [1 - step / 20 for step in range(20)])
    started, ended, gone_on, over = states
    assert not started.any()
    assert torch.equal(gone_on, ended)
    assert (over > ended).all()


def test_without_a_validation_split_all_texts_are_trained_on_from_the_start():
    model = train(DATA, "auto", settings=[*SMALL, "train.validation=0.0", "train.epochs=2"])
    assert "choice" not in model.metrics
    assert model.metrics["training"]["epochs"] == 2
    assert model.config.predict.knn == 0
    # They count for nothing, but their texts are kept.
    assert model.scorer.knn.snippets[0] == DATA.train.texts[0]


# Trials.


@pytest.mark.parametrize("winner", [0, 2])
@pytest.mark.parametrize("decay_epochs", [0, 1])
def test_the_winning_trial_gives_the_model_it_gives_alone(winner, decay_epochs, monkeypatch, tmp_path, caplog):
    settings = [*SMALL, "augment.method=none", "train.validate_every=9", f"train.decay_epochs={decay_epochs}"]
    trial_values(monkeypatch, winner)
    with caplog.at_level(logging.INFO):
        tried = train(DATA, "auto", settings=settings, out=tmp_path / "tried")
    train(
        DATA,
        "auto",
        settings=[*settings, "pool.try_hard_negatives=0", f"pool.hard_negatives={winner}"],
        out=tmp_path / "alone",
    )
    assert list(phases(tmp_path / "tried")) == ["training", "training-hard", *["decay"] * decay_epochs]
    assert list(phases(tmp_path / "alone")) == ["training", *["decay"] * decay_epochs]
    names = ("encoder.safetensors", "index/vectors_int8.numbers", "labels.jsonl", "index/manifest.json")
    assert hashes(tmp_path / "tried", *names) == hashes(tmp_path / "alone", *names)
    found, wanted = (Model.load(tmp_path / name) for name in ("tried", "alone"))
    texts = list(DATA.train.texts)
    assert np.array_equal(found.predict(texts, 5).scores, wanted.predict(texts, 5).scores)
    assert found.config.predict == wanted.config.predict
    assert tried.metrics["choice"]["hard_negatives"] == found.config.pool.hard_negatives == winner
    said = [record.getMessage() for record in caplog.records if " mined hard negatives: held" in record.getMessage()]
    assert len(said) == 1
    assert said[0].startswith("The model trains without ") == (winner == 0)


def test_of_equal_trials_the_plain_one_wins_and_the_log_agrees(monkeypatch, caplog):
    trial_values(monkeypatch, better=None)
    with caplog.at_level(logging.INFO):
        model = train(DATA, "auto", settings=[*SMALL, "augment.method=none", "train.epochs=1"])
    assert "The model trains without mined hard negatives: " in caplog.text
    assert model.config.pool.hard_negatives == model.metrics["choice"]["hard_negatives"] == 0


# When to stop.


def scripted(values, *changes):
    """A trainer whose validations say these values, one an epoch; its result."""
    config = load("auto", [*SMALL, *PLAIN, "train.metric=P@1", "train.epochs=9", "train.patience=1", *changes])
    encoder = build_encoder(config, DATA.train.texts, DATA.labels.texts)
    network = build_network(config, encoder, DATA.num_labels)
    texts, labels = encoder.prepare(DATA.train.texts), encoder.prepare(DATA.labels.texts)
    said = iter(values)
    data = TrainingSet(texts, labels, DATA.train.positives, DATA.train.filter_pairs)
    return Trainer(network, data, config, validate=lambda _: {"P@1": next(said)}).run()


@pytest.mark.parametrize(
    ("min_gain", "patience", "epochs", "best_epoch"),
    [
        # A gain of a tenth of the best so far: 11 is none above 10, and the better weights are kept all the same.
        (0.1, 1, 2, 2),
        # 14 is one above 11; 14.5 and 14 are none above it.
        (0.1, 2, 5, 4),
        (0.0, 1, 5, 4),
        (0.5, 3, 4, 4),
        (0.1, 0, 9, 9),
    ],
)
def test_a_gain_too_small_to_count_stops_training(min_gain, patience, epochs, best_epoch):
    values = [10.0, 11.0, 14.0, 14.5, 14.0, 14.2, 14.3, 14.0, 15.0]
    result = scripted(values, f"train.min_gain={min_gain}", f"train.patience={patience}")
    assert (result["epochs"], result["best_epoch"]) == (epochs, best_epoch)
    assert result["best"] == {"P@1": values[best_epoch - 1]}
