"""The labels of a model by id. Adding, removing or renaming one label costs the same in a set of any size.

Shapes: L labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex.data.concepts import NOTHING, Concept, fields_of, joined_text, joined_texts, text_in
from unidex.data.dataset import Dataset
from unidex.errors import DataError, listed, quoted
from unidex.metrics.bins import CLASSES, frequency_classes
from unidex.model.journal import unknown_label

Order = Literal["frequency", "text", "id"]
ORDERS = ("frequency", "text", "id")
Frequency = Literal["head", "torso", "tail"]


class LabelRow(Concept, frozen=True):
    """A label: its id, the user's own name, its text, how many train texts have it, and what else is known of it."""

    id: int
    uid: str
    text: str
    frequency: Frequency
    num_texts: int


@dataclass(frozen=True, eq=False)
class LabelSet:
    """The labels of a model.

    ``with_labels``, ``without`` and ``with_text`` give the set after a change. It takes over the lists and arrays of
    the set before instead of copying them: use only the new set afterwards. Nothing else changes a set: its arrays
    cannot be written, and its lists must not be.

    >>> labels = LabelSet(["Shoe", "Hat"], ["s", "h"], np.array([120, 3]), np.array([False, False]))
    >>> labels = labels.with_labels(["Red hat"], ["r"]).without([1])
    >>> labels.id_of("r"), [labels.frequency_class(label) for label in range(3)]
    (2, ['head', 'tail', 'tail'])
    >>> labels.select(order="text", search="hat").tolist()
    [2]
    """

    texts: list[str]  # their texts
    uids: list[str]  # the user's own names; no two labels that are not removed share one
    frequencies: NDArray[np.int64]  # number of training texts per label; 0 for an added label
    removed: NDArray[np.bool_]  # the labels that are not predicted any more
    concepts: dict[int, Concept] = field(default_factory=dict)  # what else is known, of some labels
    # The two arrays are the first part of larger ones, into which they grow.
    _rooms: dict[str, NDArray[Any]] = field(init=False, repr=False)
    _orders: dict[Order, NDArray[np.int64]] = field(init=False, repr=False, default_factory=dict)
    _broader: dict[int, frozenset[int]] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        # Copies: the lists that this set was made from must not grow with it.
        own = {"texts": list(self.texts), "uids": list(self.uids), "concepts": dict(self.concepts)}
        rooms = {"frequencies": np.array(self.frequencies), "removed": np.array(self.removed)}
        for name, value in {**own, "_rooms": rooms}.items():
            object.__setattr__(self, name, value)
        self._show(len(self.texts))

    @classmethod
    def of(cls, dataset: Dataset) -> LabelSet:
        """The labels of a data set; without uids, a label's number is its uid."""
        uids = [dataset.labels.uid(label) for label in range(dataset.num_labels)]
        removed = np.zeros(dataset.num_labels, dtype=bool)
        concepts = dict(dataset.labels.concepts)
        return cls(list(dataset.labels.texts), uids, dataset.label_frequencies(), removed, concepts)

    def __len__(self) -> int:
        return len(self.frequencies)

    @cached_property
    def _ids(self) -> dict[str, int]:
        """Ids by uid, without removed labels; computed once."""
        removed = self.removed.tolist()
        return {uid: label for label, uid in enumerate(self.uids) if not removed[label]}

    @cached_property
    def _folded(self) -> list[str]:
        """Texts in one case, for searches."""
        return [text.casefold() for text in self.texts]

    @cached_property
    def _classes(self) -> list[Frequency]:
        """Head, torso or tail by id; computed once, because answers name the class of each label."""
        return [CLASSES[number] for number in frequency_classes(self.frequencies).tolist()]  # type: ignore[misc]

    def __contains__(self, uid: object) -> bool:
        """Whether a label that is not removed has this uid."""
        return uid in self._ids

    def id_of(self, uid: str) -> int:
        """The id of a label by its uid; removed labels are not found."""
        try:
            return self._ids[uid]
        except KeyError:
            raise DataError(unknown_label(uid)) from None

    def ids_of(self, names: Sequence[str | int], what: str) -> list[int]:
        """Ids of labels by uid (a string) or id (a number); the error says what the names are."""
        ids = [self._ids.get(name, -1) if isinstance(name, str) else int(name) for name in names]
        unknown = [name for name, label in zip(names, ids, strict=True) if not self.has_id(label)]
        if unknown:
            shown = listed(f"{'uid' if isinstance(name, str) else 'id'} {quoted(name)}" for name in unknown)
            raise DataError(f"{what} must name labels of the model, but it has no label with {shown}")
        return ids

    def has_id(self, label: int) -> bool:
        """Whether an id belongs to a label that is not removed."""
        return 0 <= label < len(self) and not self.removed[label]

    def frequency_class(self, label: int) -> Frequency:
        """Head, torso or tail."""
        return self._classes[label]

    def row(self, label: int, language: str = "") -> LabelRow:
        """A label as it is listed, with its text in a language where it has one."""
        frequency, num_texts = self._classes[label], int(self.frequencies[label])
        text, more = self.text_in(label, language), fields_of(self.concepts.get(label, NOTHING))
        return LabelRow(label, self.uids[label], text, frequency, num_texts, **more)

    def text_in(self, label: int, language: str) -> str:
        """The text of a label in a language; its own text where it has none."""
        return text_in(self.texts[label], self.concepts.get(label), language)

    def encoder_text(self, label: int) -> str:
        """All texts of a label as one, as encoders read them."""
        return joined_text(self.texts[label], self.concepts.get(label))

    def encoder_texts(self) -> Sequence[str]:
        """All texts of each label as one."""
        return joined_texts(self.texts, self.concepts)

    @cached_property
    def languages(self) -> list[str]:
        """Languages that labels have a name in, in the order of their tags."""
        found = {concept.language for concept in self.concepts.values()}
        for concept in self.concepts.values():
            found |= {term.language for term in concept.texts if term.kind == "preferred"}
        return sorted(found - {""})

    @cached_property
    def has_notations(self) -> bool:
        """Whether a label has a notation."""
        return any(concept.notation for concept in self.concepts.values())

    def notation(self, label: int) -> str:
        """The notation of a label; "" where it has none."""
        return self.concepts.get(label, NOTHING).notation

    def broader(self, label: int) -> frozenset[int]:
        """All labels broader than a label, at any distance; without removed ones."""
        if label not in self._broader:
            found: set[int] = set()
            waiting = [label]
            while waiting:
                for uid in self.concepts.get(waiting.pop(), NOTHING).broader:
                    other = self._ids.get(uid, label)
                    if other not in found and other != label:
                        found.add(other)
                        waiting.append(other)
            self._broader[label] = frozenset(found)
        return self._broader[label]

    def broader_pairs(self, num_labels: int) -> sparse.csr_array:
        """The next broader labels of each label, as a matrix of ``num_labels`` rows and columns."""
        pairs = [
            (label, self._ids[uid])
            for label, concept in self.concepts.items()
            for uid in concept.broader
            if uid in self._ids
        ]
        rows, columns = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        return sparse.csr_array((np.ones(len(rows), dtype=bool), (rows, columns)), shape=(num_labels, num_labels))

    def most_specific(self, labels: Sequence[int]) -> list[bool]:
        """Which labels of a text stay if those with a narrower one among them are dropped."""
        if not self.concepts:
            return [True] * len(labels)
        dropped = frozenset().union(*(self.broader(label) for label in labels if label >= 0))
        return [label not in dropped for label in labels]

    def with_labels(
        self, texts: Sequence[str], uids: Sequence[str], concepts: Sequence[Concept] | None = None
    ) -> LabelSet:
        """The labels with further ones, which get the next ids and have no training text."""
        first, count = len(self), len(self) + len(texts)
        # Caches must exist before they can be updated.
        ids, classes, folded = self._ids, self._classes, self.__dict__.get("_folded")
        for name, room in self._rooms.items():
            if count > len(room):
                # An eighth more: on average, a label costs a few copied numbers, with little unused memory.
                size = max(count, first + first // 8, 1024)
                self._rooms[name] = np.concatenate([room[:first], np.zeros(size - first, dtype=room.dtype)])
        self.texts.extend(texts)
        self.uids.extend(uids)
        self.concepts.update((first + at, one) for at, one in enumerate(concepts or ()) if one != NOTHING)
        classes.extend(["tail"] * len(texts))
        ids.update(zip(uids, range(first, count), strict=True))
        if folded is not None:
            folded.extend(text.casefold() for text in texts)
        self._orders.clear()
        return self._next(count)

    def without(self, labels: Iterable[int]) -> LabelSet:
        """The labels with some removed."""
        for label in labels:
            self._rooms["removed"][label] = True
            if self._ids.get(self.uids[label]) == label:
                del self._ids[self.uids[label]]
        return self._next(len(self))

    def with_text(self, label: int, text: str) -> LabelSet:
        """The labels with another text for one of them."""
        self.texts[label] = text
        if "_folded" in self.__dict__:
            self._folded[label] = text.casefold()
        self._orders.pop("text", None)
        return self._next(len(self))

    def _next(self, count: int) -> LabelSet:
        after = copy(self)
        self._broader.clear()
        for name in ("languages", "has_notations"):
            after.__dict__.pop(name, None)
        after._show(count)
        return after

    def select(
        self, *, search: str = "", frequency: str | None = None, order: Order = "frequency"
    ) -> NDArray[np.int64]:
        """Ids of labels that have ``search`` in a text, in any case, or as their uid or notation; ties go by id."""
        for what, value, known in (("order", order, ORDERS), ("frequency", frequency, (None, *CLASSES))):
            if value not in known:
                wanted = ", ".join(str(name) for name in known if name)
                raise DataError(f"{what} must be one of {wanted}, but is {quoted(value)}")
        kept_L = ~self.removed
        if frequency is not None:
            kept_L &= frequency_classes(self.frequencies) == CLASSES.index(frequency)
        ids = self._ordered(order)
        ids = ids[kept_L[ids]]
        wanted_text = search.casefold()
        if wanted_text:
            folded, uids, further = self._folded, self.uids, self._further_with(wanted_text)
            ids = ids[
                [wanted_text in folded[label] or uids[label] == search or label in further for label in ids.tolist()]
            ]
        return ids

    def _further_with(self, wanted: str) -> set[int]:
        """Labels that have a text in one of their further texts, or as their notation."""
        return {
            label
            for label, concept in self.concepts.items()
            if concept.notation.casefold() == wanted or any(wanted in term.text.casefold() for term in concept.texts)
        }

    def _ordered(self, order: Order) -> NDArray[np.int64]:
        if order not in self._orders:
            if order == "text":
                folded = self._folded
                self._orders[order] = np.array(sorted(range(len(self)), key=folded.__getitem__), dtype=np.int64)
            elif order == "frequency":
                self._orders[order] = np.argsort(-self.frequencies, kind="stable")
            else:
                self._orders[order] = np.arange(len(self), dtype=np.int64)
        return self._orders[order]

    def _show(self, count: int) -> None:
        for name, room in self._rooms.items():
            shown = room[:count]
            shown.flags.writeable = False
            object.__setattr__(self, name, shown)
