"""The runs of the papers' tables: each trains and scores in a process of its own, and is stored as soon as it ends.

A run is a data set, a recipe, settings and a seed. ``runs.jsonl`` has one line per finished run, so that a table that
was stopped continues, and tables that share a run train it once.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from papers_rows import CPU, Row
from unidex.augment.word_changes import with_copies
from unidex.config.recipes import load
from unidex.data.dataset import Dataset
from unidex.data.formats import read
from unidex.data.read_options import ReadOptions
from unidex.pools.pool import Batch, make_batch, whole_batch
from unidex.training import loop, training_set
from unidex.verbs.evaluate import evaluate
from unidex.verbs.score import Scores
from unidex.verbs.train import train

Result = dict[str, Any]

RUNS = "runs.jsonl"
METRICS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5", "R@10", "R@100", "coverage@1", "coverage@3", "coverage@5")
# Settings of a row that are none of a recipe: to train on the texts and changed copies of them, to start from the
# encoder of another recipe, and what the epochs of this row are for.
_COPIES, _ENCODER_OF, EQUAL_STEPS = "copies=", "encoder_of=", "steps=equal"
_WORD_SHARE = 0.1


class Store:
    """The finished runs of a folder, by what was run."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._file = folder, folder / RUNS
        self.runs: dict[str, Result] = {}
        lines = self._file.read_text(encoding="utf-8").splitlines() if self._file.exists() else []
        for line in lines:
            # A line that a kill has cut short is run again.
            if line.endswith("}"):
                run = json.loads(line)
                self.runs[_key(run)] = run

    def get(self, **what: Any) -> Result | None:
        """A finished run."""
        return self.runs.get(_key(what))

    def add(self, run: Result) -> Result:
        """Store a run at once."""
        self.folder.mkdir(parents=True, exist_ok=True)
        cut = self._file.exists() and not self._file.read_bytes().endswith(b"\n")
        with self._file.open("a", encoding="utf-8") as file:
            file.write(("\n" if cut else "") + json.dumps(run) + "\n")
        self.runs[_key(run)] = run
        return run


def _key(run: Result) -> str:
    # A row may repeat a setting for a CPU: that is the same run.
    return json.dumps([run["set"], run["recipe"], sorted({*run["settings"]}), run["seed"]])


@dataclass
class DataSet:
    """A data set as it is named on the command line, FOLDER[:FIELDS[:TEXTS]]; read when it is needed.

    >>> DataSet("data/WinAPISeeAlso:title:8000").name
    'WinAPISeeAlso, title, 8000 texts'
    """

    source: str
    _read: Dataset | None = field(default=None, repr=False)

    @property
    def parts(self) -> tuple[str, str, int]:
        """Folder, fields of a text, and number of train texts; 0 for all."""
        folder, text, count = (*self.source.split(":"), "", "")[:3]
        return folder, text, int(count or 0)

    @property
    def name(self) -> str:
        """Its name in tables: the folder, and the fields and the number of texts where they are not all."""
        folder, text, count = self.parts
        return Path(folder).name + (f", {text}" if text else "") + (f", {count} texts" if count else "")

    @property
    def data(self) -> Dataset:
        """The data set."""
        if self._read is None:
            folder, text, count = self.parts
            found = read(folder, ReadOptions(text=text or "title+content"))
            if count:
                rows = np.sort(np.random.default_rng(0).permutation(len(found.train))[:count])
                found = replace(found, train=found.train.take(rows))
            self._read = found
        return self._read


def settings_of(row: Row, data: DataSet, more: tuple[str, ...] = ()) -> list[str]:
    """All settings of a row over its recipe: for a CPU, those of the row, those of the command line."""
    settings = [*CPU.get(row.recipe, ()), *row.settings, *more]
    if row.equal_steps:
        settings += [EQUAL_STEPS, *_fewer_epochs(row.recipe, settings, data.data)]
    return settings + ([_ENCODER_OF + row.encoder_of] if row.encoder_of else [])


def _fewer_epochs(recipe: str, settings: list[str], data: Dataset) -> list[str]:
    """Epochs over texts and label texts that make about as many steps as the recipe's epochs over texts alone."""
    num_texts = int((np.diff(data.train.positives.indptr) > 0).sum())
    ratio = num_texts / (num_texts + data.num_labels)
    stages = load(recipe, [setting for setting in settings if "." in setting.partition("=")[0]]).in_stages()
    found = []
    for name, config in stages.items():
        if config.pool.batches != "labels":
            where = f"stages.{name}." if len(stages) > 1 else ""
            found.append(f"{where}train.epochs={max(1, round(config.train.epochs * ratio))}")
    return found


