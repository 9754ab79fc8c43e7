"""The runs of `peers.py`: each system in a process of its own, measured from outside and scored by ``unidex score``.

This process stays small and does no work: the highest memory of a child begins with that of the process it came from.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from peers_report import Row, Task

HERE = Path(__file__).parent
UNIDEX = (sys.executable, "-m", "unidex")
# What training reads of a data set, and what the peers' features are made from.
_TRAIN_FILES = ("trn.json.gz", "lbl.json.gz", "filter_labels_train.txt", "dataset.json")
_RAW_FILES = ("trn.json.gz", "tst.json.gz", "lbl.json.gz")
# Label ids of the test texts, best first, in the folder of each run.
PREDICTIONS = "predictions.npy"
# Folders of the peers' features: words and word bigrams; the same with character n-grams.
_WORDS, _CHARS = "tfidf", "tfidf-chars"


class RunError(Exception):
    """A run that did not end well; the message says which and where its words are."""


@dataclass(frozen=True)
class Peer:
    """A system that is not ours: where it is installed, and how its script is called.

    Attributes:
        title: its name in tables.
        environment: folder of its virtual environment.
        script: file of the script that runs it.
        result: name of what the script writes: RESULT.json and RESULT.npy.
        arguments: what the script takes after the two folders.
        variables: its settings in the environment of the process.
        features: the folder of the TF-IDF features it reads; None where it makes features itself.
    """

    title: str
    environment: str
    script: str
    result: str
    arguments: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    features: str | None = _WORDS

    def file(self, scripts: Path) -> Path:
        """Its script: one of the benchmarks, else one of the given folder."""
        own = HERE / self.script
        return own if own.is_file() else scripts / self.script


_FASTTEXT = (("DIM", "100"), ("EPOCH", "25"), ("LR", "0.5"))
PEERS = {
    "pecos": Peer("PECOS XR-Linear", "libpecos", "run_pecos.py", "pecos-xrlinear-default", ("default",)),
    "parabel": Peer("Omikuji Parabel", "omikuji", "run_omikuji.py", "omikuji-parabel", ("parabel",)),
    "bonsai": Peer("Omikuji Bonsai-style", "omikuji", "run_omikuji.py", "omikuji-bonsai", ("bonsai",)),
    "napkinxc": Peer("napkinXC PLT", "napkinxc", "run_napkinxc.py", "napkinxc-plt"),
    "hs": Peer("fastText hs", "fasttext-wheel", "run_fasttext.py", "fasttext-hs", ("hs",), _FASTTEXT, features=None),
    "ovr": Peer("one-vs-rest SVM, tuned", "libpecos", "one_vs_rest.py", "one-vs-rest"),
}
PEERS |= {
    f"{name}+chars": replace(peer, title=f"{peer.title}, with characters", features=_CHARS)
    for name, peer in PEERS.items()
    if peer.features
}


@dataclass(frozen=True)
class Used:
    """What a process has used, with its waited-for children, and what it printed."""

    cpu_s: float
    wall_s: float
    peak_mb: float
    output: str


def measured(command: Sequence[str | Path], log: Path, variables: dict[str, str], max_cpu_s: int | None = None) -> Used:
    """Run a command to its end; its standard output is kept in LOG.out, its standard error in LOG.log."""
    log.parent.mkdir(parents=True, exist_ok=True)
    out, errors = log.with_name(f"{log.name}.out"), log.with_name(f"{log.name}.log")
    started = time.perf_counter()
    with out.open("w") as stdout, errors.open("w") as stderr:
        process = subprocess.Popen(list(map(str, command)), stdout=stdout, stderr=stderr, env=os.environ | variables)
        if max_cpu_s is not None:
            resource.prlimit(process.pid, resource.RLIMIT_CPU, (max_cpu_s, max_cpu_s))
        try:
            # As RUSAGE_CHILDREN, but of this process alone: the memory there is that of the largest child so far.
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            process.wait()
            raise
    process.returncode = os.waitstatus_to_exitcode(status)
    cpu_s = usage.ru_utime + usage.ru_stime
    if process.returncode < 0 and max_cpu_s is not None and cpu_s >= max_cpu_s - 1:
        raise RunError(f"{command[0]} must end within {max_cpu_s} CPU seconds, but did not")
    if process.returncode != 0:
        last = errors.read_text(errors="replace").strip().rpartition("\n")[2] or "it said nothing"
        raise RunError(f"{command[0]} must end with 0, but ended with {process.returncode}: {last} ({errors})")
    return Used(cpu_s, time.perf_counter() - started, usage.ru_maxrss / 1024, out.read_text())


class Bench:
    """All runs on one task. What an earlier call has finished in its folder is read, not run again."""

    def __init__(
        self,
        source: str,
        text: str,
        keep: Path,
        *,
        num_threads: int,
        max_cpu_s: int | None = None,
        only_predictions: bool = False,
    ) -> None:
        name = Path(source).resolve().name
        self._max_cpu_s = max_cpu_s
        # Without scores and without times of single texts.
        self._only_predictions = only_predictions
        self.folder = keep.resolve() / f"{name}-{text}"
        threads = str(num_threads)
        self.variables = {
            "OMP_NUM_THREADS": threads,
            "OPENBLAS_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
            "TOKENIZERS_PARALLELISM": "false",
            # Threads that wait by spinning would count as work.
            "GOMP_SPINCOUNT": os.environ.get("GOMP_SPINCOUNT", "0"),
            # pip compiles the peers when it installs them; what is compiled here stays too.
            "PYTHONDONTWRITEBYTECODE": "",
        }
        self.data = self.folder / "data"
        self.task = self._prepared(source, name, text)

    def _prepared(self, source: str, name: str, text: str) -> Task:
        """A copy with the wanted fields only, in the raw form that the peers read; all systems are given this one."""
        done = self.folder / "task.json"
        if not done.exists():
            shutil.rmtree(self.data, ignore_errors=True)
            # The built-in set has one field alone.
            fields = () if source == "hpo" else ("--text", text)
            command = (*UNIDEX, "convert", source, self.data, "--to", "xc-raw", *fields, "--json")
            found = json.loads(self._run(command, "convert").output)
            link(self.data, self.folder / "train", _TRAIN_FILES)
            sizes = {key: value for key, value in found.items() if key.startswith("num_")}
            task = {"name": name, "text": text} | sizes
            done.write_text(json.dumps({"source": str(Path(source).resolve()), "task": task}) + "\n")
        kept = json.loads(done.read_text())
        if kept["source"] != str(Path(source).resolve()):
            raise RunError(
                f"{self.folder} must be of {source}, but was made from {kept['source']}; give another --keep"
            )
        return Task(**kept["task"])

    def unidex(self, recipe: str, settings: Sequence[str], title: str) -> Row:
        """Train, score and time unidex."""
        folder = self.folder / unidex_folder(recipe, settings)

        def run() -> Row:
            model = folder / "model"
            options = [word for setting in settings for word in ("--set", setting)]
            # Without the test texts: training would score them, which no peer's training does.
            used = self._run(
                (*UNIDEX, "train", self.folder / "train", "--out", model, "--recipe", recipe, *options),
                folder / "train",
            )
            scores = self._scores("evaluate", model, folder)
            single = ("--single", "1") if self._only_predictions else ()
            times = self._run(
                (
                    sys.executable,
                    HERE / "prediction_time.py",
                    model,
                    self.data,
                    "--save",
                    folder / PREDICTIONS,
                    *single,
                ),
                folder / "prediction_time",
            ).output
            return unidex_row(title, used, json.loads(times), size_mb(model), scores)

        return self._kept(folder, run)

    def peer(self, name: str, environments: Path, scripts: Path) -> Row:
        """Run a peer's script and score what it predicts."""
        peer = PEERS[name]
        folder = self.folder / name

        def run() -> Row:
            features = self._tfidf(peer.features, environments, scripts) if peer.features else None
            python = environments / peer.environment / "bin" / "python"
            data = self.folder / peer.features if peer.features else self.data
            self._run((python, peer.file(scripts), data, folder, *peer.arguments), folder / "run", peer.variables)
            predictions = (folder / f"{peer.result}.npy").rename(folder / PREDICTIONS)
            scores = self._scores("score", predictions, folder)
            record = read_record(folder / f"{peer.result}.json")
            return peer_row(peer.title, record, features, self.task.num_test, scores)

        return self._kept(folder, run)

    def _scores(self, verb: str, scored: Path, folder: Path) -> dict[str, Any]:
        """What a verb prints about a model or predictions; nothing where only predictions are wanted."""
        if self._only_predictions:
            return {}
        found: dict[str, Any] = json.loads(
            self._run((*UNIDEX, verb, scored, self.data, "--json"), folder / verb).output
        )
        return found

    def _tfidf(self, name: str, environments: Path, scripts: Path) -> dict[str, float]:
        """The features that most peers read, in a folder beside the data; the result is their CPU seconds."""
        folder = self.folder / name
        done = folder / "features.json"
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            link(self.data, folder, _RAW_FILES)
            has_sklearn = importlib.util.find_spec("sklearn") is not None
            python = sys.executable if has_sklearn else environments / "libpecos" / "bin" / "python"
            command = (python, HERE / "peers_tfidf.py", scripts / "prep_tfidf.py", folder)
            used = self._run(command, folder / "prep", [("CHARS", "1" if name == _CHARS else "")])
            found = json.loads(used.output.strip().rpartition("\n")[2])
            done.write_text(json.dumps(found | {"whole_process_cpu_s": used.cpu_s}) + "\n")
        features: dict[str, float] = json.loads(done.read_text())
        return features

    def _run(self, command: Sequence[str | Path], log: str | Path, variables: Sequence[tuple[str, str]] = ()) -> Used:
        return measured(command, self.folder / log, self.variables | dict(variables), self._max_cpu_s)

    def _kept(self, folder: Path, run: Callable[[], Row]) -> Row:
        done = folder / "row.json"
        if not done.exists():
            print(f"{self.task.name}, {self.task.text}: {folder.name}", file=sys.stderr, flush=True)
            # What a stopped run has left.
            shutil.rmtree(folder, ignore_errors=True)
            row = run()
            done.write_text(json.dumps(row.as_dict()) + "\n")
        return Row(**json.loads(done.read_text()))


