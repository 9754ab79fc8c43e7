"""Verbs that are killed at random moments: what was there is whole, and the next run of the verb succeeds.

Run: python benchmarks/killed_verbs.py [--moments 50] [--verbs train,compare] [--seed 0] [--json]

Each verb is killed with SIGKILL at moments drawn between its start and its usual end, by its own CPU time, so that
other jobs of the machine move no moment. After each kill:

1. a model that was there is the old one or the complete new one: it loads, with all its hashes;
2. a new folder is missing or complete;
3. the verb runs again, and succeeds;
4. the result is that of a run that was never killed: for train the same bytes, for labels the same labels;
5. no hidden file is left beside the results, except locks.

The verbs run in processes forked from this one, which has imported everything, so that a moment costs a second.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import unidex.cli.main
import unidex.verbs.train
from unidex.data import formats
from unidex.model.model import Model

QUICK = ("encoder.dim=16", "features.min_df=1", "train.epochs=4", "train.batch_size=32", "train.checkpoint_every=2")
TRAINED = (*QUICK, "train.validation=0.2", "predict.knn=0.1", "predict.choose_knn=false", "predict.snippet_length=20")
NEW_LABEL = "a label that is new"
# What verbs import at their first use.
IMPORTED = ("torch", "faiss", "pyarrow.parquet", "unidex.training.run", "unidex.encoders.bag", "unidex.verbs.labels")


@dataclass(frozen=True)
class Verb:
    """A verb to kill.

    Attributes:
        arguments: of the command line, by the folder in which it works.
        check: raises AssertionError where the folder after a kill is neither old nor new.
        again: the arguments after a kill.
        may_refuse: whether the second run may say that there is nothing to do.
        result: what must be the same after any kill.
    """

    arguments: Callable[[Path], list[str]]
    check: Callable[[Path], object]
    again: Callable[[Path], list[str]]
    result: Callable[[Path], object]
    may_refuse: bool = False


def settings(names: tuple[str, ...]) -> list[str]:
    return [word for name in names for word in ("--set", name)]


def train(place: Path) -> list[str]:
    return ["train", str(place / "data"), "--out", str(place / "new"), "--recipe", "unidec", *settings(QUICK)]


def compare(place: Path) -> list[str]:
    chosen = settings((*QUICK, "train.epochs=2"))
    return ["compare", str(place / "data"), "--recipes", "unidec", *chosen, "--out", str(place / "compared")]


def export(place: Path) -> list[str]:
    return ["export", str(place / "model"), "--to", "parquet", "--out", str(place / "exported")]


def labels_of(place: Path) -> list[str]:
    return list(Model.load(place / "model").labels.uids)


def is_missing_or_a_model(folder: Path) -> None:
    if folder.exists():
        Model.load(folder)


def digest(folder: Path) -> str:
    """One hash of what training decides; times differ."""
    names = ("encoder.safetensors", "classifier.safetensors", "labels.jsonl", "config.toml")
    files = [folder / name for name in names if (folder / name).exists()]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def parquet_of(place: Path) -> bytes:
    return (place / "exported" / "labels.parquet").read_bytes()


def is_missing_or_exported(place: Path) -> None:
    if (place / "exported").exists():
        assert {file.name for file in (place / "exported").iterdir()} >= {"labels.parquet", "export.json"}


VERBS = {
    "train": Verb(
        train,
        lambda place: is_missing_or_a_model(place / "new"),
        lambda place: [*train(place), "--resume"],
        lambda place: digest(place / "new"),
    ),
    "labels-add": Verb(
        lambda place: ["labels", "add", str(place / "model"), NEW_LABEL],
        labels_of,
        lambda place: ["labels", "add", str(place / "model"), NEW_LABEL],
        labels_of,
        may_refuse=True,
    ),
    "teach": Verb(
        lambda place: ["labels", "teach", str(place / "model"), str(place / "pairs.jsonl")],
        labels_of,
        lambda place: ["labels", "teach", str(place / "model"), str(place / "pairs.jsonl")],
        labels_of,
    ),
    "calibrate": Verb(
        lambda place: ["calibrate", str(place / "model"), str(place / "data"), "--with-train-texts"],
        labels_of,
        lambda place: ["calibrate", str(place / "model"), str(place / "data"), "--with-train-texts"],
        lambda place: Model.load(place / "model").scorer.calibration is not None,
    ),
    "compare": Verb(
        compare,
        lambda place: is_missing_or_a_model(place / "compared" / "runs" / "unidec-none-0"),
        compare,
        lambda place: digest(place / "compared" / "runs" / "unidec-none-0"),
    ),
    "export": Verb(export, is_missing_or_exported, export, parquet_of, may_refuse=True),
}


def start(arguments: list[str], log: Path) -> int:
    """Fork a process that runs the command line; its number."""
    process = os.fork()
    if process:
        return process
    code = 3
    try:
        with log.open("wb") as out:
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
        sys.stdout, sys.stderr = open(1, "w"), open(2, "w")  # noqa: SIM115
        sys.argv = ["unidex", *arguments]
        unidex.cli.main.main()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def finish(process: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def used_by(process: int) -> float:
    """CPU seconds of a process and of the processes that it started; 0 for one that has just ended."""
    try:
        seconds = time.clock_gettime((~process << 3) | 2)  # the CPU clock of a process (clock_getcpuclockid)
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return 0.0
    of_ended = (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")
    return seconds + of_ended + sum(used_by(int(child)) for child in children)


def wait_until(process: int, cpu_seconds: float) -> None:
    """Wait until a process has used this much CPU time, or has ended and waits to be asked for its exit code."""
    while used_by(process) < cpu_seconds:
        if os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return
        time.sleep(0.002)


def run(arguments: list[str], log: Path) -> int:
    return finish(start(arguments, log))


def strays(place: Path) -> list[str]:
    """Hidden files beside the results, except locks, and work folders of finished runs."""
    found = [path for path in place.rglob("*") if path.name.startswith(".") or path.name.endswith(".training")]
    return sorted(str(path.relative_to(place)) for path in found if not path.name.endswith(".lock"))


def prepare(place: Path) -> None:
    """A data set, a model and pairs to teach."""
    rng = random.Random(0)
    words = [f"w{number}" for number in range(60)]
    rows = []
    for number in range(400):
        label = number % 12
        text = " ".join([words[2 * label], words[2 * label + 1], *rng.choices(words[24:], k=3)])
        rows.append({"text": text, "labels": [f"{words[2 * label]} {words[2 * label + 1]}"]})
    (place / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (place / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:3]))
    formats.write(formats.read(place / "rows.jsonl"), place / "data", "unidex")
    command = ["train", str(place / "data"), "--out", str(place / "model"), "--recipe", "unidec", *settings(TRAINED)]
    assert run(command, place / "log") == 0, (place / "log").read_text()


def killed(verb: Verb, initial: Path, place: Path, moment: float, expected: object) -> bool:
    """Kill a verb after this many CPU seconds, and check everything; whether it was killed before its end."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(initial, place)
    process = start(verb.arguments(place), place / "log")
    wait_until(process, moment)
    os.kill(process, signal.SIGKILL)
    in_time = finish(process) == -signal.SIGKILL
    verb.check(place)
    code = run(verb.again(place), place / "log")
    told = (place / "log").read_text(errors="replace")
    assert "Traceback" not in told, told
    assert code == 0 or (verb.may_refuse and code == 1), told
    assert verb.result(place) == expected, "the result is not that of a run that was never killed"
    assert not strays(place), strays(place)
    return in_time


