"""Small trained models that the tests of exports share."""

import pytest

from helpers.synthetic import QUICK, topics
from helpers.tiny_transformer import TEXTS, write_tiny
from unidex.model.model import Model
from unidex.verbs.train import train


@pytest.fixture(scope="session")
def data():
    """Texts of 24 labels."""
    return topics()


@pytest.fixture(scope="session")
def auto_folder(tmp_path_factory, data):
    """A model of words with both heads, a label prior, a kNN part and a ranker; one label is removed."""
    out = tmp_path_factory.mktemp("models") / "auto"
    settings = [*QUICK, "predict.choose_label_prior=false", "predict.label_prior=0.02", "train.epochs=2"]
    model = train(data, "auto", settings=settings)
    model.remove_labels(["L3"])
    model.save(out)
    return out


@pytest.fixture(scope="session")
def auto_model(auto_folder):
    return Model.load(auto_folder)


@pytest.fixture(scope="session")
def static_model(data):
    """A model of subword tokens, with both heads."""
    return train(data, "static", settings=[*QUICK, "train.epochs=2"])


@pytest.fixture(scope="session")
def layered_model(data):
    """A bag of subword tokens with every layer that one can have: residual, projections, biases."""
    subwords = [f"features.{name}=false" for name in ("words", "parts", "bigrams", "chars", "sublinear_tf")]
    settings = [*QUICK, *subwords, "features.subwords=true", "heads.dim=24"]
    settings += ["encoder.residual=true", "heads.projection=true", "heads.classifier_bias=log-odds"]
    return train(data, "unidec", settings=[*settings, "train.epochs=1", "predict.label_prior=0.1"])


@pytest.fixture(scope="session")
def transformer_model(tmp_path_factory):
    """A model with a tiny transformer, a projection in both heads and a label prior."""
    tiny = write_tiny(tmp_path_factory.mktemp("tiny"))
    pairs = [(text or "the hat", ["shoe" if "shoe" in text else "hat"]) for text in TEXTS * 4]
    settings = ["encoder.kind=transformer", f"encoder.path={tiny}", "encoder.max_length=12", "heads.dim=6"]
    return train(pairs, "unidec", settings=[*settings, "train.epochs=1", "predict.label_prior=0.1"], test_fraction=0.2)
