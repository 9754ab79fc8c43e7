"""``compare`` and ``report`` as functions: runs and models in, tables and one page out."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unidex.data.dataset import Dataset
from unidex.data.formats import read
from unidex.data.read_options import ReadOptions
from unidex.errors import DataError, ModelError, UnidexError, quoted
from unidex.report.html import as_html
from unidex.report.markdown import as_markdown
from unidex.report.systems import systems_of
from unidex.storage.atomic import write_text
from unidex.storage.locks import LockedError, locked
from unidex.verbs.comparison.plan import Asked, asked_runs
from unidex.verbs.comparison.records import data_record, model_record, read_curve, record_file, versions
from unidex.verbs.comparison.runs import Place, run_all
from unidex.verbs.comparison.samples import Sample, chosen_samples, read_samples, side_by_side

NUM_TEXTS = 4


class RunsFailedError(UnidexError):
    """Some runs of a comparison failed; the tables of the others are written."""


def compare(
    data: str | Path,
    recipes: Sequence[str],
    *,
    out: str | Path,
    augments: Sequence[str] = (),
    num_seeds: int = 1,
    settings: Sequence[str] = (),
    texts: Path | None = None,
    num_texts: int = NUM_TEXTS,
    device: str = "auto",
    reading: ReadOptions | None = None,
) -> dict[str, Any]:
    """Train recipes on a data set, each run in a process of its own, and write table.md, table.json and report.html.

    What is done in ``out`` is not done again; a run that was stopped goes on where it was. The result is the table;
    runs that failed stand under "failed".

    Args:
        data: where to read the data set.
        recipes: names of recipes or TOML files.
        out: the folder of the comparison.
        augments: values of augment.method; without any, each recipe has its own.
        num_seeds: seeds are 0 to this - 1.
        settings: ``section.key=value`` for all recipes, ``RECIPE:section.key=value`` for one.
        texts: a file of texts whose predictions are shown side by side.
        num_texts: without such a file, so many test texts are drawn.
        device: where to train.
        reading: how to read ``data``.
    """
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise UnidexError("unidex compare starts a process a run by itself; call it without torchrun")
    runs = asked_runs(recipes, augments, num_seeds, settings)
    folder, reading = Path(out), reading or ReadOptions()
    dataset = read(data, reading)
    if not len(dataset.test):
        raise DataError(f"data set {quoted(dataset.name)} must have test texts to compare on, but has none")
    about, samples = data_record(dataset), _samples(dataset, texts, num_texts)
    # The runs read it themselves: their memory is not to be short because of ours.
    del dataset
    place = Place(folder, str(data), reading, about["fingerprint"], device)
    work = folder / "work"
    work.mkdir(parents=True, exist_ok=True)
    try:
        with locked(work / "compare", wait_seconds=0.0):
            for asked in runs:
                place.check(asked)
            failures = run_all(place, runs)
            records = [record for asked in runs if (record := place.record(asked)) is not None]
            command = _command(place, recipes, augments, num_seeds, settings)
            table = _table(
                f"{about['name']}: {_counted(runs)}", about, records, [vars(one) for one in failures], command
            )
            _write(folder / "table.json", json.dumps(table, indent=2, ensure_ascii=False) + "\n")
            _write(folder / "table.md", as_markdown(table))
            _write(folder / "report.html", _page(table, records, samples, device))
    except LockedError:
        raise UnidexError(
            f"{folder}: only one comparison at a time may work in a folder, but another does; wait, or name another"
        ) from None
    return table


def report(
    models: Sequence[Path],
    *,
    out: Path,
    data: str | Path | None = None,
    texts: Path | None = None,
    num_texts: int = NUM_TEXTS,
    device: str = "auto",
    reading: ReadOptions | None = None,
) -> dict[str, Any]:
    """Write the page of a comparison for finished models of one data set; the result is its table.

    Args:
        models: model folders, or folders of comparisons, for all that is finished in them.
        out: the HTML file to write.
        data: the data set, to score models that were not scored, and to draw test texts from.
        texts: a file of texts whose predictions are shown side by side.
        num_texts: without such a file, so many test texts are drawn.
        device: where to predict.
        reading: how to read ``data``.
    """
    if not models:
        raise ModelError("there must be at least one model folder, but there is none")
    if len({folder.resolve() for folder in models}) < len(models):
        raise ModelError("each model folder must be named only once, but one is named twice")
    if data is None:
        (reading or ReadOptions()).refuse_others((), "models without --data")
    dataset = None if data is None else read(data, reading)
    about = {} if dataset is None else data_record(dataset)
    folders = [folder for given in models for folder in models_in(given)]
    records = [_scored(model_record(folder), dataset, about, device) for folder in folders]
    about = about or max((record["data"] for record in records), key=len)
    for record in records:
        _check_data(record, about)
    samples = _samples(dataset, texts, num_texts)
    table = _table(f"{about['name'] or 'no name'}: {_several(len(records), 'model')}", about, records, [], "")
    _write(out, _page(table, records, samples, device))
    return table


def failed_error(table: dict[str, Any]) -> RunsFailedError:
    """What to say of runs that failed, once the table was shown."""
    first, num_failed = table["failed"][0], len(table["failed"])
    return RunsFailedError(
        f"{_several(num_failed, 'run')} failed, the tables are without: {first['name']}: {first['error']} "
        f"({first['log']}); the same command tries again"
    )


def _samples(dataset: Dataset | None, file: Path | None, num_texts: int) -> list[Sample]:
    if file is not None:
        return read_samples(file, dataset)
    return [] if dataset is None else chosen_samples(dataset, num_texts)


def models_in(folder: Path) -> list[Path]:
    """A model folder itself, or of the folder of a comparison the models of its finished runs."""
    runs = folder / "runs"
    if not runs.is_dir() or (folder / "manifest.json").exists():
        return [folder]
    found = [model for model in runs.iterdir() if model.is_dir() and record_file(model).exists()]
    if not found:
        raise ModelError(f"{folder}: a comparison must have a finished run, but has none")
    return sorted(found, key=_recipe_first)


def _recipe_first(model: Path) -> tuple[str, bool, str]:
    """By recipe, and of each the plain one before those with augmentation."""
    recipe, augment = model.name, "none"
    try:
        record = json.loads(record_file(model).read_text(encoding="utf-8"))
        recipe, augment = str(record["recipe"]), str(record["augment"])
    except (OSError, ValueError, LookupError, TypeError):
        pass  # whoever reads the record says what is wrong with it
    return recipe, augment != "none", model.name


def _scored(record: dict[str, Any], dataset: Dataset | None, about: dict[str, Any], device: str) -> dict[str, Any]:
    """A record with scores on test: its own, or where it has none those on the data set."""
    if record["data"]["fingerprint"] is not None and record["test"] is not None:
        return record
    if dataset is not None:
        from unidex.verbs.pipeline import evaluate, load_model

        scores = evaluate(load_model(Path(record["folder"]), device), dataset).as_dict()
        return record | {"test": scores, "data": about}
    if record["test"] is None:
        raise ModelError(f"{record['folder']}: the model must have been scored on test texts, but was not; give --data")
    return record


def _check_data(record: dict[str, Any], about: dict[str, Any]) -> None:
    own = record["data"]
    known = [key for key in ("fingerprint", "name", "num_train") if None not in (own.get(key), about.get(key))]
    # The name is a folder's, where there is a better sign.
    sign = "fingerprint" if "fingerprint" in known else None
    if any(own[key] != about[key] for key in ([sign] if sign else known)):
        raise ModelError(
            f"{record['folder']}: models in one report must be of one data set, but this is of {quoted(own['name'])} "
            f"({own['num_train']:,} train texts) and not as {quoted(about['name'])}"
        )


def _table(
    title: str, data: dict[str, Any], records: list[dict[str, Any]], failed: list[dict[str, Any]], command: str
) -> dict[str, Any]:
    return {
        "title": title,
        "data": data,
        "systems": systems_of(records),
        "failed": failed,
        "command": command,
        "versions": versions(),
    }


def _page(table: dict[str, Any], records: list[dict[str, Any]], samples: list[Sample], device: str) -> str:
    curves = {record["folder"]: read_curve(Path(record["folder"])) for record in records}
    # The first seed speaks for its system.
    speakers = [(system["name"], Path(system["runs"][0]["folder"])) for system in table["systems"]]
    return as_html(table, curves, side_by_side(speakers, samples, device))


def _write(file: Path, content: str) -> None:
    try:
        # What a file name holds may be no text.
        write_text(file, content, errors="replace")
    except OSError as error:
        raise UnidexError(f"{file}: the file cannot be written ({error.strerror}); name another") from None


def _command(
    place: Place, recipes: Sequence[str], augments: Sequence[str], num_seeds: int, settings: Sequence[str]
) -> str:
    words = ["unidex", "compare", place.data, *place.reading.flags(), "--recipes", ",".join(recipes)]
    words += ["--augment", ",".join(augments)] if augments else []
    words += ["--seeds", str(num_seeds)] if num_seeds > 1 else []
    words += [word for setting in settings for word in ("--set", setting)]
    return shlex.join([*words, "--out", str(place.folder)])


def _counted(runs: Sequence[Asked]) -> str:
    num_seeds = len({run.seed for run in runs})
    return f"{_several(len(runs) // num_seeds, 'system')}, {_several(num_seeds, 'seed')}"


def _several(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
