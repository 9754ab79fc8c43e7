"""Labels with texts in several languages, as vocabularies and tables give them, -> one set of labels."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from unidex.data.concepts import NOTHING, Concept, Term, checked_term, is_language, language_tag
from unidex.data.dataset import Labels
from unidex.data.texts import Texts
from unidex.errors import DataError, listed, quoted

_logger = logging.getLogger(__name__)
_MOST = 0.98  # Languages that have this share of the most names have as many.
_NAMES = 5000  # labels whose names are looked up in train texts
_CLEARLY = 1.5  # times the words of the first language that texts must have of another one
_WORD = re.compile(r"\w+")


@dataclass
class LabelRecord:
    """A label and everything that was read of it.

    Attributes:
        uid: the user's own name.
        terms: all its texts. A preferred one of the language of the set becomes the label's own text.
        notation: a short code.
        broader: uids of the next broader labels.
        related: uids of related labels.
        groups: schemes, collections and types.
    """

    uid: str
    terms: list[Term] = field(default_factory=list)
    notation: str = ""
    broader: list[str] = field(default_factory=list)
    related: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)

    def add_row(self, texts: Sequence[str], language: str, synonyms: Sequence[Term] = ()) -> None:
        """Add the texts of a row: names in a language that has one already are synonyms."""
        for text in texts:
            named = any(term.kind == "preferred" and term.language == language for term in self.terms)
            self.terms.append(Term(text, language, "alternative" if named else "preferred"))
        self.terms.extend(synonyms)


def labels_of(records: Sequence[LabelRecord], language: str = "", sample: Sequence[str] = ()) -> Labels:
    """The labels of records, in their order.

    The text of a label is its preferred text in the language asked for, else in the language that most labels have,
    else any other. Of about equals, texts without a language go first, then the language whose names are in the
    ``sample`` of train texts, then English. All other texts of a label are further texts.

    >>> fish = LabelRecord("f", [Term("Fisch", "de", "preferred"), Term("fish", "en", "preferred")], broader=["a"])
    >>> labels = labels_of([fish, LabelRecord("a", [Term("animals", "en", "preferred")])])
    >>> list(labels.texts), labels.concepts[0].texts, labels.concepts[0].broader
    (['fish', 'animals'], (Term(text='Fisch', language='de', kind='preferred'),), ('a',))
    >>> list(labels_of([fish], "de").texts)
    ['Fisch']
    """
    preferred = Counter(
        tag for record in records for tag in {term.language for term in record.terms if term.kind == "preferred"}
    )
    language = language_tag(language)
    if language and not any(is_language(tag, language) for tag in preferred):
        found = listed(quoted(tag) for tag in preferred if tag) or "none that is named"
        raise DataError(f"--language must be one that label texts have, but is {quoted(language)}; there is {found}")
    # A few labels more make no language the one of the set: a vocabulary may lack five names in one of three.
    bar = _MOST * max(preferred.values(), default=0)
    order = sorted(
        preferred,
        key=lambda tag: (
            not (language and is_language(tag, language)),
            preferred[tag] < bar,
            tag not in ("", "en"),
            -preferred[tag],
            tag,
        ),
    )
    if not language and order and order[0]:
        order = _by_sample(order, [tag for tag in order if preferred[tag] >= bar], records, sample)
    rank = {tag: place for place, tag in enumerate(order)}
    if len(order) > 1:
        message = "Label texts: %s; texts in other languages are further texts (--language chooses)."
        _logger.info(message, ", ".join(f"{tag or 'no language'} {preferred[tag]:,}" for tag in order))
    known = {record.uid for record in records}
    texts: list[str] = []
    concepts: dict[int, Concept] = {}
    for label, record in enumerate(records):
        own, further = _ordered(record, rank)
        texts.append(own.text)
        concept = Concept(
            language=own.language,
            texts=tuple(further),
            notation=record.notation,
            broader=_known(record.broader, record.uid, known),
            related=_known(record.related, record.uid, known),
            groups=tuple(sorted(set(record.groups))),
        )
        if concept != NOTHING:
            concepts[label] = concept
    return Labels(Texts.of(texts), Texts.of_uids([record.uid for record in records]), concepts)


def _by_sample(order: list[str], equals: list[str], records: Sequence[LabelRecord], sample: Sequence[str]) -> list[str]:
    """The languages, that of the texts first: the one of the equals with by far the most words of its own in them."""
    if len(equals) < 2 or not sample:
        return order
    words: dict[str, set[str]] = {tag: set() for tag in equals}
    for record in records[:: max(1, len(records) // _NAMES)]:
        for term in record.terms:
            if term.kind == "preferred" and term.language in words:
                words[term.language].update(_WORD.findall(term.text.lower()))
    languages = Counter(word for known in words.values() for word in known)
    in_texts = {word for text in sample for word in _WORD.findall(text.lower()) if languages[word] == 1}
    found = {tag: len(known & in_texts) for tag, known in words.items()}
    best = max(equals, key=lambda tag: found[tag])
    if found[best] <= _CLEARLY * max(found[order[0]], 1):
        return order
    return [best, *(tag for tag in order if tag != best)]


def _ordered(record: LabelRecord, rank: dict[str, int]) -> tuple[Term, list[Term]]:
    """The label's own text, and the others by kind and language, each once per language."""
    kinds = {"preferred": 0, "alternative": 1, "hidden": 2}
    try:
        terms = [checked_term(term) for term in record.terms]
    except DataError as error:
        raise DataError(f"label {quoted(record.uid)}: {error}") from None
    if not terms:
        raise DataError(f"a label must have a text, but {quoted(record.uid)} has none; give it one, or leave it out")
    terms.sort(key=lambda term: (kinds[term.kind], rank.get(term.language, len(rank)), term.language))
    once: dict[tuple[str, str], Term] = {}
    for term in terms:
        once.setdefault((term.text, term.language), term)
    own, *further = once.values()
    return own, further


def _known(uids: Sequence[str], own: str, known: set[str]) -> tuple[str, ...]:
    """The uids of other labels, sorted, each once."""
    return tuple(sorted({uid for uid in uids if uid in known and uid != own}))
