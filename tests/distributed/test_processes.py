"""Several real processes: the parameters of one, checkpoints for any number of them, and a death that is noticed."""

import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from helpers import distributed_steps, warm_start
from helpers.command import run
from helpers.synthetic import topics
from helpers.waits import PATIENCE, wait_until
from unidex import distributed
from unidex.data import formats
from unidex.distributed import ALONE, Processes, ProcessLostError
from unidex.model.model import Model
from unidex.verbs.train import train_together

PYTHONPATH = [str(Path(distributed_steps.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
ENVIRONMENT = os.environ | {
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": os.pathsep.join(PYTHONPATH),
}


def torchrun(processes, *arguments, options=()):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", *options]
    return [*command, *map(str, arguments)]


def start_together(processes, *arguments, program=None):
    """The processes of a run without torchrun, which would end the others before they notice a death themselves."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    place = {"WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    places = [ENVIRONMENT | place | {"RANK": str(rank)} for rank in range(processes)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return [warm_start.start(*arguments, program=program, env=place, **pipes) for place in places]


def run_together(processes, *arguments, program=None):
    """Run them to their end."""
    for process in start_together(processes, *arguments, program=program):
        _, said = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, said[-3000:]


def test_parts_and_shards_cover_everything_once():
    for count in (0, 1, 2, 3, 7, 100):
        for size in (1, 2, 3, 5):
            members = [Processes(rank, size) for rank in range(size)]
            for cut in (Processes.part, Processes.shard):
                rows = [row for member in members for row in range(count)[cut(member, count)]]
                assert rows == list(range(count))
            sizes = [len(range(count)[member.part(count)]) for member in members]
            assert max(sizes) - min(sizes) <= 1


def test_shards_are_cut_as_torch_cuts():
    rows = torch.arange(23)
    for size in (2, 3, 4):
        for rank, chunk in enumerate(rows.chunk(size)):
            assert torch.equal(rows[Processes(rank, size).shard(23)], chunk)


def test_one_process_exchanges_nothing():
    values = torch.arange(3.0)
    for method in (ALONE.sum_, ALONE.max_, ALONE.gather, ALONE.gather_on_first, ALONE.reduce_scatter):
        assert method(values) is values
    assert ALONE.any(True)
    assert not ALONE.any(False)


def left_by_the_dead(ranks, listed):
    """A store with what an earlier start has left: a name, the ids of some ranks, and perhaps the list of all."""
    store = torch.distributed.HashStore()
    store.set("unidex/name", "unidex/old")
    for rank in ranks:
        store.set(f"unidex/old/here/{rank}", f"unidex/dead-{rank}")
    if listed:
        store.set("unidex/old/all", " ".join(f"unidex/dead-{rank}" for rank in ranks))
    return store


@pytest.mark.parametrize(("ranks", "listed"), [((), False), ((0,), False), ((0, 1, 2), False), ((0, 1, 2), True)])
@pytest.mark.parametrize("first", [0, 2])
def test_processes_agree_on_a_name_no_earlier_start_had(ranks, listed, first):
    store = left_by_the_dead(ranks, listed)
    names = {"unidex/old"}
    with ThreadPoolExecutor(3) as threads:
        for _ in range(2):
            early = threads.submit(distributed._agreed_name, store, first, 3, timedelta(seconds=PATIENCE))
            # Time enough to be taken in by what the dead have left.
            time.sleep(0.25)
            assert not early.done()
            late = [
                threads.submit(distributed._agreed_name, store, rank, 3, timedelta(seconds=PATIENCE))
                for rank in range(3)
                if rank != first
            ]
            found = {early.result(), *(other.result() for other in late)}
            assert len(found) == 1
            assert not found & names
            names |= found


@pytest.mark.parametrize(("rank", "missing"), [(0, 2), (1, 1)])
def test_missing_processes_are_named(rank, missing):
    store = left_by_the_dead((0, 1, 2), listed=True)
    expected = f"all 3 processes .* but at least {missing} had not started when process {rank} gave up"
    with pytest.raises(ProcessLostError, match=expected):
        distributed._agreed_name(store, rank, 3, timedelta(seconds=0.3))


def test_a_process_lost_at_the_very_end_is_noticed(monkeypatch):
    def closed():
        raise RuntimeError("Connection closed by peer")

    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(distributed, "_join", lambda device: None)
    monkeypatch.setattr(torch.distributed, "barrier", closed)
    with pytest.raises(ProcessLostError, match="all 2 processes"), distributed.process_group(torch.device("cpu")):
        pass


def test_one_restarted_process_makes_all_resume(monkeypatch, tmp_path):
    class AnotherWasRestarted(Processes):
        def any(self, said):
            assert not said
            return True

    monkeypatch.setattr(distributed, "process_group", lambda device: nullcontext(AnotherWasRestarted(rank=1)))
    # A model folder that is there: an error for a new run, nothing to do for one that is resumed.
    assert train_together(topics(), out=tmp_path) is None


@pytest.fixture(scope="module")
def alone():
    return {name: distributed_steps.parameters(name, ALONE) for name in distributed_steps.RECIPES}


@pytest.mark.parametrize(
    ("processes", "names"), [(2, distributed_steps.ON_TWO), (3, distributed_steps.ON_THREE)], ids=["2", "3"]
)
def test_twenty_steps_agree_with_one_process(processes, names, alone, tmp_path):
    positives = distributed_steps.problem().train.positives
    for rank in range(processes):
        shard = Processes(rank, processes).shard(distributed_steps.NUM_LABELS)
        assert shard.stop - 1 in positives.indices, "the last label of every shard is a positive"
    path, steps = PYTHONPATH[0], distributed_steps.__file__
    program = f"import runpy, sys; sys.path.insert(0, {path!r}); runpy.run_path({steps!r}, run_name='__main__')"
    run_together(processes, tmp_path, *names, program=program)
    for name in names:
        found, expected = load_file(tmp_path / name), alone[name]
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            difference = (found[key] - value).abs().max()
            assert difference < 1e-5, f"{name}: {key} differs by {difference}"


def test_the_steps_that_are_compared_move_the_parameters(alone):
    from unidex.config.recipes import load
    from unidex.encoders.registry import build_encoder
    from unidex.nn.assembly import build_network

    data = distributed_steps.problem()
    for name, found in alone.items():
        config = load(distributed_steps.recipe_of(name), distributed_steps.settings_of(name))
        torch.manual_seed(3)
        encoder = build_encoder(config, data.train.texts, data.labels.texts)
        before = build_network(config, encoder, data.num_labels).tables()
        assert ("classifier_features" in before) == (name.startswith("auto") or name == "unidec-mixed-texts")
        for table in before.keys() & {"features", "classifier_features"} if "frozen" not in name else {"classifiers"}:
            assert (found[table] - before[table].weight).abs().max() > 0.01, (name, table)


SETTINGS = [
    *("--set", "encoder.dim=16", "--set", "features.min_df=1", "--set", "train.batch_size=32"),
    *("--set", "pool.start=2", "--set", "pool.refresh_every=2", "--set", "train.checkpoint_every=10"),
]


@pytest.fixture(scope="module")
def data_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "topics"
    formats.write(topics(), folder, "xc-raw")
    return folder


def weights(folder):
    model = Model.load(folder)
    tables = {key: table.weight for key, table in model.network.tables().items()}
    return {**model.network.state_dict(), **tables}


def assert_same(first, second, tolerance):
    for key, value in weights(first).items():
        assert (weights(second)[key] - value).abs().max() <= tolerance, key


def ranks_of(launcher):
    """The processes that a torchrun has started, by rank."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            status = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            variables = dict(
                part.split("=", 1) for part in (entry / "environ").read_bytes().decode().split("\0") if "=" in part
            )
        except (OSError, UnicodeDecodeError):
            continue
        if int(status[1]) == launcher.pid and "RANK" in variables:
            found[int(variables["RANK"])] = int(entry.name)
    return found


def test_a_killed_rank_ends_the_run_and_any_number_of_processes_can_resume(data_folder, tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    arguments = ["train", data_folder, "--recipe", "unidec", *SETTINGS, "--set", "train.epochs=8", "--out"]
    assert run(*arguments, whole).returncode == 0

    # Two processes, of which one is killed as soon as there is a checkpoint.
    survivor, victim = start_together(2, *arguments, broken)
    work = tmp_path / "broken.training"
    wait_until(lambda: list(work.glob("training/checkpoint-*")) or survivor.poll() is not None)
    victim.kill()
    victim.communicate()
    # Soon, where a collective call alone would wait for hours.
    _, said = survivor.communicate(timeout=PATIENCE)
    assert survivor.returncode == 1, said[-3000:]
    assert said.count("unidex: all 2 processes of a run must live") == 1, said[-3000:]
    assert "unidex/training" not in said, "no traceback of ours"
    assert not broken.exists()

    # Its checkpoint was written by two processes: three go on from it, and end where one would have.
    run_together(3, *arguments, broken, "--resume")
    assert_same(whole, broken, 1e-3)
    assert not work.exists()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finding the processes of a run needs /proc")
def test_torchrun_restarts_from_the_last_checkpoint(data_folder, tmp_path):
    arguments = ["train", data_folder, "--recipe", "unidec", *SETTINGS, "--set", "train.epochs=8"]
    run_together(2, *arguments, "--out", tmp_path / "whole")
    launcher = subprocess.Popen(
        torchrun(2, "-m", "unidex", *arguments, "--out", tmp_path / "broken", options=["--max-restarts=1"]),
        env=ENVIRONMENT,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: list((tmp_path / "broken.training").glob("training/checkpoint-*")))
    os.kill(wait_until(lambda: ranks_of(launcher).get(1)), signal.SIGKILL)
    _, said = launcher.communicate(timeout=PATIENCE)
    assert launcher.returncode == 0, said
    assert "Resumed at step" in said
    # The same number of processes adds up in the same order: the same model to the last bit.
    assert_same(tmp_path / "whole", tmp_path / "broken", 0)
