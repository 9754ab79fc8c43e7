"""A command line that answers at once."""

import json
import resource
import subprocess
import sys

from helpers.command import UNIDEX
from helpers.synthetic import QUICK, topics
from unidex.verbs.train import train

LIMIT_SECONDS = 0.4


def cpu_seconds(*arguments):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([UNIDEX, *arguments], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def test_help_takes_less_cpu_time_than_the_limit():
    # The first of up to 20 tries that is not disturbed by other work on the machine.
    assert any(cpu_seconds("--help") < LIMIT_SECONDS for _ in range(20))


# Runs verbs one after the other in one process, and names the first after which a library is there.
PROGRAM = """
import json, sys
from unidex.cli.main import app
for words in json.loads(sys.argv[1]):
    app(words, standalone_mode=False)
    loaded = {"torch", "lightgbm", "matplotlib", "transformers", "pandas", "polars"} & set(sys.modules)
    if loaded:
        sys.exit(f"unidex {' '.join(words)} loads {sorted(loaded)}")
"""


def test_verbs_on_a_model_of_the_bag_encoder_load_no_torch(tmp_path):
    folder, texts = str(tmp_path / "model"), tmp_path / "texts.txt"
    train(topics(), "auto", settings=[*QUICK, "train.epochs=1"], out=folder)
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
        [sys.executable, "-c", PROGRAM, json.dumps(verbs)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
