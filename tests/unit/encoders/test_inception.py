"""The inception encoder: plain loops as its double, gradients by differences, words, training, saving, errors."""

import math

import numpy as np
import pytest
import torch
from scipy.special import erf

from helpers.gradients import step_gradients, training_set
from helpers.naive_features import settings_with
from helpers.stopped_runs import digest, train_stopped_and_resumed
from helpers.synthetic import topics
from unidex.config import Encoder as Settings
from unidex.config.recipes import load
from unidex.distributed import Processes
from unidex.encoders import inception as inception_module
from unidex.encoders.inception import InceptionEncoder
from unidex.encoders.registry import build_encoder
from unidex.errors import ConfigError, DataError
from unidex.features.extractor import FeatureExtractor
from unidex.features.word_rows import places_of_words, word_rows
from unidex.model.explanation import explain
from unidex.model.model import Model
from unidex.nn.assembly import build_network
from unidex.pools.pool import make_batch
from unidex.training.optimisers import Optimisers, lr_factor
from unidex.training.run import Run
from unidex.verbs.evaluate import evaluate
from unidex.verbs.train import train

WORDS = settings_with(min_df=1, parts=False, bigrams=False, num_buckets=4)
TEXTS = ["red shoe of leather", "", "blue hat", "the red hat of the blue shoe and more", "hat", "unknown things"]
# Small enough for a test; without dropout so few texts are learned in seconds.
SMALL = ["encoder.dim=64", "encoder.max_length=7", "features.min_df=1", "features.num_buckets=8", "train.batch_size=32"]
PLAIN = ["encoder.dropout=0.0", "encoder.layer_dropout=0.0", "heads.dropout=0.0"]


def encoder_of(dim=64, length=6, seed=0, **settings):
    """An encoder with nothing at its start: gammas that count, statistics and shifts of BatchNorm."""
    torch.manual_seed(seed)
    features = FeatureExtractor.fit(TEXTS[:5], [], WORDS)
    encoder = InceptionEncoder(features, Settings(kind="inception", dim=dim, max_length=length, **settings))
    with torch.no_grad():
        encoder.over_words.gamma.fill_(0.01)
        encoder.over_numbers.gamma.fill_(-0.02)
        for module in encoder.modules():
            if isinstance(module, torch.nn.BatchNorm1d):
                for values in (module.weight, module.bias, module.running_mean):
                    values.normal_(0, 0.5)
                module.running_var.uniform_(0.5, 2)
            elif isinstance(module, torch.nn.Conv1d | torch.nn.Linear) and module.bias is not None:
                module.bias.normal_(0, 0.1)
    return encoder


def numbers(tensor):
    return tensor.detach().double().numpy()


def gelu(x):
    return x * 0.5 * (1 + erf(x / math.sqrt(2)))


def slow_norm(x, norm):
    """BatchNorm as it is when nothing is learned; channels are the second axis."""
    shape = (1, -1) + (1,) * (x.ndim - 2)
    mean, variance, weight, bias = (
        numbers(values).reshape(shape) for values in (norm.running_mean, norm.running_var, norm.weight, norm.bias)
    )
    return (x - mean) / np.sqrt(variance + norm.eps) * weight + bias


def slow_convolution(x_CD, layer, stride, circling):
    """One output number at a time."""
    weight, bias = numbers(layer.weight), numbers(layer.bias)
    size, kernel = x_CD.shape[1], weight.shape[2]
    num_out = (size + 2 * circling - kernel) // stride + 1
    found = np.zeros((len(weight), num_out))
    for out in range(len(weight)):
        for place in range(num_out):
            total = bias[out]
            for step in range(kernel):
                at = place * stride - circling + step
                assert circling or 0 <= at < size
                total += x_CD[:, at % size] @ weight[out, :, step]
            found[out, place] = total
    return found


def slow_attention(x, y, attention):
    """gamma (x y^T)(W x) + x, with W divided by the singular value that its two vectors say."""
    norm = attention.mixing.parametrizations.weight
    weight = numbers(norm.original)
    scale = numbers(norm[0]._u) @ weight @ numbers(norm[0]._v)
    return numbers(attention.gamma) * ((x @ y.T) @ ((weight / scale) @ x)) + x


