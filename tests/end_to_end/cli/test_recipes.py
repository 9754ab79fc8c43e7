"""Recipes from the command line: listed, printed with meanings, and read back."""

import json

from helpers.command import run
from unidex.config.recipes import load, recipe_names


def test_every_recipe_says_what_it_is_and_names_its_work():
    dexml = {"dexml", "dexml-top5", "dexml-top100", "dexml-mined"}
    others = {
        "ance",
        "astec",
        "decaf",
        "dpr",
        "eclare",
        "cascadexml",
        "inceptionxml",
        "inceptionxml-lf",
        "ngame",
        "siamesexml",
        "graphsage",
        "simcse",
        "static",
    }
    assert set(recipe_names()) == {"auto", "depsl", "unidec", "renee", *dexml, *others}
    listed = json.loads(run("recipes", "--json").stdout)
    assert set(listed) == set(recipe_names())
    assert all("2405.03714" in listed[name] for name in ("depsl", "unidec"))
    assert all("2310.10636" in listed[name] for name in dexml)
    assert "2109.07319" in listed["inceptionxml"]


def test_config_prints_toml_that_train_can_read(tmp_path):
    printed = run("config", "unidec", "--set", "train.epochs=3").stdout
    assert "epochs = 3  # passes over the texts" in printed
    (tmp_path / "mine.toml").write_text(printed)
    assert load(tmp_path / "mine.toml") == load("unidec", ["train.epochs=3"])
    assert json.loads(run("config", "auto", "--json").stdout)["predict"]["choose_fusion"] is True


def test_a_wrong_setting_is_one_line_and_exit_code_1():
    done = run("config", "unidec", "--set", "pool.sise=3")
    assert done.returncode == 1
    assert done.stderr.strip().splitlines() == [
        "unidex: unidec: there is no setting pool.sise; did you mean pool.size?"
    ]


def test_config_refuses_settings_that_the_encoder_cannot_do():
    done = run("config", "unidec", "--set", "encoder.kind=transformer", "--set", "heads.shared_encoder=false")
    assert done.returncode == 1
    assert "needs an encoder that can make a second one, but this run has encoder.kind = 'transformer'" in done.stderr
    assert done.stdout == ""
