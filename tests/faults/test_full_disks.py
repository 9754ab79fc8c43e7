"""A disk that is full, read-only or limited: the old state stays, one line names file and remedy, nothing is left."""

import json
import shutil
from itertools import accumulate
from pathlib import Path

import pytest

from helpers import warm_start
from helpers.command import call, run
from helpers.disks import PAGE, leave, make_read_only, small_disk
from helpers.synthetic import QUICK, topics
from unidex.data import formats
from unidex.data.formats import WRITE_FORMATS
from unidex.errors import UnidexError
from unidex.model.model import Model
from unidex.storage.disk_errors import DiskError
from unidex.training import checkpoint
from unidex.verbs.train import train

FULL = r"cannot be written \((No space left on device|\d+ requested and \d+ written bytes)\); free space on the disk"


def content(folder):
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def boundaries(folder):
    """Free space that ends one page before each file of a folder is whole, in the order in which they were written."""
    files = sorted((file for file in folder.rglob("*") if file.is_file()), key=lambda file: file.stat().st_mtime_ns)
    pages = [-(-file.stat().st_size // PAGE) for file in files]
    return sorted({(end - 1) * PAGE for end in accumulate(pages)})


def size_of(folder):
    return sum(-(-file.stat().st_size // PAGE) * PAGE for file in folder.rglob("*") if file.is_file())


@pytest.fixture(scope="module")
def disk(model_folder, tmp_path_factory):
    """A disk with a model on it, and room for another beside it."""
    with small_disk(tmp_path_factory.mktemp("disks") / "disk", 3 * size_of(model_folder) + (2 << 20)) as found:
        shutil.copytree(model_folder, found / "model")
        yield found


@pytest.fixture
def room(disk):
    """The disk; afterwards it must hold what it held before."""
    before = content(disk / "model")
    yield disk
    (disk / "filler").unlink(missing_ok=True)
    assert content(disk / "model") == before
    assert {path.name for path in disk.iterdir()} <= {"model", ".model.lock"}


def test_a_model_is_saved_wholly_or_not_at_all_wherever_the_disk_is_full(room, model_folder):
    model = Model.load(model_folder)
    places = boundaries(model_folder)
    assert len(places) > 15
    for free in places:
        for name in ("model", "new"):
            leave(room, free)
            with pytest.raises(DiskError, match=f"{room / name}: {FULL}"):
                model.save(room / name)
            assert not (room / "new").exists()
            assert not list(room.glob(".*unfinished")), free
    (room / "filler").unlink()
    assert Model.load(room / "model").predict(["w0a w1b"], 3).ids.tolist() == model.predict(["w0a w1b"], 3).ids.tolist()
    model.save(room / "new")
    Model.load(room / "new")
    shutil.rmtree(room / "new")


@pytest.mark.parametrize("name", WRITE_FORMATS)
def test_a_data_set_is_written_wholly_or_not_at_all(room, tmp_path, name):
    data = topics(num_train=600)
    formats.write(data, tmp_path / "whole", name)
    for free in boundaries(tmp_path / "whole"):
        leave(room, free)
        with pytest.raises(
            UnidexError, match=r"out: the data set cannot be written \(.*\); free space .*; nothing is left"
        ):
            formats.write(data, room / "out", name)
        assert not (room / "out").exists()


def test_a_label_that_has_no_room_is_not_there(room):
    leave(room, 0)
    known = list(Model.load(room / "model").labels.uids)
    with pytest.raises(
        UnidexError, match=r"changes.jsonl: a change must be on the disk .*No space left.*; nothing was"
    ):
        call("labels", "add", room / "model", "new " * 20)
    (room / "filler").unlink()
    assert list(Model.load(room / "model").labels.uids) == known
    (room / "model" / "changes.jsonl").unlink(missing_ok=True)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A data set, pairs and texts."""
    folder = tmp_path_factory.mktemp("files")
    data = topics(num_train=300)
    formats.write(data, folder / "data", "unidex")
    (folder / "pairs.jsonl").write_text(json.dumps({"text": "w0a w1b", "labels": ["L0"]}) + "\n")
    (folder / "texts.txt").write_text("\n".join(list(data.test.texts) * 100) + "\n")
    return folder


SHORT = [word for setting in (*QUICK, "train.epochs=2", "train.checkpoint_every=2") for word in ("--set", setting)]
VERBS = {
    "train": lambda disk, files: ["train", files / "data", *SHORT, "--recipe", "unidec", "--out", disk / "out"],
    "compare": lambda disk, files: ["compare", files / "data", *SHORT, "--recipes", "unidec", "--out", disk / "out"],
    "tune": lambda disk, files: ["tune", files / "data", *SHORT, "--trials", 1, "--out", disk / "out"],
    "teach": lambda disk, files: ["labels", "teach", disk / "model", files / "pairs.jsonl"],
    "calibrate": lambda disk, files: ["calibrate", disk / "model", files / "data"],
    "remember": lambda disk, files: ["remember", disk / "model", files / "pairs.jsonl"],
    "export": lambda disk, files: ["export", disk / "model", "--to", "parquet", "--out", disk / "out"],
    "convert": lambda disk, files: ["convert", files / "data", disk / "out", "--to", "pecos"],
    "csv": lambda disk, files: ["predict", disk / "model", files / "texts.txt", "--out", disk / "out.csv"],
    "parquet": lambda disk, files: ["predict", disk / "model", files / "texts.txt", "--out", disk / "out.parquet"],
    "xlsx": lambda disk, files: ["predict", disk / "model", files / "texts.txt", "--out", disk / "out.xlsx"],
}  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_on_a_full_disk_is_one_line_that_says_what_to_do(room, files, verb):
    for free in (0, PAGE):
        leave(room, free)
        done = run("--quiet", *VERBS[verb](room, files))
        assert done.returncode == 1, done.stderr
        last = done.stderr.splitlines()[-1]
        assert last.startswith(f"unidex: {room}"), done.stderr
        assert "free space on the disk" in last or "changes.jsonl" in last, last
        assert "Traceback" not in done.stderr
        shutil.rmtree(room / "out", ignore_errors=True)
        shutil.rmtree(room / "out.training", ignore_errors=True)
        assert not [path.name for path in room.iterdir() if path.name.startswith(".") and path.name != ".model.lock"]


def test_results_that_standard_output_cannot_take_are_one_line(model_folder, files):
    with Path("/dev/full").open("wb") as full:
        process = warm_start.start("predict", model_folder, files / "texts.txt", stdout=full, stderr=warm_start.PIPE)
        _, said = process.communicate()
    assert process.returncode == 1
    assert said.splitlines()[-1] == (
        "unidex: standard output: cannot be written (No space left on device); "
        "free space on the disk, or write elsewhere"
    )


TABLE = """
import sys
from pathlib import Path
from unidex.errors import UnidexError
from unidex.nn.row_table import RowTable
try:
    RowTable.mapped(Path(sys.argv[1]), 100_000, 16).weight.fill_(1.0)
except UnidexError as error:
    print(error)
"""


def test_a_table_of_weights_that_has_no_room_is_named_before_it_is_used(room):
    """Writing to a mapped page without room would kill the process."""
    leave(room, 8 * PAGE)
    done = warm_start.run(room / "table", program=TABLE)
    (room / "table").unlink()
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{room / 'table'}: cannot be written (No space left on device); free space")


def test_a_checkpoint_without_room_is_named_and_the_run_resumes_from_the_one_before(files, tmp_path, monkeypatch):
    settings = [*QUICK, "train.epochs=2", "train.checkpoint_every=4", "train.table_storage=file"]
    wanted = train(files / "data", "unidec", settings=settings, out=tmp_path / "model")
    save = checkpoint.save
    with small_disk(tmp_path / "disk", 40 << 20) as disk:
        out = disk / "out"

        def filled(folder, step, *arguments):
            if step == 8:
                leave(disk, PAGE)
            save(folder, step, *arguments)

        with monkeypatch.context() as patch:
            patch.setattr(checkpoint, "save", filled)
            with pytest.raises(DiskError, match=rf"{out}.training/training/checkpoint-8: {FULL}"):
                train(files / "data", "unidec", settings=settings, out=out)
        assert checkpoint.newest(disk / "out.training" / "training").name == "checkpoint-4"
        # The unfinished one leaves its room to the user.
        assert not list((disk / "out.training" / "training").glob(".*"))
        (disk / "filler").unlink()
        model = train(files / "data", "unidec", settings=settings, out=out, resume=True)
        assert model.metrics["test"] == wanted.metrics["test"]
        for name in ("encoder.safetensors", "index/vectors.npy"):
            assert (out / name).read_bytes() == (tmp_path / "model" / name).read_bytes()


LIMITED = """
import resource, sys
from unidex.errors import UnidexError
from unidex.model.model import Model
model = Model.load(sys.argv[1])
for limit in (0, 100, 5000, 20000):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        model.save(sys.argv[2])
    except UnidexError as error:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        print(error)
"""


def test_a_limit_of_file_sizes_is_named(model_folder, tmp_path):
    done = warm_start.run(model_folder, tmp_path / "new", program=LIMITED)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 4
    for line in lines:
        assert line.startswith(f"{tmp_path / 'new'}: cannot be written (")
        assert line.endswith(("(ulimit -f), or write elsewhere", "free space on the disk, or write elsewhere")), line
    assert list(tmp_path.iterdir()) == []


def test_a_read_only_disk_serves_its_model_and_takes_no_change(model_folder, files, tmp_path):
    with small_disk(tmp_path / "disk", 2 * size_of(model_folder) + (1 << 24)) as disk:
        shutil.copytree(model_folder, disk / "model")
        make_read_only(disk)
        done = run("predict", disk / "model", files / "texts.txt", "-k", 1, "--json")
        assert done.returncode == 0, done.stderr
        for arguments in (
            ["labels", "add", disk / "model", "new"],
            *(VERBS[verb](disk, files) for verb in ("train", "teach", "calibrate", "export", "convert", "csv")),
        ):
            done = run("--quiet", *arguments)
            assert done.returncode == 1, done.stderr
            assert done.stderr.startswith(f"unidex: {disk}"), done.stderr
            assert "Read-only file system" in done.stderr or "permission denied in its folder" in done.stderr
            assert len(done.stderr.splitlines()) == 1


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    done = run("inspect", "hpo", "--json", XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["num_labels"] > 1000
    assert "Traceback" not in done.stderr