def slow(encoder, ids):
    """The vector of one text, by loops."""
    length, dim = encoder.settings.max_length, encoder.settings.dim
    x = np.zeros((length, dim))
    for place, word in enumerate(ids):
        x[place] = numbers(encoder.table.weight[word])
    h = slow_attention(x, x, encoder.over_words)
    h = slow_attention(h.T, x.T, encoder.over_numbers).T
    first = slow_norm(gelu(slow_convolution(h, encoder.first[0], 1, 0))[None], encoder.first[2])[0]
    beside = [
        slow_convolution(first, branch, 4, circling)
        for branch, circling in zip(encoder.branches, (0, 2, 6), strict=True)
    ]
    beside = slow_norm(gelu(np.concatenate(beside))[None], encoder.behind_branches[1])
    last = slow_norm(gelu(slow_convolution(beside[0], encoder.last[0], 4, 0))[None], encoder.last[2])
    flat = last.reshape(1, -1)
    linear = encoder.dense[1]
    dense = slow_norm(gelu(flat @ numbers(linear.weight).T + numbers(linear.bias)), encoder.dense[3])
    return (flat + dense)[0]


@pytest.mark.parametrize(("dim", "length"), [(64, 6), (68, 3), (100, 9)])
def test_the_encoder_equals_plain_loops(dim, length):
    encoder = encoder_of(dim, length)
    rows = encoder.prepare(TEXTS)
    found = encoder(rows)
    for place, ids in list(enumerate(rows.as_lists()))[:: 3 if dim == 64 else 5]:
        np.testing.assert_allclose(numbers(found[place]), slow(encoder, ids), rtol=1e-4, atol=1e-4)
    assert [len(row) for row in rows.as_lists()] == [min(length, size) for size in (4, 0, 2, 9, 1, 2)]


def test_sizes_follow_from_the_dimension():
    paper = Settings(kind="inception", dim=300)
    encoder = InceptionEncoder(FeatureExtractor.fit(TEXTS, [], WORDS), paper)
    assert encoder.dim == 480
    sizes = {"first.0": (32, 32, 1), "branches.0": (32, 32, 4), "branches.1": (32, 32, 8), "branches.2": (32, 32, 16)}
    sizes |= {"last.0": (32, 96, 16), "dense.1": (480, 480)}
    found = dict(encoder.named_parameters())
    assert {name: tuple(found[f"{name}.weight"].shape) for name in sizes} == sizes
    assert encoder.first(torch.zeros(2, 32, 300)).shape == (2, 32, 300)
    assert {branch(torch.zeros(2, 32, 300)).shape for branch in encoder.branches} == {(2, 32, 75)}
    for dim, out in ((64, 32), (76, 32), (80, 64), (256, 416)):
        encoder = encoder_of(dim)
        assert encoder.dim == out
        assert encoder(encoder.prepare(TEXTS)).shape == (len(TEXTS), out)


@pytest.mark.parametrize("dim", [32, 60, 130, 302])
def test_a_dimension_that_does_not_fit_is_refused_before_texts_are_read(dim):
    with pytest.raises(ConfigError, match=f"multiple of 4 and at least 64.*but is {dim}"):
        build_encoder(load("inceptionxml", [f"encoder.dim={dim}"]), [], [])


def test_attention_starts_as_if_it_were_absent():
    torch.manual_seed(0)
    encoder = InceptionEncoder(FeatureExtractor.fit(TEXTS, [], WORDS), Settings(kind="inception", dim=64))
    x = torch.randn(3, 32, 64)
    assert torch.equal(encoder.over_words(x, x), x)
    assert torch.equal(encoder.over_numbers(x.mT, x.mT).mT, x)
    largest = torch.linalg.svdvals(encoder.over_numbers.mixing.weight)[0]
    assert float(largest.detach()) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("training", [False, True])
