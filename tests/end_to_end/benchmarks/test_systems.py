"""The benchmark of the systems of the literature: all are there, their settings are right, and its call runs."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import systems
from helpers.synthetic import topics
from unidex.config.recipes import load, recipe_names
from unidex.data.formats import write


def test_every_system_of_the_literature_is_there():
    ours = {"auto", "dexml-top5", "dexml-top100", "dexml-mined"}
    assert set(systems.SMALL) == set(recipe_names()) - ours


@pytest.mark.parametrize("schedule", systems.SCHEDULES)
def test_every_setting_is_one_of_its_recipe_and_makes_it_smaller(schedule):
    for recipe, settings in systems.SCHEDULES[schedule].items():
        config = load(recipe, settings)
        for stage in config.in_stages().values():
            assert stage.train.epochs <= 20
            assert stage.train.surrogate in (0, 1024)


def test_the_systems_benchmark_runs_a_comparison(tmp_path):
    write(topics(num_train=48, num_test=12), tmp_path / "topics", "xc-raw")
    script = Path(systems.__file__)
    asked = [tmp_path / "topics", "--out", tmp_path / "compared", "--recipes", "dpr", "--augment", "none"]
    shown = subprocess.run([sys.executable, script, *asked, "--dry-run"], capture_output=True, text=True, check=True)
    assert shlex.split(shown.stdout)[:2] == ["unidex", "compare"]
    assert not (tmp_path / "compared").exists()
    subprocess.run([sys.executable, script, *asked], capture_output=True, check=True)
    assert "| dpr |" in (tmp_path / "compared" / "table.md").read_text(encoding="utf-8")


def test_a_system_that_a_schedule_does_not_have_is_refused():
    script = Path(systems.__file__)
    asked = ["X", "--out", "Y", "--schedule", "large", "--recipes", "dexml"]
    done = subprocess.run([sys.executable, script, *asked], capture_output=True, text=True)
    assert done.returncode == 2
    assert "but has dexml" in done.stderr
