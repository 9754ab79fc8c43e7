"""The formats, found by what is in a folder or file: one way in (``read``) and one way out (``write``)."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from unidex.data.concept_file import read_concepts, write_concepts
from unidex.data.dataset import Dataset, Propensity
from unidex.data.formats.skos import is_vocabulary
from unidex.data.formats.table_frame import is_frame
from unidex.data.read_options import ReadOptions
from unidex.errors import DataError, listed, quoted
from unidex.storage.atomic import check_new_folder, write_folder
from unidex.storage.disk_errors import reason_and_remedy

METADATA = "dataset.json"
BUILT_IN = "hpo"

_logger = logging.getLogger(__name__)
_LARGE = 1e9  # above any propensity constant; also excludes whole numbers that no float can hold

# In the order in which they are tried: the most specific first. A name is a module of this package, or a value in one.
_READERS = {
    "unidex": "native",
    "xc-raw": "xc_raw",
    "dexml": "text_lines.DEXML",
    "pecos": "text_lines.PECOS",
    "xclib": "text_lines.XCLIB",
    "bag-of-words": "bag_of_words",
    "annif": "annif",
    "libmultilabel": "libmultilabel",
    "table": "table",
}
_WRITERS = {
    "xc-raw": "xc_raw",
    "pecos": "text_lines.PECOS",
    "dexml": "text_lines.DEXML",
    "xclib": "text_lines.XCLIB",
    "jsonl": "jsonl",
    "unidex": "native",
}
# The options that each format uses; any other is refused.
_ALWAYS = ("format", "propensity_a", "propensity_b")
_TABLE = ("text", "columns", "separator", "test", "labels", "language", "strict", "test_fraction", "split_seed")
_CORPUS = ("test", "labels", "language", "strict", "test_fraction", "split_seed")
_USED_OPTIONS = {
    "xc-raw": ("text",),
    "bag-of-words": ("test",),
    "annif": _CORPUS,
    "libmultilabel": _TABLE,
    "table": _TABLE,
}
READ_FORMATS = tuple(_READERS)
WRITE_FORMATS = tuple(_WRITERS)


def _format(where: str) -> Any:
    """An object with ``detects(path)``, ``read(path, options)`` and ``write(dataset, folder)``, or some of them."""
    module, _, value = where.partition(".")
    found = import_module(f"{__name__}.{module}")
    return getattr(found, value) if value else found


def detect(path: Path) -> str:
    """The name of the format of a folder or file."""
    for name, where in _READERS.items():
        if _format(where).detects(path):
            return name
    if path.is_file() and is_vocabulary(path):
        raise DataError(
            "DATA must be texts with labels, but this is a vocabulary of labels; give it as --labels", file=path
        )
    inside = listed(entry.name for entry in path.iterdir()) if path.is_dir() else ""
    what = f"holds {inside or 'nothing'}" if path.is_dir() else "is of no known kind"
    raise DataError(
        f"no known data format fits: this {'folder' if path.is_dir() else 'file'} {what}; "
        f"name one with --format ({', '.join(READ_FORMATS)}), see docs/reference/data-formats.md",
        file=path,
    )


def read(source: Any, options: ReadOptions | None = None) -> Dataset:
    """Read a data set from a folder or a file, from the built-in one named ``hpo``, or from a table in memory.

    Args:
        source: a path, ``hpo``, or a table: a pandas or polars data frame, a dict of columns, or a list of
            (text, labels).
        options: columns, separators, splits and the like; the format of a file is detected by its content.

    Raises:
        DataError: with file and line, where the source is not what it must be.
    """
    options = options or ReadOptions()
    if is_frame(source):
        options.refuse_others((*_ALWAYS[1:], *_TABLE), "a data frame")
        return _described(_format("table").read_frame(source, options), None, options)
    if str(source) == BUILT_IN:
        from unidex.data import hpo

        options.refuse_others(_ALWAYS[1:], f"the built-in data set {BUILT_IN!r}")
        return _described(hpo.load(), None, options)
    path = Path(source)
    try:
        return _read(path, options)
    except DataError as error:
        if error.file is not None or str(error).startswith("--"):
            raise
        raise DataError(str(error), file=path) from None
    except OSError as error:
        raise DataError(
            f"the data set cannot be read ({error.strerror or error})", file=error.filename or path
        ) from None


def _read(path: Path, options: ReadOptions) -> Dataset:
    if not path.exists():
        raise DataError(f"a data set must be a folder, a file or {BUILT_IN!r}, but this does not exist", file=path)
    # Columns can only be meant for a table, whatever else the file might look like.
    name = options.format or ("table" if options.columns else detect(path))
    if name not in _READERS:
        name = "table" if name in ("jsonl", "csv", "tsv", "parquet", "xlsx") else name
    if name not in _READERS:
        raise DataError(f"--format must be one of {', '.join(READ_FORMATS)}, but is {quoted(name)}")
    options.refuse_others((*_ALWAYS, *_USED_OPTIONS.get(name, ())), f"the format {name}")
    _logger.info("%s: format %s%s", path, name, "" if options.format else " (detected; --format names another)")
    dataset: Dataset = _format(_READERS[name]).read(path, options)
    if path.is_dir() and (concepts := read_concepts(path, dataset.num_labels)):
        dataset = replace(dataset, labels=replace(dataset.labels, concepts=concepts))
    return _described(dataset, path / METADATA if path.is_dir() else None, options)


def write(dataset: Dataset, folder: Path, name: str) -> None:
    """Write a data set in a format: complete, or not at all."""
    check_target(folder, name)
    if name in ("xc-raw", "jsonl") and any(split.features is not None for split in dataset.splits):
        _logger.warning("%s has no place for sparse features: they are left out", name)
    try:
        # Renaming replaces an empty folder in one step: there is never half a data set under the name.
        with write_folder(folder, replace=False) as unfinished:
            _format(_WRITERS[name]).write(dataset, unfinished)
            if name != "jsonl":  # whose table of labels has the concepts
                write_concepts(unfinished, dataset.labels.concepts)
            propensity = {"a": dataset.propensity.a, "b": dataset.propensity.b}
            metadata = {"name": dataset.name, "propensity": propensity}
            (unfinished / METADATA).write_text(json.dumps(metadata, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        reason, remedy = reason_and_remedy(error) or (error.strerror or error, "write elsewhere")
        raise DataError(
            f"the data set cannot be written ({reason}); {remedy}; nothing is left behind", file=folder
        ) from None


def check_target(folder: Path, name: str) -> None:
    """Refuse a format or a folder that cannot be written, before the work of reading."""
    if name not in _WRITERS:
        raise DataError(f"--to must be one of {', '.join(WRITE_FORMATS)}, but is {quoted(name)}")
    check_new_folder(folder)


def _described(dataset: Dataset, metadata: Path | None, options: ReadOptions) -> Dataset:
    """The data set with the name and constants of its metadata file, and over them the options.

    Where neither has a constant, the name decides.
    """
    found = _metadata(metadata) if metadata is not None and metadata.is_file() else {}
    name = found.get("name", dataset.name)
    of_name = Propensity.of_name(name)
    given = found.get("propensity", {}) | {
        key: value for key, value in (("a", options.propensity_a), ("b", options.propensity_b)) if value is not None
    }
    propensity = replace(of_name, **given)
    if of_name != Propensity() and not {"a", "b"} <= given.keys():
        _logger.info(
            "Propensity constants of the public data set %s: A = %g, B = %g.", quoted(name), propensity.a, propensity.b
        )
    return replace(dataset, name=name, propensity=propensity)


def _metadata(file: Path) -> dict[str, Any]:
    rule = 'the file must be JSON such as {"name": "shop", "propensity": {"a": 0.55, "b": 1.5}}'
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{rule}, but: {error}", file=file) from None
    except RecursionError:
        raise DataError(f"{rule}, but is nested without end", file=file) from None
    if not isinstance(found, dict) or not isinstance(found.get("name", ""), str):
        raise DataError(f"{rule}, but is not", file=file)
    try:
        found.get("name", "").encode()
    except UnicodeEncodeError:
        raise DataError(f"{rule}, but the name has half a surrogate pair", file=file) from None
    constants = found.get("propensity", {})
    if (
        not isinstance(constants, dict)
        or not constants.keys() <= {"a", "b"}
        or not all(isinstance(number, int | float) and 0 <= number < _LARGE for number in constants.values())
    ):
        raise DataError(f"{rule}, but the propensity is {quoted(constants)}", file=file)
    return found