def test_gradients_are_those_of_differences(training):
    encoder = encoder_of(64, 4).double().train(training)
    rows = encoder.prepare(TEXTS)
    encoder.table.weight = encoder.table.weight.double()
    aim = torch.randn(len(TEXTS), encoder.dim, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    touched = []

    def value(used=None):
        return (encoder(rows, used) * aim).sum()

    value(touched).backward()
    (one,) = touched
    whole = torch.zeros_like(encoder.table.weight).index_copy_(0, one.ids, one.rows.grad)
    pairs = [(encoder.table.weight, whole)] + [(p.data, p.grad) for p in encoder.parameters()]
    rng = np.random.default_rng(0)
    for weights, gradient in pairs:
        flat, step = weights.view(-1), 1e-5
        # The rows of words that no text has do not move.
        place = int(gradient.abs().argmax()) if weights is encoder.table.weight else int(rng.integers(len(flat)))
        before = float(flat[place])
        with torch.no_grad():
            flat[place] = before + step
            above = float(value().detach())
            flat[place] = before - step
            below = float(value().detach())
        flat[place] = before
        assert float(gradient.view(-1)[place]) == pytest.approx((above - below) / (2 * step), rel=1e-4, abs=1e-6)


def test_words_keep_their_order_and_only_the_first_are_read():
    encoder = encoder_of(length=3)
    name = encoder.features.name
    rows = encoder.prepare(["The red, red HAT and hat", "hat " * 5])
    assert [[name(word) for word in row] for row in rows.as_lists()] == [["the", "red", "red"], ["hat"] * 3]
    assert not torch.allclose(*encoder(encoder.prepare(["red hat", "hat red"])))


def test_unknown_words_share_rows_and_without_shared_rows_they_are_passed_over():
    features = FeatureExtractor.fit(TEXTS[:5], [], WORDS)
    ids = word_rows(features, ["red zebra hat"], 8).as_lists()[0]
    assert len(features.vocabulary) <= ids[1] < features.num_features
    alone = FeatureExtractor.fit(TEXTS[:5], [], settings_with(min_df=1, parts=False, bigrams=False))
    assert word_rows(alone, ["red zebra hat"], 2).as_lists() == word_rows(alone, ["red hat"], 2).as_lists()
    assert places_of_words(alone, "red zebra hat", 2) == [(0, 3), (10, 13)]


def test_many_texts_have_the_rows_of_single_ones(monkeypatch):
    features = FeatureExtractor.fit(TEXTS[:5], [], WORDS)
    monkeypatch.setattr("unidex.features.word_rows._TEXTS_AT_ONCE", 4)
    texts = [*TEXTS, "Å \ufb01ne hat", "e\u0301tude", "\ud800 red", "hat\u2028blue"] * 3
    many = word_rows(features, texts, 5)
    assert many.as_lists() == [word_rows(features, [text], 5).as_lists()[0] for text in texts]
    assert many.lengths.tolist() == [len(places_of_words(features, text, 5)) for text in texts]
    assert word_rows(features, [], 5).shape == (0, 5)
    with pytest.raises(DataError, match="put it in a list"):
        word_rows(features, "one text", 5)


def test_padding_is_zero_and_a_step_touches_the_rows_of_its_words_alone():
    encoder = encoder_of(length=5).train()
    touched = []
    encoder(encoder.prepare(["red hat", "hat", ""]), touched).square().sum().backward()
    (used,) = touched
    assert sorted(encoder.features.name(word) for word in used.ids.tolist()) == ["hat", "red"]
    assert used.rows.grad.abs().sum(dim=1).min() > 0
    rows = encoder.prepare(["hat", ""])
    embedded = encoder._embedded(rows, None)
    assert torch.equal(embedded[0, 0], encoder.table.weight[rows.tokens[0]])
    assert embedded[0, 1:].abs().sum() == embedded[1].abs().sum() == 0


def test_a_text_has_the_same_vector_in_any_company(monkeypatch):
    encoder = encoder_of(dropout=0.3, layer_dropout=0.3)
    rows = encoder.prepare(TEXTS)
    together = encoder(rows)
    monkeypatch.setattr(inception_module, "_TEXTS_AT_ONCE", 2)
    torch.testing.assert_close(encoder(rows), together, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(encoder(rows[[3]])[0], together[3], atol=1e-5, rtol=1e-5)
    assert encoder(rows[:0]).shape == (0, encoder.dim)


def test_batch_norm_learns_from_the_texts_of_a_step_but_not_from_one_alone():
    encoder = encoder_of().train()
    norm = encoder.dense[3]
    before = norm.running_mean.clone()
    alone = encoder(encoder.prepare(["red hat"]), [])
    assert torch.isfinite(alone).all()
    assert torch.equal(norm.running_mean, before)
    seen = []
    norm.register_forward_hook(lambda _, inputs, output: seen.extend([inputs[0], output]))
    encoder(encoder.prepare(TEXTS), [])
    into, out = seen
    torch.testing.assert_close(norm.running_mean, 0.9 * before + 0.1 * into.mean(dim=0))
    torch.testing.assert_close(out.mean(dim=0), norm.bias, atol=1e-5, rtol=0)
    encoder.eval()(encoder.prepare(TEXTS))
    torch.testing.assert_close(numbers(seen[3]), slow_norm(numbers(seen[2]), norm), atol=1e-5, rtol=0)


def setting(*changes, data=None):
    data = topics(num_train=60) if data is None else data
    config = load("inceptionxml", [*SMALL, *PLAIN, *changes])
    torch.manual_seed(0)
    encoder = build_encoder(config, data.train.texts, data.labels.texts)
    return data, config, build_network(config, encoder, data.num_labels)


@pytest.mark.parametrize("heads", [(True, False), (False, True), (True, True)])
def test_every_head_moves_every_layer(heads):
    dual, classifier = (str(on).lower() for on in heads)
    changes = [f"heads.dual={dual}", f"heads.classifier={classifier}", "pool.labels=picked", "loss.temperature=0.1"]
    data, config, network = setting(*changes, "loss.classifier=decoupled-softmax")
    # Gamma's own gradient is there from the start, that of what it scales is not.
    for attention in (network.encoder.over_words, network.encoder.over_numbers):
        attention.gamma.data.fill_(0.1)
    network.train()
    positives, filters = data.train.positives, data.train.filter_pairs
    options = {"num_positives": 2, "num_negatives": 0, "size": 15, "shortlist": None}
    batch = make_batch(positives, filters, np.arange(30), rng=np.random.default_rng(0), **options)
    _, found = step_gradients(network, training_set(data, network.encoder), config, batch)
    assert {name for name, _ in network.encoder.named_parameters()} == {
        name.removeprefix("encoder.") for name in found if name.startswith("encoder.")
    }
    assert "features" in found
    assert ("classifiers" in found) == heads[1]
    # What BatchNorm takes away again has no gradient: a number that all texts share.
    still = [name for name, gradient in found.items() if gradient.abs().max() == 0]
    assert still == []


def test_words_and_layers_have_learning_rates_of_their_own():
    _, config, network = setting("train.lr_encoder=0.5", "train.lr_heads=0.25", "train.lr_classifier=0.125")
    optimisers = Optimisers(network, config, 10)
    assert {group.lr for group in optimisers.dense._groups} == {0.25}
    assert optimisers._table_rates["features"] == 0.5


LEARNING = [*SMALL, *PLAIN, "train.lr_classifier=0.02", "train.epochs=6"]


@pytest.fixture(scope="module")
def data():
    return topics(num_train=480)


@pytest.fixture(scope="module")
def saved(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("inception") / "model"
    return train(data, "inceptionxml", settings=LEARNING, out=folder), folder


def popular(data):
    """P@1 of the label of most train texts, for every text."""
    return 100 * data.test.positives[:, [int(data.label_frequencies().argmax())]].mean()


def test_the_recipe_learns(data, saved):
    model, _ = saved
    assert model.metrics["test"]["P@1"] > max(80, 3 * popular(data))


def test_a_saved_model_predicts_the_same(data, saved):
    model, folder = saved
    again = Model.load(folder)
    texts = list(data.test.texts)
    before, after = model.predict(texts, 5), again.predict(texts, 5)
    assert np.array_equal(before.ids, after.ids)
    assert np.array_equal(before.scores, after.scores)
    assert again.predict([texts[7]], 3).ids[0].tolist() == before.ids[7, :3].tolist()
    state = again.network.state_dict()
    assert int(state["encoder.dense.3.num_batches_tracked"]) == model.metrics["training"]["steps"]


def test_an_explanation_names_the_words_of_the_label(data, saved):
    model, _ = saved
    row = next(row for row in range(60) if data.test.positives[[row]].nnz == 1)
    text = data.test.texts[row]
    label = int(data.test.positives[[row]].indices[0])
    reason = explain(model, text, labels=[label])[0]
    assert [token.token for token in reason.tokens] == text.split()
    carriers = {token.token for token in sorted(reason.tokens, key=lambda token: -token.score)[:2]}
    assert carriers & set(data.labels.texts[label].split())
    assert sum(token.score for token in reason.tokens) + reason.rest == pytest.approx(reason.score, abs=1e-4)


@pytest.mark.parametrize("text", ["", " ... ", "w0a"])
def test_short_texts_are_predicted_and_explained(saved, text):
    model, _ = saved
    assert model.predict([text], 3).ids.shape == (1, 3)
    reason = explain(model, text, k=1)[0]
    assert [token.token for token in reason.tokens] == text.strip(" .").split()
    assert math.isfinite(reason.rest)


def test_both_heads_learn_and_labels_can_be_added(data):
    changes = ["heads.dual=true", "pool.labels=picked", "loss.temperature=0.1", "loss.dual=decoupled-softmax"]
    changes += ["loss.classifier=decoupled-softmax", "loss.text_to_label=1.0", "heads.classifier_search_vectors=unit"]
    changes += ["heads.classifier_bias=none"]
    model = train(data, "inceptionxml", settings=[*LEARNING, *changes, "train.epochs=3"])
    for mode in ("both", "dual", "classifier"):
        assert evaluate(model, data, mode=mode).metrics["P@1"] > 3 * popular(data)
    model.add_labels(["w3d w9j"], ["new"])
    assert "new" in model.labels


DROPPING = [*SMALL, "train.epochs=3", "train.checkpoint_every=2"]


def test_the_same_seed_gives_the_same_model_also_when_it_was_stopped(tmp_path, monkeypatch):
    data = topics(num_train=90, num_test=5)
    for name, seed in (("one", 1), ("same", 1), ("other", 2)):
        train(data, "inceptionxml", settings=DROPPING, seed=seed, out=tmp_path / name)
    assert digest(tmp_path / "one") == digest(tmp_path / "same")
    assert digest(tmp_path / "one") != digest(tmp_path / "other")
    broken = tmp_path / "broken"
    train_stopped_and_resumed(
        data, "inceptionxml", settings=DROPPING, seed=1, out=broken, step=5, monkeypatch=monkeypatch
    )
    assert digest(broken) == digest(tmp_path / "one")


def test_an_encoder_can_be_initialised_from_a_model(data, saved):
    model, folder = saved
    config = load("inceptionxml", [*LEARNING, f'encoder.path="{folder}"'])
    encoder = build_encoder(config, [], [])
    rows = encoder.prepare(TEXTS)
    assert torch.equal(encoder(rows), model.network.encoder(rows))
    with pytest.raises(ConfigError, match="max_length must be that of the model"):
        build_encoder(load("inceptionxml", [*LEARNING, f'encoder.path="{folder}"', "encoder.max_length=9"]), [], [])


def test_words_can_be_initialised_from_given_vectors(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"red": 0, "blue": 1, "hat": 2, "?": 3}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    vectors = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    np.save(tmp_path / "vectors.npy", vectors)
    changes = ["encoder.dim=64", "features.min_df=1", "features.num_buckets=0", f'encoder.path="{tmp_path}"']
    encoder = build_encoder(load("inceptionxml", changes), ["red hat", "blue shoe"], [])
    centred = vectors - vectors.mean(axis=0)
    row = numbers(encoder.table.weight[encoder.prepare(["blue"]).tokens[0]])
    np.testing.assert_allclose(row / np.linalg.norm(row), centred[1] / np.linalg.norm(centred[1]), atol=1e-5)


@pytest.mark.parametrize("unfit", [["train.chunk=8"], ["heads.dual=true", "heads.shared_encoder=false"]])
def test_settings_that_batch_norm_excludes_are_refused(unfit):
    said = "must see all texts of a step at once" if "chunk" in unfit[0] else "encoder.kind = 'inception'"
    with pytest.raises(ConfigError, match=said):
        train(topics(num_train=40), "inceptionxml", settings=[*SMALL, *unfit])


def test_several_processes_are_refused():
    with pytest.raises(ConfigError, match="all texts of a step at once, but this run has 2 processes"):
        Run(
            topics(num_train=40),
            load("inceptionxml", SMALL),
            seed=0,
            device=torch.device("cpu"),
            folder=None,
            processes=Processes(0, 2),
        )


@pytest.mark.parametrize(("num_steps", "warmup"), [(100, 0.33), (45, 0.3), (7, 0.5)])
def test_one_cycle_is_that_of_torch(num_steps, warmup):
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimiser = torch.optim.SGD([parameter], lr=1.0, momentum=0.9)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, max_lr=1.0, total_steps=num_steps, pct_start=warmup, div_factor=10, final_div_factor=1e4
    )
    expected = []
    for _ in range(num_steps):
        expected.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        if len(expected) < num_steps:
            schedule.step()
    found = [lr_factor(step, num_steps, schedule="one-cycle", warmup=warmup) for step in range(num_steps)]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(("num_steps", "warmup"), [(1, 0.3), (3, 0.9), (5, 0.0), (5, 1.0)])
def test_one_cycle_of_few_steps_stays_within_bounds(num_steps, warmup):
    factors = [lr_factor(step, num_steps, schedule="one-cycle", warmup=warmup) for step in range(num_steps)]
    assert all(0 < factor <= 1 for factor in factors)
    assert max(factors) > 0.5