def run_row(row: Row, data: DataSet, seed: int, store: Store, more: tuple[str, ...] = ()) -> Result:
    """The run of a row, trained unless it is stored."""
    settings = settings_of(row, data, more)
    what = {"set": data.name, "recipe": row.recipe, "settings": settings, "seed": seed}
    found = store.get(**what)
    if found is not None:
        return found
    if row.encoder_of:
        encoder_folder(row.encoder_of, data, seed, store)
    print(f"{data.name}: {row.name}, seed {seed}", file=sys.stderr, flush=True)
    return store.add(what | in_child(lambda: trained(row.recipe, settings, data, seed, store)))


def encoder_folder(recipe: str, data: DataSet, seed: int, store: Store) -> Path:
    """The model folder whose encoder another row starts from, trained unless it is there."""
    folder = store.folder / "models" / f"{data.name}-{recipe}-{seed}".replace(", ", "-")
    if not folder.exists():
        print(f"{data.name}: encoder of {recipe}, seed {seed}", file=sys.stderr, flush=True)
        in_child(lambda: {"P@1": train(data.data, recipe, seed=seed, out=folder).metrics["test"]["P@1"]})
    return folder


def trained(recipe: str, settings: list[str], data: DataSet, seed: int, store: Store) -> Result:
    """Train and score; to be called in a process of its own."""
    given, dataset = [], data.data
    for setting in settings:
        if setting.startswith(_COPIES):
            dataset = with_copies(dataset, setting.removeprefix(_COPIES), _WORD_SHARE, "wordllama", seed)
        elif setting.startswith(_ENCODER_OF):
            given.append(f"encoder.path={encoder_folder(setting.removeprefix(_ENCODER_OF), data, seed, store)}")
        elif setting != EQUAL_STEPS:
            given.append(setting)
    before = _memory()
    with watching() as watched:
        model = train(dataset, recipe, settings=given, seed=seed)
    result: Result = {
        "steps": model.metrics["training"]["steps"],
        "epochs": model.metrics["training"]["epochs"],
        "CPU s": round(watched.seconds, 1),
        "MB": round(_memory() - before),
        "batch": round(float(np.mean(watched.texts))),
        "pool": round(float(np.mean(watched.pools))),
        # After batches were clustered and negatives mined: the last quarter of the steps.
        "positives": round(float(np.mean(watched.positives[-max(1, len(watched.positives) // 4) :])), 2),
    }
    heads = model.config.heads
    modes = ["both", "dual", "classifier"] if heads.dual and heads.classifier else [""]
    result["test"] = {
        mode: numbers(evaluate(model, data.data, mode=mode or None))  # type: ignore[arg-type]
        for mode in modes
    }
    return result


def numbers(scores: Scores) -> dict[str, float]:
    """The metrics that tables show, and the contribution of each fifth of the pairs by label frequency."""
    found = {name: round(float(scores.metrics[name]), 2) for name in METRICS}
    return found | {f"bin {n + 1}": round(float(group.contribution), 2) for n, group in enumerate(scores.bins)}


def value(run: Result, row: Row, column: str) -> float:
    """One figure of a run: of the run itself, or of test by the row's head."""
    if column in run:
        return float(run[column])
    return float(run["test"][row.mode if row.mode in run["test"] else next(iter(run["test"]))][column])


@dataclass
class Watched:
    """What the training of a run was seen to do."""

    seconds: float = 0.0
    pools: list[int] = field(default_factory=list)
    texts: list[int] = field(default_factory=list)
    positives: list[float] = field(default_factory=list)


@contextmanager
def watching() -> Iterator[Watched]:
    """See how long training takes, and which pools it makes."""
    watched = Watched()
    run = loop.Trainer.run

    def timed(trainer: loop.Trainer, *, resume: bool = False) -> Result:
        started = time.process_time()
        result = run(trainer, resume=resume)
        watched.seconds += time.process_time() - started
        return result

    def seen(make: Callable[..., Batch]) -> Callable[..., Batch]:
        def made(*args: Any, **options: Any) -> Batch:
            batch = make(*args, **options)
            watched.pools.append(len(batch.labels))
            watched.texts.append(len(batch.texts))
            watched.positives.append(batch.targets.num_positives / max(1, len(batch.texts)))
            return batch

        return made

    with (
        mock.patch.object(loop.Trainer, "run", timed),
        mock.patch.object(training_set, "make_batch", seen(make_batch)),
        mock.patch.object(training_set, "whole_batch", seen(whole_batch)),
        mock.patch.object(training_set, "label_batch", seen(training_set.label_batch)),
    ):
        yield watched


def in_child(work: Callable[[], Result]) -> Result:
    """The result of some work in a process of its own: its memory is its own, and a failure ends the table."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def call() -> None:
        sender.send(work())

    process = context.Process(target=call)
    process.start()
    sender.close()
    try:
        result: Result = receiver.recv()
    except EOFError:
        process.join()
        raise SystemExit("the run failed; its error is above. Finished runs are stored: call again.") from None
    process.join()
    return result


def _memory() -> float:
    """Most memory that this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
