"""``compare``: several recipes on one data set, as tables and one page."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unidex.data.formats import read
from unidex.data.read_options import ReadOptions
from unidex.errors import DataError, UnidexError, quoted
from unidex.report.markdown import as_markdown
from unidex.storage.locks import LockedError, locked
from unidex.verbs.comparison.plan import asked_runs
from unidex.verbs.comparison.records import data_record
from unidex.verbs.comparison.result import NUM_TEXTS, count_of, make_page, make_table, write_file
from unidex.verbs.comparison.runs import Place, run_all
from unidex.verbs.comparison.samples import find_samples


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

    Finished runs in ``out`` are not repeated, and interrupted ones are resumed. The result is the table; "failed" lists
    failed runs.

    ``augments`` are values of augment.method, and seeds are 0 to ``num_seeds`` - 1. A setting is
    ``section.key=value`` for all recipes, or ``RECIPE:section.key=value`` for one.
    """
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise UnidexError("unidex compare starts one process per run itself; call it without torchrun")
    runs = asked_runs(recipes, augments, num_seeds, settings)
    folder, reading = Path(out), reading or ReadOptions()
    dataset = read(data, reading)
    if not len(dataset.test):
        raise DataError(f"data set {quoted(dataset.name)} must have test texts to compare on, but has none")
    about, samples = data_record(dataset), find_samples(dataset, texts, num_texts)
    # The runs read it themselves, and need the memory.
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
            counts = f"{count_of(len(runs) // num_seeds, 'system')}, {count_of(num_seeds, 'seed')}"
            title = f"{about['name']}: {counts}"
            table = make_table(title, about, records, [vars(one) for one in failures], command)
            write_file(folder / "table.json", json.dumps(table, indent=2, ensure_ascii=False) + "\n")
            write_file(folder / "table.md", as_markdown(table))
            write_file(folder / "report.html", make_page(table, records, samples, device))
    except LockedError:
        raise UnidexError(
            f"{folder}: only one comparison at a time may use a folder, but another does; wait, or name another folder"
        ) from None
    return table


def failed_error(table: dict[str, Any]) -> UnidexError:
    """Return the error for failed runs, to raise after the table was shown."""
    first, num_failed = table["failed"][0], len(table["failed"])
    return UnidexError(
        f"{count_of(num_failed, 'run')} failed and are not in the tables: {first['name']}: {first['error']} "
        f"({first['log']}); the same command tries again"
    )


def _command(
    place: Place, recipes: Sequence[str], augments: Sequence[str], num_seeds: int, settings: Sequence[str]
) -> str:
    words = ["unidex", "compare", place.data, *place.reading.flags(), "--recipes", ",".join(recipes)]
    words += ["--augment", ",".join(augments)] if augments else []
    words += ["--seeds", str(num_seeds)] if num_seeds > 1 else []
    words += [word for setting in settings for word in ("--set", setting)]
    return shlex.join([*words, "--out", str(place.folder)])
