"""The command line: exit codes, one line for an error, results apart from everything else, nothing half written."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch

from helpers.command import UNIDEX, assert_one_line, call, run, run_cold
from helpers.shop_files import RAW, put
from helpers.waits import PATIENCE, wait_until
from unidex import __version__
from unidex.cli import main as cli
from unidex.cli.output import print_table
from unidex.data import formats
from unidex.errors import DataError


@pytest.fixture
def shop(tmp_path):
    return put(tmp_path / "shop", RAW)


def test_inspect_prints_a_table_and_the_format_on_standard_error(shop):
    done = run("inspect", shop, "--examples", 1)
    assert done.returncode == 0
    assert done.stderr == f"{shop}: format xc-raw (detected; --format names another)\n"
    assert done.stdout.splitlines() == [
        "property\tshop",
        "texts, train / test\t3 / 1",
        "labels\t3",
        "labels per text\ttrain 1.00, test 1.00",
        "train texts per label\tmean 1.00, maximum 1",
        "words per text / per label\t2.0 / 1.3",
        "head / torso / tail labels (>100, 10-100, <10 texts)\t0.0% / 0.0% / 100.0%",
        "labels never in train\t0",
        "texts without labels, train / test\t1 / 0",
        "test texts that are in train\t0",
        "texts that are labels, train / test (filtered)\t0 (0) / 0 (0)",
        "filter pairs, train / test\t2 / 0",
        "relevance\tgraded",
        "propensity constants A, B\t0.55, 1.5",
        "red shoe of leather",
        "    -> shoes | red things",
        "note: 1 train texts have no label",
    ]


def test_inspect_json_is_one_document_with_the_promised_keys(shop):
    done = run("--quiet", "inspect", shop, "--json")
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)
    found = json.loads(done.stdout)
    promised = {
        **{"num_train": 3, "num_test": 1, "num_labels": 3, "labels_per_text": 1.0, "texts_per_label": 1.0},
        **{"filter_pairs_train": 2, "filter_pairs_test": 0},
    }
    assert {key: found[key] for key in promised} == promised
    assert found["examples"][0]["labels"] == [{"id": 0, "text": "shoes"}, {"id": 2, "text": "red things"}]


def test_convert_writes_a_folder_and_says_which_files(shop, tmp_path):
    done = call("convert", shop, tmp_path / "pecos", "--to", "pecos")
    files = "X.trn.txt, X.tst.txt, Y.trn.npz, Y.tst.npz, dataset.json, filter_labels_train.txt, output-items.txt"
    assert done.stdout == f"{tmp_path / 'pecos'}: {files}, uids.lbl.txt, uids.trn.txt, uids.tst.txt\n"
    done = call("convert", tmp_path / "pecos", tmp_path / "raw", "--to", "xc-raw", "--json")
    assert json.loads(done.stdout) == {
        "format": "xc-raw",
        "folder": str(tmp_path / "raw"),
        "files": ["dataset.json", "filter_labels_test.txt", "filter_labels_train.txt", *_json_files()],
        **{"num_train": 3, "num_test": 1, "num_labels": 3},
    }
    assert list(formats.read(tmp_path / "raw").train.texts) == ["red shoe of leather", "hat", "thing"]


def _json_files():
    return ["lbl.json.gz", "trn.json.gz", "tst.json.gz"]


def test_convert_looks_at_the_target_before_it_reads(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("precious")
    for target, to, match in (
        ("full", "pecos", "full: the folder to write must be new or empty"),
        ("new", "pekos", "--to must be one of xc-raw, pecos, dexml, xclib, jsonl, unidex, but is 'pekos'"),
    ):
        with pytest.raises(DataError, match=match):
            call("convert", tmp_path / "no such set", tmp_path / target, "--to", to)
    assert (tmp_path / "full" / "mine.txt").read_text() == "precious"
    assert not (tmp_path / "new").exists()


def test_a_bad_line_is_one_line_and_nothing_is_written(shop, tmp_path):
    put(shop, {"trn.json": RAW["trn.json"] + '{"title": "x", "target_ind": [9]}\n'})
    done = run("--quiet", "convert", shop, tmp_path / "out", "--to", "pecos")
    assert_one_line(done)
    expected = "trn.json:4: target_ind must be from 0 to 2 (the labels), but one is 9; mend or drop this pair\n"
    assert done.stderr == f"unidex: {shop}/{expected}"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["shop"]


def test_a_text_the_format_cannot_hold_is_one_line_and_nothing_is_written(tmp_path):
    put(tmp_path, {"train.jsonl": '{"text": "a\\nb", "labels": ["x"]}\n{"text": "c", "labels": ["x"]}\n'})
    done = run("--quiet", "convert", tmp_path / "train.jsonl", tmp_path / "out", "--to", "dexml", "--test-fraction", 0)
    assert_one_line(done)
    assert "train text 0 must be one line in this format, but has a line break: 'a\\nb'; convert to" in done.stderr
    assert [entry.name for entry in tmp_path.iterdir()] == ["train.jsonl"]


def test_a_file_name_with_a_line_end_is_still_one_line(tmp_path):
    done = run("inspect", tmp_path / "no\nsuch")
    assert_one_line(done)


def test_warnings_of_libraries_do_not_reach_the_user(shop):
    rows = '{"title": "a", "target_ind": [0], "target_rel": [1e300]}\n'
    done = run("--quiet", "inspect", put(shop, {"trn.json": rows}))
    assert_one_line(done)
    assert "trn.json:1: target_rel must be a number >= 0, but one is inf" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("inspect",),
        ("inspect", "hpo", "--no-such-option"),
        ("inspect", "hpo", "--examples", "many"),
        ("convert", "hpo", "somewhere"),
    ],
)
def test_wrong_usage_is_exit_code_2(arguments):
    result = call(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""


def test_help_and_version(tmp_path):
    done = run_cold("--version")
    assert (done.returncode, done.stdout) == (0, f"unidex {__version__}\n")
    assert call("--help").exit_code == 0
    for verb in ("inspect", "convert", "score"):
        text = " ".join(call(verb, "--help").stdout.split())
        assert "Example: unidex " + verb in text
        assert "--propensity-a" in text
    assert '{"labels": [ids or uids, best first], "scores": [...]}' in " ".join(
        line.strip() for line in call("score", "--help").stdout.splitlines()
    )
    assert '{"text": ..., "labels": [uid, ...]}' in " ".join(call("labels", "teach", "--help").stdout.split())


def test_the_module_is_the_command():
    done = subprocess.run([sys.executable, "-m", "unidex", "--version"], capture_output=True, text=True)
    assert done.stdout == f"unidex {__version__}\n"


def fault(monkeypatch, capfd, error, *arguments):
    """What the command does when reading raises something."""

    def fail(*_):
        raise error

    monkeypatch.setattr("unidex.verbs.inspect.read", fail)
    monkeypatch.setattr(sys, "argv", ["unidex", *arguments, "inspect", "hpo"])
    with pytest.raises(SystemExit) as left:
        cli.main()
    return left.value.code, *capfd.readouterr()


def test_an_internal_error_is_exit_code_3_in_one_line(monkeypatch, capfd):
    code, out, err = fault(monkeypatch, capfd, RuntimeError("two\nlines"))
    assert (code, out) == (3, "")
    assert (
        err
        == "unidex: internal error, not a fault of your data: RuntimeError: two lines (--debug shows the traceback)\n"
    )


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_too_little_memory_is_one_line(monkeypatch, capfd, library):
    numbers = {"numpy": np.empty, "torch": torch.empty}[library]
    with pytest.raises((MemoryError, RuntimeError)) as refused:
        numbers((1 << 50,))
    code, _, err = fault(monkeypatch, capfd, refused.value)
    assert code == 1
    assert err == "unidex: out of memory; use fewer texts or a machine with more memory\n"


def test_debug_shows_the_traceback(monkeypatch, capfd):
    code, _, err = fault(monkeypatch, capfd, DataError("bad"), "--debug")
    assert code == 1
    assert err.startswith("Traceback")
    assert err.endswith("unidex: bad\n")
    for value, shown in (("1", True), ("0", False), ("", False)):
        monkeypatch.setenv("UNIDEX_DEBUG", value)
        _, _, err = fault(monkeypatch, capfd, DataError("bad"))
        assert ("Traceback" in err) == shown


def test_logs_go_to_standard_error_and_quiet_silences_them(tmp_path):
    put(tmp_path, {"a.csv": "text,labels\na,x|y\nb,x\n"})
    done = run("inspect", tmp_path / "a.csv", "--json")
    assert json.loads(done.stdout)["num_labels"] == 2
    assert "columns are text=text, labels=labels" in done.stderr
    done = run("--quiet", "inspect", tmp_path / "a.csv", "--json")
    assert json.loads(done.stdout)["num_labels"] == 2
    assert done.stderr == ""


def test_results_are_utf8_whatever_the_locale(tmp_path):
    put(tmp_path, {"a.jsonl": '{"text": "é漢🙂", "labels": ["ü"]}\n'})
    for environment in ({"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}):
        done = run_cold("-q", "inspect", tmp_path / "a.jsonl", "--test-fraction", 0, "--json", **environment)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["examples"][0]["text"] == "é漢🙂"


def test_a_folder_whose_name_is_not_utf8(shop, tmp_path):
    target = os.fsencode(tmp_path) + b"/\xff"
    done = run("convert", shop, os.fsdecode(target), "--to", "pecos")
    assert done.returncode == 0, done.stderr
    assert os.fsencode(done.stdout).startswith(target + b": X.trn.txt")
    assert os.path.isdir(target)  # noqa: PTH112  # a path of bytes


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_closed_pipe_is_no_error(shop, unbuffered):
    read, write = os.pipe()
    os.close(read)
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run([UNIDEX, "--quiet", "inspect", shop], stdout=write, stderr=subprocess.PIPE, env=environment)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


def test_an_interrupt_while_writing_leaves_nothing_behind(shop, tmp_path):
    program = (
        "import os, pathlib, signal, time; from unidex.cli.main import main\n"
        "from unidex.data.formats import text_lines\n"
        # A shell lets what it runs in the background ignore interrupts, and the child would inherit that.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "text_lines._write_sparse = lambda *_: (pathlib.Path(os.environ['READY']).touch(), time.sleep(3600))\n"
        "main()"
    )
    ready = tmp_path / "ready"
    child = subprocess.Popen(
        [sys.executable, "-c", program, "convert", shop, tmp_path / "out", "--to", "pecos"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"READY": str(ready)},
    )
    wait_until(lambda: ready.exists() or child.poll() is not None)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=PATIENCE)
    assert child.returncode == 130
    assert out == b""
    assert b"Traceback" not in err
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["ready", "shop"]


@pytest.mark.parametrize("name", ["curve.png", "curve.svg", "curve.pdf"])
def test_a_picture_of_the_label_frequencies(shop, tmp_path, name):
    done = call("inspect", shop, "--plot", tmp_path / name, "--json")
    assert json.loads(done.stdout)["plot"] == str(tmp_path / name)
    signatures = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    assert (tmp_path / name).read_bytes().startswith(signatures[name[-3:]])


def test_a_picture_that_cannot_be_drawn_is_one_line(shop, tmp_path):
    for target in (tmp_path / "curve.xyz", tmp_path / "no folder" / "curve.png"):
        with pytest.raises(Exception, match=r"the picture cannot be written .*; name a .png, .svg or .pdf file"):
            call("inspect", shop, "--plot", target)
        assert not target.exists()


def test_a_picture_of_labels_that_never_occur(tmp_path):
    from unidex.report.pictures import draw_label_frequencies

    draw_label_frequencies("none", np.zeros(5, dtype=np.int64), tmp_path / "none.png")
    assert (tmp_path / "none.png").stat().st_size > 1000


def test_options_reach_the_reader(tmp_path):
    put(tmp_path, {"a.csv": "body,queue,id\nred shoe,shoes;red,1\nhat,hats,2\n"})
    put(tmp_path, {"labels.csv": "uid,text\nshoes,Shoes\nred,Red\nhats,Hats\n", "test.csv": "body,queue\ncap,hats\n"})
    table = tmp_path / "a.csv"
    columns = ("--column", "text=body", "--column", "labels=queue", "--separator", ";")
    others = ("--labels", tmp_path / "labels.csv", "--test", tmp_path / "test.csv")
    constants = ("--propensity-a", 0.6, "--propensity-b", 2)
    found = json.loads(call("inspect", table, *columns, *others, *constants, "--json").stdout)
    assert [found[key] for key in ("num_train", "num_test", "num_labels", "propensity_a", "propensity_b")] == [
        *(2, 1, 3, 0.6, 2.0)
    ]
    assert found["examples"][0]["labels"] == [{"id": 0, "text": "Shoes"}, {"id": 1, "text": "Red"}]
    done = call("inspect", table, *columns, "--test-fraction", 0.5, "--split-seed", 3, "--json")
    assert json.loads(done.stdout)["num_test"] == 1
    with pytest.raises(DataError, match="--column must be ROLE=NAME, such as text=title, but is 'text'"):
        call("inspect", table, "--column", "text")
    with pytest.raises(DataError, match="--separator has no part in reading the format bag-of-words; leave it out"):
        call("inspect", put(tmp_path / "bag", {"train.txt": "1 1 1\n0 0:1\n"}), "--separator", ";")


def test_score_reads_prediction_files_of_other_programs(shop, tmp_path):
    put(tmp_path, {"p.jsonl": '{"labels": ["h", "s", "r"], "scores": [0.9, 0.5, -1]}\n'})
    found = json.loads(call("score", tmp_path / "p.jsonl", shop, "--json").stdout)
    assert (found["P@1"], found["num_texts"]) == (100.0, 1)
    table = call("score", tmp_path / "p.jsonl", shop).stdout.splitlines()
    assert (
        table[0]
        == "# The first label is right for 100 of 100 texts, and 100 of 100 have a right one among the first five."
    )
    assert table[1] == "# 1 texts, percent, 0 filter pairs"
    assert table[3].startswith("P\t100.00\t")
    with pytest.raises(DataError, match="--split must be train or test, but is 'validation'"):
        call("score", tmp_path / "p.jsonl", shop, "--split", "validation")
    with pytest.raises(DataError, match=r"p.jsonl:1: there must be 3 rows"):
        call("score", tmp_path / "p.jsonl", shop, "--split", "train")


def test_cells_never_break_a_table(capsys):
    print_table(["a", "b"], [["x\ty", "1\n2"]], title="t")
    assert capsys.readouterr().out == "# t\na\tb\nx y\t1 2\n"


def test_control_characters_in_texts_do_not_reach_the_terminal(tmp_path):
    put(tmp_path, {"a.jsonl": json.dumps({"text": "a\x1b[31mred\x07", "labels": ["\x1b]0;x\x07"]}) + "\n"})
    out = call("inspect", tmp_path / "a.jsonl", "--test-fraction", 0).stdout
    assert "a [31mred" in out
    assert "\x1b" not in out
    assert "\x07" not in out
