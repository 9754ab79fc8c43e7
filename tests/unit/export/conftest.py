"""Small trained models that the tests of exports share."""

import pytest

from helpers.synthetic import QUICK, topics
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
