"""Rules that choose labels: by uid, by a pattern of uids, or by a group such as a scheme, a collection or a type.

A rule is a uid, ``uid=PATTERN`` or ``group=PATTERN``. In a pattern, ``*`` stands for any characters and ``?`` for one.
The pattern of a group may also be the last part of its name: ``group=Descriptor`` is
``group=http://zbw.eu/namespaces/zbw-extensions/Descriptor``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import translate
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unidex.errors import DataError, listed, quoted
from unidex.model.label_set import LabelSet

Rule = str | int  # a number is the id of a label
_KEYS = ("uid", "group")


def matching_labels(labels: LabelSet, rules: Sequence[Rule], what: str) -> list[int]:
    """Ids of the labels that any rule chooses, ascending; a rule that chooses none is refused.

    >>> from unidex.data.concepts import Concept
    >>> shop = {1: Concept(groups=("http://shop/types#Clothes",))}
    >>> labels = LabelSet(["Shoe", "Hat"], ["a/1", "b/2"], np.array([3, 1]), np.zeros(2, dtype=bool), shop)
    >>> matching_labels(labels, ["a/1", "group=Clothes"], "allowed"), matching_labels(labels, ["uid=b/*"], "allowed")
    ([0, 1], [1])
    """
    chosen: set[int] = set()
    unknown: list[Rule] = []
    for rule in rules:
        found = _chosen(labels, rule)
        chosen.update(found)
        if not found:
            unknown.append(rule)
    if unknown:
        shown = listed(f"{_kind(rule)} {quoted(rule)}" for rule in unknown)
        raise DataError(f"{what} must name labels of the model, but it has no label with {shown}")
    return sorted(chosen)


def _kind(rule: Rule) -> str:
    return "id" if not isinstance(rule, str) else "rule" if "=" in rule else "uid"


def ids_of_rules(labels: LabelSet, given: ArrayLike | None, what: str) -> ArrayLike | None:
    """Ids of labels, of which some may be given by uid or by rule."""
    if isinstance(given, str):
        raise DataError(f"{what} must be a list of labels, but is one text; write [text]")
    if isinstance(given, list | tuple) and any(isinstance(rule, str) for rule in given):
        return matching_labels(labels, given, what)
    return given


def hidden_by_rules(labels: LabelSet, allowed: Sequence[str], forbidden: Sequence[str]) -> NDArray[np.int64]:
    """Ids of the labels that stored rules leave out; labels may have changed since, so that a rule may choose none."""
    hidden_L = np.zeros(len(labels), dtype=bool)
    if allowed:
        hidden_L[:] = True
        hidden_L[[label for rule in allowed for label in _chosen(labels, rule)]] = False
    hidden_L[[label for rule in forbidden for label in _chosen(labels, rule)]] = True
    return np.flatnonzero(hidden_L)


def _chosen(labels: LabelSet, rule: Rule) -> list[int]:
    if not isinstance(rule, str):
        return [int(rule)] if labels.has_id(int(rule)) else []
    if rule in labels:
        return [labels.id_of(rule)]
    key, equals, pattern = rule.partition("=")
    if not equals or key not in _KEYS:
        return []
    fits = _fitting(pattern)
    if key == "uid":
        return [label for label, uid in enumerate(labels.uids) if fits(uid) and not labels.removed[label]]
    return [
        label
        for label, concept in labels.concepts.items()
        if not labels.removed[label] and any(fits(name) or fits(_last_part(name)) for name in concept.groups)
    ]


def _fitting(pattern: str) -> Callable[[str], Any]:
    # Brackets are no sets of characters here: uids and URIs may have them.
    return re.compile(translate(re.sub(r"\[", "[[]", pattern))).match


def _last_part(name: str) -> str:
    """The part of a URI behind the last / or #.

    >>> _last_part("http://shop/types#Clothes")
    'Clothes'
    """
    return re.split(r"[/#]", name.rstrip("/#"))[-1]
