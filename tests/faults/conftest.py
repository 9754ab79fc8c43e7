"""A model with every part that a folder can have, for the tests of faults."""

import pytest

from helpers.synthetic import QUICK, topics
from unidex.verbs.train import train

EVERY_PART = [
    *QUICK,
    "encoder.dim=16",
    "train.epochs=2",
    "train.validation=0.3",
    "predict.snippet_length=20",
    "predict.rank=learned",
]


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    """With a ranker, a lexical part, a kNN part, snippets and probabilities."""
    folder = tmp_path_factory.mktemp("faults") / "model"
    train(topics(num_train=300), "unidec", settings=EVERY_PART, out=folder)
    parts = {path.name for path in folder.iterdir()}
    assert parts >= {"ranker.json", "calibration.json", "lexical", "neighbours", "index", "train_texts.numbers"}
    return folder
