"""A command line that answers at once."""

import json
import resource
import subprocess
import sys

from helpers.command import UNIDEX
from helpers.synthetic import QUICK, topics
from unidex.data import formats
from unidex.verbs.train import train

LIMIT_SECONDS = 0.4


def cpu_seconds(*command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def takes_little():
    """Less than the limit or, on a busy machine, whose CPU seconds are slow, than twice what prints any help takes."""
    used = cpu_seconds(UNIDEX, "--help")
    return used < LIMIT_SECONDS or used < 2 * cpu_seconds(sys.executable, "-c", "import typer.rich_utils")


def test_help_takes_less_cpu_time_than_the_limit():
    # The first of several tries that other work on the machine does not disturb.
    assert any(takes_little() for _ in range(10))


# Runs verbs one after the other in one process, and names the first after which a library is there.
PROGRAM = """
import json, sys
from unidex.cli.main import app
for words in json.loads(sys.argv[1]):
    app(words, standalone_mode=False)
    loaded = {"torch", "lightgbm", "matplotlib", "transformers", "pandas", "polars"} & set(sys.modules)
    if loaded:
        sys.exit(f"unidex {' '.join(words)} loads {sorted(loaded)}")
# A training needs torch, but not its compiler, which is 2 CPU seconds of imports.
app(json.loads(sys.argv[2]), standalone_mode=False)
loaded = {"torch", "torch._dynamo", "sympy", "matplotlib", "transformers", "pandas"} & set(sys.modules)
if loaded != {"torch"}:
    sys.exit(f"a training loads {sorted(loaded)}")
"""


def test_verbs_on_a_model_of_the_bag_encoder_load_no_torch_and_a_training_no_compiler(tmp_path):
    folder, texts = str(tmp_path / "model"), tmp_path / "texts.txt"
    settings = [*QUICK, "train.epochs=1"]
    train(topics(), "auto", settings=settings, out=folder)
    formats.write(topics(), tmp_path / "data", "unidex")
    training = ["train", str(tmp_path / "data"), "--out", str(tmp_path / "new"), "--recipe", "unidec"]
    training += [word for setting in settings for word in ("--set", setting)]
    texts.write_text("w0a w1b\nnothing known\n", encoding="utf-8")
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text('{"text": "w0a w1b new words", "labels": ["L0"]}\n', encoding="utf-8")
    unseen = tmp_path / "unseen.jsonl"
    unseen.write_text('{"text": "w4e w5f", "labels": ["L2"]}\n', encoding="utf-8")
    verbs = [
        ["predict", folder, str(texts), "--json"],
        ["explain", folder, "w0a w1b"],
        ["labels", "list", folder],
        ["labels", "similar", folder, "L1"],
        ["labels", "add", folder, "a new label"],
        ["labels", "rename", folder, "L2", "another text"],
        ["labels", "remove", folder, "L3"],
        ["labels", "teach", folder, str(pairs)],
        ["remember", folder, str(pairs)],
        ["evaluate", folder, str(unseen)],
    ]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(verbs), json.dumps(training)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
