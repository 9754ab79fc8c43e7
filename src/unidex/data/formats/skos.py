"""Vocabularies in SKOS: Turtle, RDF/XML, N-Triples and more, as rdflib reads them; each also gzipped.

A label is a concept that is not deprecated: its uid is the URI. Preferred, alternative and hidden labels (SKOS-XL too)
are its texts. Schemes, collections and types are its groups. Labels are in the order of their URIs, so that all
serialisations of a vocabulary give the same labels.
"""

from __future__ import annotations

import gzip
import logging
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from unidex import progress
from unidex.data.concepts import Term, TextKind, language_tag
from unidex.data.dataset import Labels
from unidex.data.label_records import LabelRecord, labels_of
from unidex.errors import DataError, MissingExtraError

_logger = logging.getLogger(__name__)

_FORMATS = {
    ".ttl": "turtle",
    ".turtle": "turtle",
    ".n3": "n3",
    ".nt": "nt",
    ".rdf": "xml",
    ".xml": "xml",
    ".owl": "xml",
    ".jsonld": "json-ld",
}
_SKOS = "http://www.w3.org/2004/02/skos/core#"
_XL = "http://www.w3.org/2008/05/skos-xl#"
_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
_DEPRECATED = "http://www.w3.org/2002/07/owl#deprecated"
_KINDS: dict[str, TextKind] = {"prefLabel": "preferred", "altLabel": "alternative", "hiddenLabel": "hidden"}
_BROADER = ("broader", "broaderGeneric", "broaderPartitive", "broaderInstantial")
_NARROWER = ("narrower", "narrowerGeneric", "narrowerPartitive", "narrowerInstantial")


def is_vocabulary(file: Path) -> bool:
    """Whether a file is RDF, by its name.

    >>> is_vocabulary(Path("stw.ttl.gz")), is_vocabulary(Path("labels.csv"))
    (True, False)
    """
    return _suffix(file) in _FORMATS


def read_vocabulary(file: Path, language: str = "", sample: Sequence[str] = ()) -> Labels:
    """The concepts of a SKOS vocabulary as labels, named in the language given, else in that of a sample of texts."""
    records = vocabulary_records(file)
    try:
        return labels_of(records, language, sample)
    except DataError as error:
        raise DataError(str(error), file=file) from None


def vocabulary_records(file: Path) -> list[LabelRecord]:
    """The concepts of a SKOS vocabulary."""
    graph = _Graph(_parsed(file))
    concepts = {node for node in graph.subjects(_TYPE, f"{_SKOS}Concept") if graph.is_named(node)}
    deprecated = {node for node in concepts if graph.is_deprecated(node)}
    records: dict[str, LabelRecord] = {}
    without_text = 0
    for node in sorted(concepts - deprecated, key=str):
        terms = sorted(graph.terms(node), key=lambda term: (term.language, term.kind, term.text))
        if not terms:
            without_text += 1
            continue
        notation = min(map(str, graph.objects(node, f"{_SKOS}notation")), default="")
        records[str(node)] = LabelRecord(str(node), terms, notation.strip())
    if not records:
        raise DataError(
            "a vocabulary must have concepts (skos:Concept) with labels (skos:prefLabel) that are not deprecated, but "
            "has none; is it SKOS?",
            file=file,
        )
    _relate(graph, records)
    _group(graph, records)
    left_out = f"; left out: {len(deprecated):,} deprecated, {without_text:,} without a label"
    _logger.info("%s: %s concepts%s", file, f"{len(records):,}", left_out if deprecated or without_text else "")
    return list(records.values())


def _relate(graph: _Graph, records: dict[str, LabelRecord]) -> None:
    for uid, record in records.items():
        for name in _BROADER:
            record.broader += map(str, graph.objects_of(uid, f"{_SKOS}{name}"))
        for name in _NARROWER:
            for narrower in map(str, graph.objects_of(uid, f"{_SKOS}{name}")):
                if narrower in records:
                    records[narrower].broader.append(uid)
        for other in map(str, graph.objects_of(uid, f"{_SKOS}related")):
            record.related.append(other)
            if other in records:
                records[other].related.append(uid)


