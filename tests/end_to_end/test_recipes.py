"""Each system's recipe on a small slice: its loss falls, it beats the most popular labels, its folder is the model."""

import json
from itertools import groupby

import numpy as np
import pytest

from helpers.synthetic import topics
from unidex.config.recipes import load
from unidex.model.model import Model
from unidex.topk import TopK
from unidex.verbs.score import score_topk
from unidex.verbs.train import train

# What makes a recipe of hours one of a second or two; everything else is the recipe's own.
SMALL = ["encoder.dim=32", "features.min_df=1", "train.batch_size=32"]
_CLUSTERS_FIRST = [
    "stages.surrogate.train.surrogate=12",
    "stages.surrogate.train.epochs=12",
    "stages.extreme.train.epochs=6",
]
SYSTEMS = {
    "dpr": ["train.epochs=6"],
    "simcse": ["train.epochs=6"],
    "graphsage": ["train.epochs=6"],
    "ance": ["train.epochs=6"],
    "ngame": ["stages.dual.train.epochs=8", "stages.classifier.train.epochs=3"],
    "siamesexml": ["stages.dual.train.batch_size=8", "stages.dual.train.epochs=20", "stages.classifier.train.epochs=3"],
    "astec": [*_CLUSTERS_FIRST, "stages.extreme.train.lr_classifier=0.03"],
    "cascadexml": ["train.epochs=8", "tree.levels=[3, 8]", "tree.beam=[2, 3]", "tree.search_beam=[3, 6]"],
    "decaf": _CLUSTERS_FIRST,
    "eclare": _CLUSTERS_FIRST,
    "inceptionxml-lf": [
        "encoder.dim=64",
        "encoder.max_length=8",
        "encoder.dropout=0.0",
        "encoder.layer_dropout=0.0",
        "heads.dropout=0.0",
        "train.epochs=12",
        "train.lr_classifier=0.02",
    ],
}


def popular(data):
    """P@1 of those who always say the most popular labels."""
    frequencies = data.label_frequencies()
    order = np.argsort(-frequencies, kind="stable")[:5]
    ids = np.tile(order, (len(data.test), 1))
    return score_topk(TopK(ids, np.tile(-np.arange(5.0, dtype=np.float32), (len(ids), 1))), data, data.test).metrics


@pytest.mark.parametrize("recipe", SYSTEMS)
def test_a_recipe_learns_beats_popularity_and_predicts_the_same_after_loading(recipe, tmp_path):
    data = topics()
    model = train(data, recipe, settings=[*SMALL, *SYSTEMS[recipe]], out=tmp_path / "model")
    loaded = Model.load(tmp_path / "model")
    records = [json.loads(line) for line in loaded.log.splitlines()]
    for phase, lines in groupby(records, key=lambda record: record["phase"]):
        losses = [record["loss"] for record in lines]
        # Clusters and mined labels make later epochs harder: the lowest loss counts.
        assert min(losses[1:]) < losses[0], phase
    found, chance = model.metrics["test"], popular(data)
    assert found["P@1"] > 3 * chance["P@1"]
    assert found["P@5"] > 1.5 * chance["P@5"]
    texts = list(data.test.texts)
    first, second = model.predict(texts, 5), loaded.predict(texts, 5)
    assert np.array_equal(first.ids, second.ids)
    assert np.array_equal(first.scores, second.scores)
    assert loaded.config == model.config


@pytest.mark.parametrize("recipe", SYSTEMS)
def test_a_recipe_reads_for_both_encoders(recipe):
    assert load(recipe).in_stages()
    if recipe not in ("graphsage", "siamesexml", "astec", "decaf", "eclare", "inceptionxml-lf"):
        paper = load(recipe, ["encoder.kind=transformer"])
        assert paper.train.lr_encoder < 1e-3
        assert paper != load(recipe)


def test_the_same_seed_gives_the_same_staged_model_and_another_seed_another():
    settings = [*SMALL, "stages.dual.train.epochs=3", "stages.classifier.train.epochs=2"]
    first, again, other = (train(topics(), "ngame", settings=settings, seed=seed) for seed in (1, 1, 2))
    texts = list(topics().test.texts)
    assert np.array_equal(first.predict(texts).scores, again.predict(texts).scores)
    assert not np.array_equal(first.predict(texts).scores, other.predict(texts).scores)


def test_clusters_are_learned_from_label_texts_too_where_gandalf_adds_them():
    data = topics()
    settings = [*SMALL, *SYSTEMS["astec"], "pool.start=0"]
    steps = {}
    for method in ("none", "gandalf"):
        model = train(data, "astec", settings=[*settings, f"augment.method={method}"])
        steps[method] = {name: part["steps"] for name, part in model.metrics["training"]["stages"].items()}
    # 24 label texts join 240 texts: nine batches of at most 32 instead of eight.
    assert steps["gandalf"]["surrogate"] * 8 == steps["none"]["surrogate"] * 9
    assert steps["gandalf"]["extreme"] * 8 == steps["none"]["extreme"] * 9
