"""What a vocabulary says of a label beside its uid and its text: further texts, a notation, relations, groups.

A set of labels has a mapping label id -> `Concept`, with those labels only of which more is known: a set without such
labels pays nothing. Files, the journal and the service write the fields of a concept beside uid and text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from unidex.errors import DataError, quoted

TextKind = Literal["preferred", "alternative", "hidden"]
_Texts = TypeVar("_Texts", bound=Sequence[str])


class Term(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A further text of a label.

    ``preferred`` is its name in another language, ``alternative`` a synonym, ``hidden`` a text that finds the label but
    is not shown, such as a common mistake.
    """

    text: str
    language: str = ""  # a tag such as "de" or "pt-br"; "" where it is not known
    kind: TextKind = "alternative"


class Concept(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What is known of a label beside its uid and its text.

    >>> fish = Concept(language="en", texts=(Term("Fisch", "de", "preferred"),), broader=("animals",))
    >>> msgspec.json.encode(fish).decode()
    '{"language":"en","texts":[{"text":"Fisch","language":"de","kind":"preferred"}],"broader":["animals"]}'
    """

    language: str = ""  # of the label's own text
    texts: tuple[Term, ...] = ()  # further texts
    notation: str = ""  # a short code, such as a class mark
    broader: tuple[str, ...] = ()  # uids of the next broader labels
    related: tuple[str, ...] = ()  # uids of related labels
    groups: tuple[str, ...] = ()  # schemes, collections and types that it belongs to


NOTHING = Concept()
Concepts = Mapping[int, Concept]
FIELDS = Concept.__struct_fields__


def concept_of(row: Concept) -> Concept:
    """The fields of a concept alone, of a row that has others too; ``NOTHING`` where all are empty."""
    if not (row.language or row.texts or row.notation or row.broader or row.related or row.groups):
        return NOTHING
    return Concept(**fields_of(row))


def fields_of(concept: Concept) -> dict[str, Any]:
    """The fields of a concept by name."""
    return {name: getattr(concept, name) for name in FIELDS}


def checked_term(entry: str | Term) -> Term:
    """A further text as a user gives it, with a language tag in lower case; a blank text is refused.

    >>> checked_term(" Fisch "), checked_term(Term("Fisch", "de_CH"))
    (Term(text='Fisch', language='', kind='alternative'), Term(text='Fisch', language='de-ch', kind='alternative'))
    """
    term = Term(entry) if isinstance(entry, str) else entry
    text = " ".join(term.text.split())
    if not text:
        raise DataError(f"a further text of a label must not be blank, but is {quoted(term.text)}; leave it out")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise DataError(f"the texts of a label must be Unicode, but one has half a character: {text!a}") from None
    return Term(text, language_tag(term.language), term.kind)


def language_tag(tag: str) -> str:
    """A language tag as it is compared.

    >>> language_tag(" pt_BR ")
    'pt-br'
    """
    return tag.strip().lower().replace("_", "-")


def is_language(tag: str, wanted: str) -> bool:
    """Whether a tag is of a language: "en-gb" is English.

    >>> is_language("en-gb", "en"), is_language("en", "en-gb")
    (True, False)
    """
    return tag == wanted or tag.startswith(f"{wanted}-")


def text_in(text: str, concept: Concept | None, language: str) -> str:
    """The preferred text of a label in a language; its own text where it has none.

    >>> fish = Concept(language="en", texts=(Term("Fische", "de"), Term("Fisch", "de", "preferred")))
    >>> text_in("fish", fish, "de"), text_in("fish", fish, "fi")
    ('Fisch', 'fish')
    """
    if not language or concept is None or is_language(concept.language, language):
        return text
    names = (term.text for term in concept.texts if term.kind == "preferred" and is_language(term.language, language))
    return next(names, text)


def joined_text(text: str, concept: Concept | None) -> str:
    """All texts of a label as one, as an encoder reads them: its own text first, each once.

    >>> joined_text("fish", Concept(texts=(Term("Fisch", "de"), Term("Fish"))))
    'fish; Fisch'
    """
    if concept is None or not concept.texts:
        return text
    once: dict[str, str] = {}
    for entry in (text, *(term.text for term in concept.texts)):
        once.setdefault(entry.casefold(), entry)
    return "; ".join(once.values())


def joined_texts(texts: _Texts, concepts: Concepts) -> _Texts | list[str]:
    """All texts of each label as one; the same object where no label has further texts."""
    if not any(concept.texts for concept in concepts.values()):
        return texts
    found = list(texts)
    for label, concept in concepts.items():
        found[label] = joined_text(found[label], concept)
    return found


def further_texts(concepts: Concepts) -> tuple[list[str], NDArray[np.int64]]:
    """All further texts, in the order of the labels, and the label of each."""
    pairs = [(term.text, label) for label in sorted(concepts) for term in concepts[label].texts]
    return [text for text, _ in pairs], np.array([label for _, label in pairs], dtype=np.int64)