def unidex_folder(recipe: str, settings: Sequence[str]) -> str:
    """The name of the folder of a run of unidex."""
    return re.sub(r"[^\w.=-]+", "_", "-".join(["unidex", Path(recipe).stem, *settings]))


def read_record(file: Path) -> dict[str, Any]:
    """What a peer's script has written about its run."""
    record: dict[str, Any] = json.loads(file.read_text())
    needed = ("train_cpu_s", "pred_cpu_s_per_1000", "peak_rss_mb", "model_mb")
    missing = [name for name in needed if not isinstance(record.get(name), (int, float))]
    if missing:
        raise RunError(f"{file}: {', '.join(missing)} must be numbers, but are not; run the peer's script again")
    return record


def peer_row(
    title: str, record: dict[str, Any], features: dict[str, float] | None, num_test: int, scores: dict[str, Any]
) -> Row:
    """A row from what a peer's script has written, from its features' CPU seconds and from its scores."""
    return Row(
        system=title,
        ours=False,
        train_cpu_s=record["train_cpu_s"],
        features_cpu_s=None if features is None else features["train_cpu_s"],
        predict_cpu_ms=record["pred_cpu_s_per_1000"],  # seconds of 1000 texts are milliseconds of one
        features_cpu_ms=None if features is None else features["test_cpu_s"] / num_test * 1e3,
        peak_mb=record["peak_rss_mb"],
        model_mb=record["model_mb"],
        metrics=percents(scores),
    )


def unidex_row(title: str, used: Used, times: dict[str, Any], model_mb: float, scores: dict[str, Any]) -> Row:
    """A row of ours: training as the whole process has used it, features and all."""
    batch = times["batch"]
    return Row(
        system=title,
        ours=True,
        train_cpu_s=used.cpu_s,
        features_cpu_s=None,
        predict_cpu_ms=batch["cpu_s"] / batch["num_texts"] * 1e3,
        features_cpu_ms=None,
        peak_mb=used.peak_mb,
        model_mb=model_mb,
        metrics=percents(scores),
        single_ms={name: times["single_ms"][name] for name in ("median", "p99", "cpu")},
    )


def percents(scores: dict[str, Any]) -> dict[str, float]:
    """The metrics among what ``unidex score --json`` prints."""
    return {name: value for name, value in scores.items() if "@" in name}


def size_mb(folder: Path) -> float:
    """The size of all files of a folder, in millions of bytes."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6


def link(source: Path, folder: Path, names: Sequence[str]) -> None:
    """A folder with links to some files of another, where they are there."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in names:
        if (source / name).exists():
            (folder / name).symlink_to(source / name)