def _group(graph: _Graph, records: dict[str, LabelRecord]) -> None:
    """Give concepts their types, schemes and collections; a member of a part of a collection is one of the whole."""
    for uid, record in records.items():
        types = (str(node) for node in graph.objects_of(uid, _TYPE))
        record.groups += [name for name in types if name != f"{_SKOS}Concept"]
        record.groups += map(str, graph.objects_of(uid, f"{_SKOS}inScheme"))
    collections = {node for kind in ("Collection", "OrderedCollection") for node in graph.subjects(_TYPE, _SKOS + kind)}
    for collection in collections:
        if not graph.is_named(collection):
            continue
        waiting, seen = [collection], {collection}
        while waiting:
            for member in graph.members(waiting.pop()):
                if str(member) in records:
                    records[str(member)].groups.append(str(collection))
                elif member not in seen:
                    seen.add(member)
                    waiting.append(member)


class _Graph:
    """The triples of a vocabulary."""

    def __init__(self, graph: Any) -> None:
        import rdflib

        self._graph, self._rdflib = graph, rdflib

    def subjects(self, predicate: str, value: str) -> Iterator[Any]:
        """The nodes that have a value."""
        uri = self._rdflib.URIRef
        yield from self._graph.subjects(uri(predicate), uri(value))

    def objects(self, node: Any, predicate: str) -> Iterator[Any]:
        """The values of a node."""
        yield from self._graph.objects(node, self._rdflib.URIRef(predicate))

    def objects_of(self, uri: str, predicate: str) -> Iterator[Any]:
        """The values of the node with a URI, those that are nodes with a URI."""
        return filter(self.is_named, self.objects(self._rdflib.URIRef(uri), predicate))

    def is_named(self, node: Any) -> bool:
        """Whether a node has a URI."""
        return isinstance(node, self._rdflib.URIRef)

    def is_deprecated(self, node: Any) -> bool:
        """Whether a concept is not to be used any more."""
        return any(str(value).lower() in ("true", "1") for value in self.objects(node, _DEPRECATED))

    def terms(self, node: Any) -> Iterator[Term]:
        """The texts of a concept."""
        for name, kind in _KINDS.items():
            yield from self._literals(self.objects(node, _SKOS + name), kind)
            for label in self.objects(node, _XL + name):
                yield from self._literals(self.objects(label, f"{_XL}literalForm"), kind)

    def members(self, collection: Any) -> Iterator[Any]:
        """The members of a collection."""
        yield from self.objects(collection, f"{_SKOS}member")
        for members in self.objects(collection, f"{_SKOS}memberList"):
            yield from self._rdflib.collection.Collection(self._graph, members)

    def _literals(self, values: Iterator[Any], kind: TextKind) -> Iterator[Term]:
        for value in values:
            if isinstance(value, self._rdflib.Literal) and str(value).strip():
                yield Term(" ".join(str(value).split()), language_tag(value.language or ""), kind)


def _suffix(file: Path) -> str:
    return Path(file.name.lower().removesuffix(".gz")).suffix


def _parsed(file: Path) -> Any:
    try:
        import rdflib
        import rdflib.collection
    except ImportError:
        raise MissingExtraError("a vocabulary in SKOS", "skos") from None
    # A literal that does not fit its type (a date, say) is none of our concern.
    logging.getLogger("rdflib.term").setLevel(logging.ERROR)
    graph = rdflib.Graph()
    opened: Any = gzip.open if file.name.lower().endswith(".gz") else open
    try:
        with progress.task(f"reading {file.name}"), opened(file, "rb") as source:
            graph.parse(source, format=_FORMATS[_suffix(file)], publicID=file.absolute().as_uri())
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"the vocabulary cannot be read ({reason}); copy it again", file=file) from None
    # Parsers have errors of many types, some of which are plain Exceptions.
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(
            f"the file must be RDF as its name says ({_FORMATS[_suffix(file)]}), but cannot be read so ({reason}); "
            "mend or rename it",
            file=file,
        ) from None
    return graph
