"""``train``: a model from a data set."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unidex import progress
from unidex.config.recipes import load as load_config
from unidex.data.dataset import Dataset
from unidex.data.formats import read
from unidex.data.read_options import ReadOptions
from unidex.data.summary import cautions
from unidex.errors import DataError, UnidexError, quoted
from unidex.storage.allocator import keep_freed_memory, lasting_objects
from unidex.verbs.evaluate import evaluate
from unidex.verbs.models import choose_device, load_model
from unidex.verbs.plan import check_fits

if TYPE_CHECKING:
    from unidex.model.model import Model

logger = logging.getLogger(__name__)


def train(
    data: Any,
    recipe: str | Path = "auto",
    *,
    text: str | None = None,
    labels: str | None = None,
    title: str | None = None,
    content: str | None = None,
    uid: str | None = None,
    separator: str | None = None,
    test_fraction: float | None = None,
    out: str | Path | None = None,
    settings: Sequence[str] = (),
    seed: int = 0,
    device: str = "auto",
    resume: bool = False,
    reading: ReadOptions | None = None,
    force: bool = False,
) -> Model:
    """Train a model on the train texts of a data set, and score it on its test texts where it has some.

    Args:
        data: a data set, a file or folder, a pandas or polars data frame, or a list of (text, labels).
        text: the column of the texts, if its name does not tell.
        labels: the column of the labels, as lists or as strings with a separator.
        title: the column of titles, if a text is a title and a content.
        content: the column of contents.
        uid: the column of the users' own names of texts.
        separator: what separates labels in one cell.
        test_fraction: share of the rows that become test texts, 0.2 unless there is a table of test texts.
        recipe: name of a recipe or a TOML file.
        out: the model folder to write, or None to keep the model in memory only.
        settings: ``section.key=value`` over the recipe.
        seed: the same seed gives the same model.
        device: "cpu", "cuda" or another of torch's, or "auto".
        resume: continue an interrupted run with the same ``out``.
        reading: how to read ``data``, with all options of the command line.
        force: train also if memory or disk seem too small (``unidex plan``).
    """
    named = {"text": text, "labels": labels, "title": title, "content": content, "uid": uid}
    columns = {role: name for role, name in named.items() if name is not None}
    more = {"separator": separator, "test_fraction": test_fraction}
    given = {name: value for name, value in more.items() if value is not None}
    if columns or given:
        reading = reading or ReadOptions()
        reading = replace(reading, columns={**reading.columns, **columns}, **given)  # type: ignore[arg-type]
    model = train_together(
        data, recipe, out=out, settings=settings, seed=seed, device=device, resume=resume, reading=reading, force=force
    )
    if model is not None:
        return model
    if out is None:
        raise UnidexError(
            "only the first of several processes has the model; give --out, so that the others can read it"
        )
    return load_model(Path(out), device)


def train_together(
    data: Any,
    recipe: str | Path = "auto",
    *,
    out: str | Path | None = None,
    settings: Sequence[str] = (),
    seed: int = 0,
    device: str = "auto",
    resume: bool = False,
    reading: ReadOptions | None = None,
    force: bool = False,
) -> Model | None:
    """Train as `train` does; of several processes that torchrun started, only the first gets the model, others None."""
    import unidex.verbs.registered_methods  # noqa: F401 - the model that is returned has all of its methods
    from unidex import distributed
    from unidex.training.log import read_log
    from unidex.training.phases import phases
    from unidex.training.run import Run
    from unidex.training.timetable import PREPARE, TEST, timetable

    keep_freed_memory()
    config = load_config(recipe, list(settings))
    where = choose_device(distributed.local_device(device))
    folder = None if out is None else Path(out)
    work = None if folder is None else folder.with_name(f"{folder.name}.training")
    with lasting_objects(), distributed.process_group(where) as processes:
        # A run that torchrun restarted resumes on all ranks together: each torchrun counts restarts for itself.
        resume = processes.any(resume or distributed.was_restarted())
        if folder is not None and folder.exists():
            if resume:
                logger.info("%s is finished already; there is nothing to resume", folder)
                return load_model(folder, device) if processes.is_first else None
            raise UnidexError(f"{folder}: the model folder must be new, but exists; name another or remove it")
        if work is not None and work.exists() and not resume:
            if any(work.glob("*/checkpoint-*")):
                raise UnidexError(
                    f"{work}: an interrupted run is here; continue it with --resume, or delete the folder"
                )
            # No process may make a new folder before all have seen the old one.
            processes.barrier()
            shutil.rmtree(work, ignore_errors=True)
        processes.barrier()
        dataset = data if isinstance(data, Dataset) else read(data, reading)
        if not dataset.train.texts.num_bytes:
            raise DataError(
                f"data set {quoted(dataset.name)} must have texts to train on, but all are empty; a set of "
                "sparse features alone can be inspected, converted and scored, not trained on"
            )
        logger.info(
            "Data: %d train texts, %d labels, %d test texts. Recipe: %s, on %s.",
            len(dataset.train),
            dataset.num_labels,
            len(dataset.test),
            config.recipe,
            where,
        )
        if not force:
            check_fits(dataset, config, Path() if folder is None else folder, processes.size)
        if processes.is_first:
            for caution in cautions(dataset):
                logger.warning("%s", caution)
        with progress.plan("training", timetable(config, dataset)):
            with progress.phase(PREPARE):
                run = Run(dataset, config, seed=seed, device=where, folder=work, processes=processes)
            model = run.model(resume=resume)
            if model is None:
                return None
            if len(dataset.test):
                with progress.phase(TEST):
                    model.metrics["test"] = evaluate(model, dataset, with_train_texts=True).as_dict()
        if folder is not None and work is not None:
            model.log = read_log(work, phases(config))
            model.save(folder)
            for board in work.glob("*/tensorboard"):
                shutil.move(board, folder / "tensorboard" / board.parent.name)
            shutil.rmtree(work, ignore_errors=True)
    return model
