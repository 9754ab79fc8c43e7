"""The log of ``unidex train``: one bar on a terminal, plain lines elsewhere, and why each decision was made."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios

import pytest

from helpers import warm_start
from helpers.command import run
from helpers.synthetic import topics

COLUMNS = 80
PHASES = ["preparing texts", "training", "trial", "ranker and probabilities", "final training", "search index", "test"]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A CSV file as an analyst has it."""
    data = topics(num_train=3000)
    file = tmp_path_factory.mktemp("data") / "tickets.csv"
    rows = ["text,labels"]
    for text, labels in zip(data.train.texts, data.train.positives, strict=True):
        rows.append(f"{text},{';'.join(data.labels.texts[label] for label in labels.indices)}")
    file.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return file


def on_a_terminal(command):
    """Everything that a command shows on a terminal of 80 columns, without colours: its lines in their order."""
    reading, writing = pty.openpty()
    fcntl.ioctl(writing, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    process = warm_start.start(*command, stdout=subprocess.PIPE, stderr=writing, env=environment | {"TERM": "xterm"})
    os.close(writing)
    shown = b""
    while True:
        try:
            block = os.read(reading, 65536)
        except OSError:  # the other end is closed
            break
        if not block:
            break
        shown += block
    printed, _ = process.communicate()
    os.close(reading)
    assert process.returncode == 0, shown.decode()
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    return [line for line in re.split(r"[\r\n]+", plain) if line.strip()], printed


def test_a_terminal_shows_one_bar_with_the_phase_and_the_time_left(table, tmp_path):
    # A bar appears after a second: so many epochs take several on any machine.
    longer = ["--set", "train.epochs=24", "--set", "train.patience=24", "--set", "train.decay_epochs=12"]
    lines, _ = on_a_terminal(["train", table, "--out", tmp_path / "model", *longer])
    bars = [line for line in lines if "━" in line and line.startswith("training ")]
    assert max(map(len, bars)) <= COLUMNS
    found = [re.search(r"(\d+)%  (?:[\d:]+ left)  (.*)$", bar) for bar in bars]
    found = [match for match in found if match]
    assert found, bars[:3]
    shares = [int(match[1]) for match in found]
    assert shares == sorted(shares)
    named = [match[2].partition(":")[0].rstrip("…") for match in found]
    assert set(named) <= set(PHASES)
    assert [PHASES.index(name) for name in named] == sorted(PHASES.index(name) for name in named)
    # A phase that ends before the bar is drawn again is not seen, however fast the machine is.
    assert len(set(named)) > 1


def test_elsewhere_the_log_is_plain_lines_that_say_why(table, tmp_path):
    done = run("train", table, "--out", tmp_path / "model", "--set", "train.min_gain=0.5")
    assert done.returncode == 0, done.stderr
    assert not re.search("[\x1b\r━]", done.stderr)
    log = re.sub(r"\d+(\.\d+)?", "0", done.stderr)
    for said in (
        "Data: 0 train texts, 0 labels, 0 test texts. Recipe: auto, on cpu.",
        "Batches of 0 texts: that is 0 steps per epoch.",
        "Training on 0 texts; 0 are held out, to decide when to stop and how to rank.",
        "Stopped after epoch 0 of at most 0, and kept epoch 0: a further epoch raised the score of held-out texts by",
        "Fusion weights, the best on held-out texts: dual",
        "label texts as training points (Gandalf): held-out texts score 0 with them, 0 without.",
        "Final training: all 0 texts, also those held out before, while learning rates decay to 0.",
        "Building the search index of 0 labels.",
    ):
        assert said in log, done.stderr
    # The result in words, above the table.
    first, second, third = done.stdout.splitlines()[:3]
    assert re.fullmatch(
        r"# The first label is right for \d+ of 100 texts, and \d+ of 100 have a right one among the first five\.",
        first,
    )
    assert second.startswith("# ")
    assert third.startswith("metric")
    assert "\nF1\t" in done.stdout