def measure(name: str, initial: Path, work: Path, num_moments: int, seed: int) -> dict[str, float]:
    verb, rng = VERBS[name], random.Random(seed)
    place = work / "place"
    shutil.copytree(initial, place)
    before = os.times()
    assert run(verb.arguments(place), place / "log") == 0, (place / "log").read_text()
    after = os.times()
    usual = after.children_user + after.children_system - before.children_user - before.children_system
    expected = verb.result(place)
    assert not strays(place), strays(place)
    in_time = 0
    for number in range(num_moments):
        moment = rng.uniform(0, usual)
        try:
            in_time += killed(verb, initial, place, moment, expected)
        except AssertionError as error:
            raise SystemExit(f"{name}, moment {number} of seed {seed}, after {moment:.3f} CPU s: {error}") from error
    return {"moments": num_moments, "killed before the end": in_time, "CPU seconds of a whole run": round(usual, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moments", type=int, default=50)
    parser.add_argument("--verbs", default=",".join(VERBS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    for name in IMPORTED:
        importlib.import_module(name)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "initial").mkdir()
        prepare(work / "initial")
        found = {}
        for name in chosen.verbs.split(","):
            found[name] = measure(name, work / "initial", work / name, chosen.moments, chosen.seed)
            if not chosen.json:
                print(f"{name}: " + ", ".join(f"{what} {value:g}" for what, value in found[name].items()), flush=True)
    if chosen.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
