"""``predict --engine``: the labels of very many texts, partition by partition, on one process or on many.

A partition is a file, or some row groups of a Parquet file. Each becomes one file of the output folder, which appears
when it is complete. So a run that was interrupted continues with the partitions that are missing, and an engine may
work on them in any order, on any machine, and again after a fault: the files are the same.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from unidex import progress
from unidex.data.formats.table_files import kind_of
from unidex.data.formats.text_source import TextSource, open_texts, table_source
from unidex.data.read_options import ReadOptions
from unidex.errors import DataError, UnidexError, quoted
from unidex.storage.atomic import write_text

logger = logging.getLogger(__name__)

ROWS_PER_PARTITION = 1 << 16
_PLAN = "_partitions.json"


@dataclass(frozen=True)
class Partition:
    """Some texts of the input.

    Attributes:
        number: its place in the input; its file is named by it.
        file: where the texts are.
        row_groups: the row groups of a Parquet file; empty for a whole file.
    """

    number: int
    file: str
    row_groups: tuple[int, ...] = ()


@dataclass(frozen=True)
class BulkJob:
    """What every partition is predicted with; it can be sent to other processes.

    Attributes:
        model: the model folder.
        out: the folder of the results.
        ending: of their files, such as ".parquet".
        reading: which columns hold the texts.
        k: labels per text.
        mode: the heads that are used.
        min_probability: minimum probability of a label.
        long: one row per label instead of one row per text.
    """

    model: str
    out: str
    ending: str
    reading: ReadOptions
    k: int = 5
    mode: str | None = None
    min_probability: str | float | None = None
    long: bool = False

    def target(self, partition: Partition) -> Path:
        """The file of a partition."""
        return Path(self.out) / f"part-{partition.number:05d}{self.ending}"

    def run(self, partition: Partition) -> dict[str, Any]:
        """Predict a partition and write its file; the result counts texts and labels."""
        from dataclasses import replace

        from unidex.verbs.predict_table import predict_table
        from unidex.verbs.predictor import _loaded

        model = _loaded(self.model)
        with _texts(partition, replace(self.reading, trained=model.table_form)) as source:
            return predict_table(
                model, source, self.target(partition), self.k, self.mode, self.min_probability, long=self.long
            )


# Runs partitions and calls the last argument with the result of each that is done.
Engine = Callable[[BulkJob, Sequence[Partition], int, Callable[[dict[str, Any]], None]], None]


def predict_bulk(job: BulkJob, files: Sequence[str], engine: str = "local", num_workers: int = 0) -> dict[str, Any]:
    """Predict all partitions that have no file yet; the result counts what this run has done.

    Args:
        job: model, output and options.
        files: tables, or folders of tables.
        engine: "local" for this process alone, "ray" for actors of Ray.
        num_workers: of the engine; 0 for as many as there are cores.
    """
    partitions = find_partitions(files)
    _check_same_run(job, partitions)
    missing = [partition for partition in partitions if not job.target(partition).exists()]
    if len(missing) < len(partitions):
        logger.info("%d of %d partitions are there already.", len(partitions) - len(missing), len(partitions))
    counts = {"num_texts": 0, "num_labels": 0, "num_without_labels": 0}
    with progress.task("predicting", len(missing), unit="partitions") as advance:

        def done(result: dict[str, Any]) -> None:
            for name in counts:
                counts[name] += result[name]
            advance(1)

        if missing:
            _engine(engine)(job, missing, num_workers, done)
    return {"folder": job.out, "num_partitions": len(partitions), "num_predicted": len(missing), **counts}


def find_partitions(files: Sequence[str]) -> list[Partition]:
    """The partitions of files and of folders of files, in the order of their names."""
    found: list[tuple[str, tuple[int, ...]]] = []
    for name in files:
        path = Path(name)
        inside = sorted(file for file in path.iterdir() if kind_of(file)) if path.is_dir() else [path]
        if not inside:
            raise DataError("a folder of texts must hold tables, but has none", file=path)
        for file in inside:
            if not file.exists():
                raise DataError("texts must be tables or folders of tables, but nothing is here", file=file)
            if kind_of(file) is None:
                raise DataError(
                    "texts for an engine must be tables (.parquet, .jsonl, .csv, .tsv, .xlsx), but this is none; "
                    "convert it",
                    file=file,
                )
            groups = _row_groups(file) if kind_of(file) == "parquet" else [()]
            found += [(str(file.resolve()), group) for group in groups]
    return [Partition(number, file, groups) for number, (file, groups) in enumerate(found)]


def _row_groups(file: Path) -> list[tuple[int, ...]]:
    from unidex.data.formats.table_parquet import ParquetTable

    groups: list[list[int]] = []
    rows = ROWS_PER_PARTITION
    for number, size in enumerate(ParquetTable(file).row_group_sizes()):
        if rows + size > ROWS_PER_PARTITION:
            groups.append([])
            rows = 0
        groups[-1].append(number)
        rows += size
    return [tuple(group) for group in groups] or [()]


@contextmanager
def _texts(partition: Partition, reading: ReadOptions) -> Iterator[TextSource]:
    if not partition.row_groups:
        with open_texts([partition.file], reading) as source:
            yield source
        return
    from unidex.data.formats.table_parquet import ParquetTable

    yield table_source(ParquetTable(Path(partition.file), partition.row_groups), reading)


def _check_same_run(job: BulkJob, partitions: Sequence[Partition]) -> None:
    """Refuse to continue a run with other texts, another model or other options: its files would not fit together."""
    out = Path(job.out)
    manifest = Path(job.model) / "manifest.json"
    about = {
        "job": {name: value for name, value in asdict(job).items() if name != "reading"}
        | {"reading": str(job.reading)},
        "model_changed": manifest.stat().st_mtime_ns if manifest.exists() else 0,
        "partitions": [[part.file, list(part.row_groups), Path(part.file).stat().st_size] for part in partitions],
    }
    text = json.dumps(about, default=str)
    file = out / _PLAN
    if file.exists():
        if file.read_text(encoding="utf-8") != text:
            raise UnidexError(
                f"{out}: a run must be continued with the same model, texts and options, but they differ from those "
                "in it; name another folder or remove it"
            )
        return
    if out.exists() and any(out.iterdir()):
        raise UnidexError(
            f"{out}: the folder must be new or from an interrupted run, but has other files; name another"
        )
    out.mkdir(parents=True, exist_ok=True)
    write_text(file, text)


def _engine(name: str) -> Engine:
    if name == "local":
        return _run_here
    if name == "ray":
        from unidex.verbs.ray_engine import run_on_ray

        return run_on_ray
    raise DataError(f"--engine must be local or ray, but is {quoted(name)}")


def _run_here(
    job: BulkJob, partitions: Sequence[Partition], num_workers: int, done: Callable[[dict[str, Any]], None]
) -> None:
    for partition in partitions:
        done(job.run(partition))
