"""Processes that are killed, two that write at once, and clocks that jump: the old state or the new one."""

import ast
import json
import os
import subprocess
from pathlib import Path

import pytest

import killed_verbs
import unidex
from helpers import warm_start
from helpers.command import run
from helpers.synthetic import topics
from unidex.data import formats
from unidex.model.journal import Journal
from unidex.model.model import Model
from unidex.storage.atomic import unfinished_file, unfinished_folder, write_text
from unidex.training.log import TrainingLog, read_log


def test_verbs_that_are_killed_leave_the_old_state_or_the_new_one():
    """A few moments of each verb; the benchmark has fifty."""
    program = Path(killed_verbs.__file__).read_text(encoding="utf-8")
    verbs = ",".join(name for name in killed_verbs.VERBS if name != "compare")
    done = warm_start.run("--moments", 2, "--verbs", verbs, "--seed", 7, "--json", program=program)
    assert done.returncode == 0, done.stderr[-3000:]
    assert {name: found["moments"] for name, found in json.loads(done.stdout).items()} == dict.fromkeys(
        verbs.split(","), 2
    )


WRITING = """
import sys, time
from pathlib import Path
from unidex.storage.atomic import unfinished_file, unfinished_folder
with unfinished_folder(Path(sys.argv[1])) as folder, unfinished_file(Path(sys.argv[2])) as file:
    (folder / "half").write_text("half")
    file.write_text("half")
    print("writing", flush=True)
    time.sleep(600)
"""


def test_what_a_killed_writer_leaves_goes_with_the_next_one_and_what_a_living_one_writes_stays(tmp_path):
    folder, file = tmp_path / "data", tmp_path / "table.csv"
    process = warm_start.start(folder, file, program=WRITING, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == "writing\n"
    hidden = sorted(tmp_path.iterdir())
    assert len(hidden) == 2
    with unfinished_folder(folder), unfinished_file(file):
        assert set(hidden) < set(tmp_path.iterdir()), "another writer is at work"
    assert set(tmp_path.iterdir()) == {*hidden, file}
    process.kill()
    process.communicate()
    assert set(hidden) < set(tmp_path.iterdir())
    formats.write(topics(num_train=4, num_test=0), folder, "jsonl")
    write_text(file, "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "table.csv"]
    assert file.read_text() == "whole"


def test_two_processes_that_save_at_once_leave_one_whole_model(model_folder, tmp_path):
    saving = "import sys\nfrom unidex.model.model import Model\nmodel = Model.load(sys.argv[1])\n"
    saving += "for _ in range(6):\n    model.save(sys.argv[2])\n"
    writers = [
        warm_start.start(
            model_folder, tmp_path / "model", program=saving, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(3)
    ]
    said = [writer.communicate()[1] for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0, 0], said
    Model.load(tmp_path / "model")
    assert {path.name for path in tmp_path.iterdir()} <= {"model", ".model.lock"}


def test_two_writers_of_one_file_at_once_leave_one_of_both(tmp_path):
    writing = "import sys\nfrom pathlib import Path\nfrom unidex.storage.atomic import write_text\n"
    writing += "for _ in range(200):\n    write_text(Path(sys.argv[1]), sys.argv[2] * 50_000)\n"
    writers = [
        warm_start.start(tmp_path / "file", letter, program=writing, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for letter in "ab"
    ]
    said = [writer.communicate()[1] for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0], said
    assert (tmp_path / "file").read_text() in ("a" * 50_000, "b" * 50_000)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("torn", ['{"epoch": 3, "st', "{", '{"epoch": 3, "step": 9}'])
def test_a_line_of_the_training_log_that_a_kill_tore_is_dropped(tmp_path, torn):
    log = TrainingLog(tmp_path / "training", 5)
    log.epoch(1, 3, 0.5, 100.0)
    log.epoch(2, 6, 0.4, 100.0)
    with (tmp_path / "training" / "train.jsonl").open("a") as out:
        out.write(torn)
    assert read_log(tmp_path, ["training"]).count("\n") == 2
    TrainingLog(tmp_path / "training", 5).keep_until(3)
    assert [json.loads(line)["step"] for line in read_log(tmp_path, ["training"]).splitlines()] == [3]


def test_a_clock_that_jumps_back_hides_no_change(model_folder, tmp_path):
    folder = tmp_path / "model"
    Model.load(model_folder).save(folder)
    reader = Model.load(folder)
    for number, year in enumerate((2026, 1999, 2026, 2040)):
        assert run("labels", "add", folder, f"label {number}").returncode == 0
        os.utime(folder / "changes.jsonl", ((year - 1970) * 31_557_600,) * 2)
        reader.catch_up()
        assert f"label {number}" in reader.labels
    assert Journal(folder).is_current()
    assert len(Model.load(folder).labels) == len(reader.labels)


def test_nothing_asks_for_the_time_of_day():
    """Durations and deadlines come from clocks that never jump."""
    for file in Path(unidex.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                called = ast.unparse(node.func)
                assert called not in ("time.time", "time.time_ns", "datetime.now", "datetime.datetime.now"), file
