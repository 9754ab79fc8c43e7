"""Settings for every encoder in every recipe, and sizes that fit the number of train texts."""

import pytest

from unidex.config.recipes import load, recipe_names
from unidex.errors import ConfigError
from unidex.training.sizes import batch_size_for, fit_sizes, pretrained_batch_size_for

TRANSFORMER = ["encoder.kind=transformer", "encoder.path=minilm"]


@pytest.mark.parametrize("recipe", recipe_names())
def test_no_recipe_ruins_a_transformer_or_leaves_a_bag_at_its_random_vectors(recipe):
    try:
        stages = load(recipe, TRANSFORMER).in_stages()
    except ConfigError as error:
        # Classifiers made of words need word vectors.
        assert "word vectors" in str(error) or "tree.layers" in str(error)  # noqa: PT017
        return
    for name, config in stages.items():
        assert config.train.lr_encoder <= 3e-4, name
        assert config.train.lr_heads <= 1e-3, name
        assert config.train.fit_to_texts == ["batch_size", "pool_size", "epochs", "patience"], name
    for name, config in load(recipe, ["encoder.kind=bag"]).in_stages().items():
        learns = config.train.lr_encoder > 0 and not config.train.freeze_encoder
        assert not learns or config.train.lr_encoder >= 0.01, name


def test_settings_of_another_encoder_hold_in_stages_and_rates_of_0_stay():
    first, last = load("astec", TRANSFORMER).in_stages().values()
    assert (first.train.lr_encoder, last.train.lr_encoder) == (1e-4, 0.0)
    assert first.train.lr_classifier == last.train.lr_classifier == 1e-3
    assert load("auto", ["encoder.kind=inception"]).heads.shared_encoder
    assert (
        load("astec", [*TRANSFORMER, "stages.surrogate.train.lr_encoder=0.5"]).in_stages()["surrogate"].train.lr_encoder
        == 0.5
    )


def test_few_texts_have_small_batches_and_many_have_those_of_the_paper():
    paper = load("unidec", TRANSFORMER)
    few, some, many = (fit_sizes(paper, num_texts, tell=False) for num_texts in (1000, 30_000, 200_000))
    assert (few.train.batch_size, few.pool.size, few.train.epochs) == (64, 256, 20)
    assert (some.train.batch_size, some.pool.size, some.train.epochs) == (256, 1024, 60)
    assert many == paper
    assert fit_sizes(load("unidec"), 1000, tell=False) == load("unidec")
    # All labels are encoded in each step: no smaller batches.
    everything = load("dexml", TRANSFORMER)
    assert fit_sizes(everything, 1000, tell=False) == everything


def test_a_size_that_the_user_names_is_kept():
    given = load("unidec", [*TRANSFORMER, "train.batch_size=500", "pool.size=700"])
    fitted = fit_sizes(given, 1000, tell=False)
    assert (fitted.train.batch_size, fitted.pool.size, fitted.train.epochs) == (500, 700, 20)
    staged = load("ngame", [*TRANSFORMER, "stages.dual.train.epochs=33"]).in_stages()
    assert fit_sizes(staged["dual"], 1000, tell=False).train.epochs == 33
    assert fit_sizes(staged["classifier"], 1000, tell=False).train.epochs == 20
    wanted = load("unidec", [*TRANSFORMER, "train.batch_size=500", 'train.fit_to_texts=["batch_size"]'])
    assert fit_sizes(wanted, 1000, tell=False).train.batch_size == 64


def test_few_held_out_texts_need_patience():
    auto = load("auto", TRANSFORMER)
    assert auto.train.patience == 1
    assert fit_sizes(auto, 1000, tell=False).train.patience == 3
    assert fit_sizes(auto, 10_000, tell=False).train.patience == 1


def test_sizes_grow_with_the_texts():
    for size_for, bounds in ((batch_size_for, (128, 1024)), (pretrained_batch_size_for, (16, 512))):
        sizes = [size_for(num_texts) for num_texts in range(0, 300_000, 997)]
        assert sizes == sorted(sizes)
        assert (sizes[0], sizes[-1]) == bounds
