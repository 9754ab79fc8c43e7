"""``unidex tune``: trials on held-out texts, a recipe as the result, and a search that survives kill -9."""

import json
import subprocess

import pytest

from helpers import warm_start
from helpers.command import run
from helpers.synthetic import topics
from helpers.waits import wait_until
from unidex.config.recipes import load

pytest.importorskip("optuna", reason="the extra tune")
NUM_TRIALS = 4
QUICK = ["encoder.dim=32", "features.min_df=1", "train.epochs=2", "train.batch_size=32"]
SETTINGS = [word for setting in QUICK for word in ("--set", setting)]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    data = topics()
    file = tmp_path_factory.mktemp("data") / "tickets.jsonl"
    rows = [
        json.dumps({"text": text, "labels": [data.labels.texts[label] for label in labels.indices]})
        for text, labels in zip(data.train.texts, data.train.positives, strict=True)
    ]
    file.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return file


def trials_in(folder):
    file = folder / "trials.jsonl"
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


def test_a_search_that_was_killed_continues_as_if_it_had_not_been(table, tmp_path):
    def arguments(out, num_trials):
        return ["tune", table, "--recipe", "unidec", *SETTINGS, "--trials", num_trials, "--out", out]

    whole = run(*arguments(tmp_path / "whole", NUM_TRIALS))
    assert whole.returncode == 0, whole.stderr
    assert "Trial 4 of 4: P@1 " in whole.stderr
    killed = tmp_path / "killed"
    process = warm_start.start(*arguments(killed, NUM_TRIALS), stderr=subprocess.PIPE)
    wait_until(lambda: len(trials_in(killed)) >= 2)
    process.kill()
    process.communicate()
    done = len(trials_in(killed))
    assert 2 <= done < NUM_TRIALS
    with (killed / "trials.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"number": 99, "va')  # half a line, as a killed process leaves it
    assert run(*arguments(killed, NUM_TRIALS)).returncode == 0
    untimed = [[{**trial, "seconds": 0} for trial in trials_in(tmp_path / name)] for name in ("whole", "killed")]
    assert untimed[0] == untimed[1]
    assert len(untimed[0]) == NUM_TRIALS

    # The first trial is the recipe; the recipe file has the best settings, and trains.
    first, *others = untimed[0]
    config = load("unidec", QUICK)
    assert first["values"]["train.lr_heads"] == config.train.lr_heads
    assert len({json.dumps(trial["values"]) for trial in untimed[0]}) == NUM_TRIALS
    best = max(untimed[0], key=lambda trial: trial["value"])
    tuned = load(killed / "recipe.toml")
    expected = load("unidec", [*QUICK, *(best["settings"] if best["value"] > first["value"] else [])])
    assert tuned.model_copy(update={"about": expected.about}) == expected
    assert "tuned on tickets with 4 trials" in tuned.about
    assert others
    page = (killed / "report.html").read_text(encoding="utf-8")
    assert f"best P@1</span> <b>{best['value']:.2f}</b>" in page
    assert page.count("<circle") == NUM_TRIALS
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")
    model = run("train", table, "--recipe", killed / "recipe.toml", "--out", tmp_path / "model", "--json")
    assert model.returncode == 0, model.stderr

    # Other settings are another search.
    other = run(*arguments(killed, NUM_TRIALS), "--set", "train.epochs=3")
    assert other.returncode == 1
    assert "but another recipe is given; give another --out" in other.stderr
