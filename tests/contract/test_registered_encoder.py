"""An encoder from outside the package: one file that registers it is enough to train, save, load and predict."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from helpers.synthetic import QUICK, topics
from unidex import Model, evaluate, train
from unidex.config import recipes
from unidex.config.capabilities import EncoderCapabilities
from unidex.encoders import registry
from unidex.errors import ConfigError, ModelError
from unidex.model.explanation import explain
from unidex.nn.initialisation import orthogonal_linear

SETTINGS = [*QUICK, "encoder.kind=letters", "train.lr_heads=0.02"]


class LettersEncoder(nn.Module):
    """Hashed counts of three letters in a row, times a learned matrix."""

    BUCKETS = 512

    def __init__(self, dim):
        super().__init__()
        self.dim = dim
        self.linear = orthogonal_linear(self.BUCKETS, dim)

    @classmethod
    def build(cls, config, texts, label_texts):
        return cls(config.encoder.dim)

    @classmethod
    def load(cls, config, folder):
        assert json.loads((folder / "letters.json").read_text()) == {"buckets": cls.BUCKETS}
        return cls(config.encoder.dim)

    def save(self, folder):
        (folder / "letters.json").write_text(json.dumps({"buckets": self.BUCKETS}))

    def prepare(self, texts):
        counts = np.zeros((len(texts), self.BUCKETS), dtype=np.float32)
        for row, text in enumerate(texts):
            for start in range(len(text) - 2):
                counts[row, sum(ord(letter) * 31**at for at, letter in enumerate(text[start : start + 3])) % 512] += 1
        return counts / np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1)

    def stack(self, parts):
        return np.concatenate(parts)

    def forward(self, prepared, touched=None, rng=None):
        return self.linear(torch.from_numpy(np.ascontiguousarray(prepared)).to(self.linear.weight.device))


@pytest.fixture(scope="module", autouse=True)
def _registered():
    registry.register(
        registry.RegisteredEncoder("letters", build=LettersEncoder.build, load=LettersEncoder.load, must_match=("dim",))
    )
    yield
    registry.unregister("letters")
    with pytest.raises(ConfigError, match=r"encoder.kind: Input should be 'bag', 'inception' or 'transformer'"):
        recipes.load("unidec", ["encoder.kind=letters"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("models") / "letters"
    train(topics(), "unidec", settings=SETTINGS, out=out)
    return out


def test_both_heads_learn_with_it(folder):
    model, data = Model.load(folder), topics()
    for mode in ("dual", "classifier", "both"):
        assert evaluate(model, data, mode=mode).metrics["P@1"] > 75


def test_a_saved_model_predicts_the_same_when_loaded(folder, tmp_path):
    texts = list(topics().test.texts)
    model = Model.load(folder)
    model.save(tmp_path / "again")
    before, after = model.predict(texts, 5), Model.load(tmp_path / "again").predict(texts, 5)
    assert np.array_equal(before.ids, after.ids)
    assert np.array_equal(before.scores, after.scores)


def test_another_model_can_take_over_its_weights(folder):
    data = topics()
    config = recipes.load("unidec", [*SETTINGS, f"encoder.path={folder}"])
    taken = registry.build_encoder(config, data.train.texts, data.labels.texts)
    assert torch.equal(taken.linear.weight, Model.load(folder).network.encoder.linear.weight)
    config = recipes.load("unidec", [*SETTINGS, f"encoder.path={folder}", "encoder.dim=16"])
    with pytest.raises(ConfigError, match=r"encoder.dim must be that of the model whose encoder is taken, 32"):
        registry.build_encoder(config, data.train.texts, data.labels.texts)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["heads.shared_encoder=false"], "encoder.kind = 'letters'"),
        (["heads.classifier_parts=['free','text']"], "encoder.kind = 'letters', .* word vectors"),
    ],
)
def test_a_capability_that_it_does_not_have_is_refused_before_training(changes, message):
    assert registry.get("letters").can == EncoderCapabilities()
    with pytest.raises(ConfigError, match=message):
        train(topics(), "unidec", settings=[*SETTINGS, *changes])


def test_an_explanation_that_it_cannot_give_is_refused(folder):
    with pytest.raises(ModelError, match="LettersEncoder"):
        explain(Model.load(folder), "w0a w1b", k=2)


def test_a_recipe_may_have_settings_for_it(tmp_path):
    (tmp_path / "mine.toml").write_text(
        '[encoder]\nkind = "letters"\n\n[train]\nepochs = 9\n\n[letters.train]\nepochs = 4\n'
    )
    assert recipes.load(tmp_path / "mine.toml").train.epochs == 4
    assert recipes.load(tmp_path / "mine.toml", ["encoder.kind=bag"]).train.epochs == 9


def test_a_name_can_be_registered_once():
    with pytest.raises(ValueError, match="'letters' is registered already"):
        registry.register(registry.get("letters"))
