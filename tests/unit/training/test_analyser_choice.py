"""The choice of an analyser: what pays on held-out texts, and when nothing is tried."""

import logging

import numpy as np
import pytest
from scipy import sparse

from unidex.config.recipes import load
from unidex.data.dataset import Dataset, Labels, Split
from unidex.data.texts import Texts
from unidex.training import analyser_choice
from unidex.training.analyser_choice import choose_analyser
from unidex.training.phases import with_metric

# Finnish nouns whose forms share few letters, so that their stems tell more than their n-grams.
NOUNS = [
    ("talo", "talossa", "talosta", "talolla"),
    ("auto", "autossa", "autosta", "autolla"),
    ("pallo", "pallossa", "pallosta", "pallolla"),
    ("sauna", "saunassa", "saunasta", "saunalla"),
]


def finnish(num_texts=240, language="fi"):
    """A text has one form of its noun; a label is another form."""
    rng = np.random.default_rng(0)
    common = {"fi": "ja on se että mutta", "en": "the of and is for"}[language].split()
    texts, rows = [], []
    for _ in range(num_texts):
        noun = int(rng.integers(len(NOUNS)))
        rows.append(noun)
        texts.append(" ".join([*rng.choice(common, 3), NOUNS[noun][int(rng.integers(1, 4))]]))
    positives = sparse.csr_array(np.eye(len(NOUNS), dtype=np.float32)[rows])
    labels = Labels(Texts.of([f"{forms[0]}t" for forms in NOUNS]))
    empty = Split.of(Texts.of([]), sparse.csr_array((0, len(NOUNS)), dtype=np.float32))
    return Dataset("finnish", labels, Split.of(Texts.of(texts), positives), empty)


def recipe(*settings):
    return with_metric(load("auto", [*settings]))


def chosen(data, *settings, seed=0):
    found = choose_analyser(data, recipe(*settings), seed).features
    return found.language, found.analyser, found.compounds


AS_WRITTEN = ("", "stems", False)


def test_what_pays_on_held_out_texts_is_chosen(monkeypatch, caplog):
    data = finnish()
    values = {("", False): 100.0, ("auto", False): 101.9, ("auto", True): 90.0}

    def value(dataset, config, changes, train, held_out):
        assert len(train) + len(held_out) == 240
        return values[changes["language"], changes.get("compounds", False)]

    monkeypatch.setattr(analyser_choice, "_value", value)
    assert chosen(data) == AS_WRITTEN
    values["auto", False] = 102.1
    with caplog.at_level(logging.INFO, "unidex"):
        assert chosen(data) == ("auto", "stems", False)
    assert "Texts are in fi. The model reads stems" in caplog.text
    values["auto", True] = 110.0
    assert chosen(data) == ("auto", "stems", True)


def test_stems_score_higher_where_forms_differ():
    data = finnish()
    rows = np.arange(len(data.train))
    splits = data.train.take(rows[:3]), data.train.take(rows[3:])
    config = recipe()
    written, stems = (
        analyser_choice._value(data, config, changes, *splits)
        for changes in (analyser_choice._AS_WRITTEN, {"language": "auto", "analyser": "stems"})
    )
    assert stems > written


@pytest.mark.parametrize(
    ("data", "settings"),
    [
        (finnish(language="en"), ()),
        (finnish(), ("train.validation=0",)),
        (finnish(num_texts=60), ("train.validation=0.1",)),
    ],
)
def test_nothing_is_tried_without_need_or_without_held_out_texts(monkeypatch, data, settings):
    monkeypatch.setattr(analyser_choice, "_value", None)
    assert chosen(data, *settings) == AS_WRITTEN


def test_a_named_analyser_stays(monkeypatch):
    monkeypatch.setattr(analyser_choice, "_value", None)
    assert chosen(finnish(), "features.analyser=lemmas", "features.language=fi") == ("fi", "lemmas", False)
    assert chosen(finnish(), "features.analyser=stems", "features.compounds=true") == ("auto", "stems", True)
