"""Recipes: each is short, cites its work, reads back, and names what is wrong in it."""

import re
import tomllib
from importlib import resources

import pytest

from unidex.config import settings_with_meaning
from unidex.config.recipes import load, recipe_names
from unidex.errors import ConfigError


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


def test_a_recipe_has_the_settings_of_its_base_under_its_own(tmp_path):
    static, auto = load("static"), load("auto")
    assert (static.train, static.heads) == (auto.train, auto.heads)
    assert (static.predict.rank, static.predict.precision, auto.predict.precision) == ("learned", "float32", "int5")
    assert (static.features.words, static.features.subwords, static.features.min_df) == (False, True, 2)
    (tmp_path / "mine.toml").write_text('base = "static"\n[features]\nmin_df = 5\n')
    mine = load(tmp_path / "mine.toml")
    assert (mine.features.min_df, mine.features.words, mine.train) == (5, False, auto.train)
    (tmp_path / "mine.toml").write_text('base = "nothing"\n')
    with pytest.raises(ConfigError, match=r"mine.toml: base must be one of .*, but is 'nothing'"):
        load(tmp_path / "mine.toml")


def test_words_can_only_be_left_out_for_subwords_alone():
    with pytest.raises(ConfigError, match="without words there must be subwords alone, but parts, bigrams are on"):
        load("unidec", ["features.words=false", "features.subwords=true"])
    with pytest.raises(ConfigError, match="subwords alone, but subwords are off"):
        load("unidec", ["features.words=false", "features.parts=false", "features.bigrams=false"])


@pytest.mark.parametrize("recipe", sorted(set(recipe_names()) - {"auto", "static"}))
def test_a_recipe_is_short_and_cites_its_work(recipe):
    text = (resources.files("unidex") / "recipes" / f"{recipe}.toml").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 40
    # Who, and the number of the preprint or the venue and its year.
    assert re.search(r"\(.+ et al\., .*(arXiv \d{4}\.\d{5}|[A-Z][A-Za-z]+ 20\d\d)\)$", tomllib.loads(text)["about"])


def test_ngame_has_the_settings_of_its_paper():
    dual, classifier = load("ngame", ["encoder.kind=transformer"]).in_stages().values()
    assert (dual.train.epochs, dual.train.batch_size, dual.train.lr_encoder) == (300, 1600, 2e-4)
    assert dual.pool.cluster_growth == [10, 20, 25, 50, 75, 100, 125, 150, 200]
    assert (dual.loss.margin, dual.loss.hardest_negatives, dual.loss.sampled_positives) == (0.3, 10, 1)
    assert classifier.train.freeze_encoder
    assert (classifier.loss.margin, classifier.loss.hardest_positives, classifier.loss.hardest_negatives) == (0.2, 3, 5)
    assert (dual.loss.triplet_temperature, classifier.loss.triplet_temperature) == (0.1, 1.0)
    assert classifier.pool.cluster_growth == [10, 15, 20, 25, 30, 35, 40]
    assert (classifier.pool.batches, classifier.pool.hard_negatives, classifier.pool.fill) == ("clustered", 0, True)
    assert (classifier.heads.dropout, classifier.train.epochs, classifier.train.batch_size) == (0.5, 100, 2048)


def test_siamesexml_has_the_constants_of_its_paper():
    dual, classifier = load("siamesexml").in_stages().values()
    assert (dual.loss.contrastive_c, dual.loss.contrastive_d, dual.train.batch_size) == (0.9, 1.5, 4095)
    assert (classifier.loss.contrastive_c, classifier.loss.contrastive_d) == (0.75, 3.0)
    # Terms are scaled by 1/d = 1/3 before those below 0.05 are dropped.
    assert (classifier.loss.contrastive_min, classifier.pool.shortlist) == (0.15, 500)
    assert (dual.loss.hardest_negatives, dual.encoder.layer_dropout, classifier.train.batch_size) == (1, 0.0, 253)
    # The residual layer is the identity in the first stage and learns in the second, on fixed words.
    assert (dual.train.lr_heads, classifier.train.lr_encoder, classifier.train.freeze_encoder) == (0.0, 0.0, False)
    assert classifier.heads.classifier_init == "label-graph"


@pytest.mark.parametrize("recipe", ["astec", "siamesexml"])
def test_classifiers_are_trained_on_each_texts_own_shortlist(recipe):
    first, last = load(recipe).in_stages().values()
    assert (last.pool.candidates, last.pool.hard_negatives, last.pool.shortlist) == ("own", 500, 500)
    assert (first.pool.candidates, first.pool.hard_negatives) == ("pool", 0)


def test_unidec_is_the_headline_model_and_depsl_is_one_way():
    unidec = load("unidec", ["encoder.kind=transformer"])
    assert (unidec.loss.dual, unidec.loss.classifier, unidec.loss.classifier_bce) == (*["decoupled-softmax"] * 2, 1.0)
    assert (2 * unidec.heads.dim, unidec.train.batch_size, unidec.pool.size) == (768, 576, 3000)
    assert "distilbert" in unidec.encoder.path
    assert load("unidec").loss.classifier_bce == 0
    assert load("depsl").loss.text_to_label == 1.0
    assert load("depsl", ["encoder.kind=transformer"]).heads.dim == 512


def test_dexml_on_mined_negatives_has_one_drawn_positive_and_the_best_hundred():
    mined = load("dexml-mined", ["encoder.kind=transformer"])
    assert (mined.loss.dual, mined.pool.positives, mined.pool.fill, mined.pool.shortlist) == (
        "one-positive",
        1,
        False,
        100,
    )


def test_weight_decay_reaches_classifiers_where_the_authors_have_it():
    decays = {name: load(name, ["encoder.kind=transformer"]).train for name in ("renee", "cascadexml", "unidec")}
    assert {name: train.classifier_decay for name, train in decays.items()} == {
        "renee": 1e-4,
        "cascadexml": 0.005,
        "unidec": 0.05,
    }


def test_every_setting_has_a_meaning():
    assert all(meaning for _, _, meaning in settings_with_meaning())
