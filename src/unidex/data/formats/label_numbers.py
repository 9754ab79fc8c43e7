"""Labels as a user writes them -> label ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property, partial

import numpy as np
from numpy.typing import NDArray

from unidex.data.dataset import Labels
from unidex.data.texts import Texts
from unidex.errors import quoted

RawLabel = str | int | float
NO_LABEL = -1
_UNKNOWN = -2


@dataclass
class UnknownLabelError(Exception):
    """A label that is not known; the caller, who knows the line, raises a DataError."""

    raw: RawLabel  # as it was met
    name: str  # as it was looked for


def name_of(raw: RawLabel) -> str:
    """A label as a string; a number that is whole has no point, whatever type a tool has given it.

    >>> name_of("b"), name_of(3), name_of(3.0), name_of(0.5)
    ('b', '3', '3', '0.5')
    """
    if isinstance(raw, float) and raw.is_integer() and abs(raw) < 2**53:
        return str(int(raw))
    return str(raw)


class Numbering:
    """Label ids by name: from a table of labels, or else by first appearance.

    A label in a list is its exact name where the table of labels has it. Else blanks around a label do not count, and
    a blank label is none. A name that is no uid of the table of labels may be the text of one label alone. Other names
    are counted and left out, or refused.

    Args:
        labels: the labels of a table or vocabulary.
        strict: refuse a label that these do not have.

    >>> numbering = Numbering()
    >>> numbering.ids(["b", " a", "b", ""], listed=True).tolist(), list(numbering.labels().texts)
    ([0, 1, 0, -1], ['b', 'a'])
    """

    def __init__(self, labels: Labels | None = None, *, strict: bool = True) -> None:
        self._labels, self._strict = labels, strict
        self.unknown_labels: Counter[str] = Counter()  # how often each was met
        self._known: dict[str, int] = {}
        if labels is not None and labels.uids is not None:
            uids = list(labels.uids)
            self._known = {uid: number for number, uid in enumerate(uids)}
            for number, uid in enumerate(uids):
                self._known.setdefault(uid.strip(), number)
        # Every way of writing a label is worked out once.
        self._listed = cache(partial(self.number, listed=True))
        self._separated = cache(partial(self.number, listed=False))

    def ids(self, raw: Iterable[RawLabel], *, listed: bool) -> NDArray[np.int64]:
        """The ids of labels, ``NO_LABEL`` where one is blank or left out."""
        raw = list(raw)
        ids = np.array(list(map(self._listed if listed else self._separated, raw)), dtype=np.int64)
        unknown = np.flatnonzero(ids == _UNKNOWN)
        self.unknown_labels.update(name_of(raw[place]).strip() for place in unknown.tolist())
        ids[unknown] = NO_LABEL
        return ids

    def labels(self) -> Labels:
        """The labels met so far, or the labels of the table."""
        if self._labels is not None:
            return self._labels
        names = Texts.of_uids(list(self._known))
        return Labels(names, names)

    @cached_property
    def _by_text(self) -> dict[str, int]:
        if self._labels is None:
            return {}
        pairs = [(text.strip(), label) for label, text in enumerate(self._labels.texts)]
        for label, concept in self._labels.concepts.items():
            pairs += [(term.text, label) for term in concept.texts if term.kind == "preferred"]
        counts = Counter(text for text, _ in set(pairs))
        return {text: label for text, label in pairs if counts[text] == 1}

    def unknown(self, name: str) -> str:
        """What is wrong with a label that the table of labels does not hold."""
        rule = f"the labels must have every label of the texts, but not {quoted(name)}"
        return f"{rule}; add it there, or leave it out of the texts by reading without --strict"

    def number(self, raw: RawLabel, *, listed: bool) -> int:
        """The id of one label."""
        if raw != raw:  # NaN is how tables of numbers write an empty cell
            return NO_LABEL
        name = name_of(raw)
        if listed and self._labels is not None and name in self._known:
            return self._known[name]
        name = name.strip()
        if not name:
            return NO_LABEL
        if name not in self._known:
            if self._labels is not None:
                if name in self._by_text:
                    return self._by_text[name]
                if self._strict:
                    raise UnknownLabelError(raw, name)
                return _UNKNOWN
            self._known[name] = len(self._known)
        return self._known[name]
