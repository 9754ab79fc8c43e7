"""The labels of a model by id. Adding, removing or renaming one label costs the same in a set of any size.

Shapes: L labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex.data.concepts import NOTHING, Concept, fields_of, joined_text, joined_texts, text_in
from unidex.data.dataset import Dataset
from unidex.data.growing_texts import GrowingTexts, Numbers
from unidex.data.text_lookup import order_by_text, rows_with
from unidex.errors import DataError, listed, quoted
from unidex.metrics.bins import CLASSES, frequency_classes
from unidex.model.journal import unknown_label
from unidex.model.uid_table import UidTable

Order = Literal["frequency", "text", "id"]
ORDERS = ("frequency", "text", "id")
Frequency = Literal["head", "torso", "tail"]
_MAX_SHOWN = 1 << 16


class LabelRow(Concept, frozen=True):
    """A label: its id, the user's own name, its text, how many train texts have it, and what else is known of it."""

    id: int
    uid: str
    text: str
    frequency: Frequency
    num_texts: int


class Shown(NamedTuple):
    """What predictions show of a label."""

    uid: str
    text: str
    frequency: Frequency
    notation: str


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

    texts: Sequence[str]  # their texts, packed
    uids: Sequence[str]  # the user's own names; no two labels that are not removed share one
    frequencies: NDArray[np.int64]  # number of training texts per label; 0 for an added label
    removed: NDArray[np.bool_]  # the labels that are not predicted any more
    concepts: dict[int, Concept] = field(default_factory=dict)  # what else is known, of some labels
    table: UidTable | None = field(default=None, repr=False)  # ids by uid; made unless given
    # Hashes of the words of all labels but those whose text is new since they were read; None where they are not saved.
    word_keys: NDArray[np.uint64] | None = field(default=None, repr=False)
    # The two arrays are the first part of larger ones, into which they grow.
    _rooms: dict[str, NDArray[Any]] = field(init=False, repr=False)
    _names: tuple[GrowingTexts, GrowingTexts] = field(init=False, repr=False)  # texts and uids
    _orders: dict[Order, NDArray[np.int64]] = field(init=False, repr=False, default_factory=dict)
    _broader: dict[int, frozenset[int]] = field(init=False, repr=False, default_factory=dict)
    _shown: dict[tuple[int, str], Shown] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        # Copies: what this set was made from must not grow with it. Arrays that nobody can write are shared.
        names = GrowingTexts(self.texts), GrowingTexts(self.uids)
        arrays = {"frequencies": self.frequencies, "removed": self.removed}
        rooms = {name: array if _is_frozen(array) else np.array(array) for name, array in arrays.items()}
        own: dict[str, Any] = {
            "texts": names[0],
            "uids": names[1],
            "concepts": dict(self.concepts),
            "table": UidTable(names[1]) if self.table is None else self.table.of(names[1]),
            "_names": names,
            "_rooms": rooms,
        }
        for name, value in own.items():
            object.__setattr__(self, name, value)
        self._show(len(self.texts))

    @classmethod
    def of(cls, dataset: Dataset) -> LabelSet:
        """The labels of a data set; without uids, a label's number is its uid."""
        labels, count = dataset.labels, dataset.num_labels
        arrays = dataset.label_frequencies(), np.zeros(count, dtype=bool)
        for array in arrays:
            array.flags.writeable = False
        uids = Numbers(count) if labels.uids is None else labels.uids
        return cls(labels.texts, uids, *arrays, dict(labels.concepts))

    def __len__(self) -> int:
        return len(self.frequencies)

    def _id(self, uid: str) -> int:
        """The id of a label that is not removed by its uid; -1 where there is none."""
        return int(self.find_ids([uid])[0])

    def __contains__(self, uid: object) -> bool:
        """Whether a label that is not removed has this uid."""
        return isinstance(uid, str) and self._id(uid) >= 0

    def id_of(self, uid: str) -> int:
        """The id of a label by its uid; removed labels are not found."""
        found = self._id(uid)
        if found < 0:
            raise DataError(unknown_label(uid))
        return found

    def find_ids(self, uids: Sequence[str]) -> NDArray[np.int64]:
        """The ids of labels by their uids; -1 where there is no such label, or it is removed."""
        assert self.table is not None
        return self.table.rows_of(uids, self.removed)

    def ids_of(self, names: Sequence[str | int], what: str) -> list[int]:
        """Ids of labels by uid (a string) or id (a number); the error says what the names are."""
        by_uid = iter(self.find_ids([name for name in names if isinstance(name, str)]).tolist())
        ids = [next(by_uid) if isinstance(name, str) else int(name) for name in names]
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
        found: Frequency = CLASSES[int(frequency_classes(self.frequencies[label]))]  # type: ignore[assignment]
        return found

    def row(self, label: int, language: str = "") -> LabelRow:
        """A label as it is listed, with its text in a language where it has one."""
        frequency, num_texts = self.frequency_class(label), int(self.frequencies[label])
        text, more = self.text_in(label, language), fields_of(self.concepts.get(label, NOTHING))
        return LabelRow(label, self.uids[label], text, frequency, num_texts, **more)

    def text_in(self, label: int, language: str) -> str:
        """The text of a label in a language; its own text where it has none."""
        return text_in(self.texts[label], self.concepts.get(label), language)

    def shown(self, label: int, language: str) -> Shown:
        """A label as predictions show it; remembered, because the labels of predictions are often the same."""
        found = self._shown.get((label, language))
        if found is None:
            if len(self._shown) >= _MAX_SHOWN:
                self._shown.clear()
            found = Shown(
                self.uids[label], self.text_in(label, language), self.frequency_class(label), self.notation(label)
            )
            self._shown[label, language] = found
        return found

    def encoder_text(self, label: int) -> str:
        """All texts of a label as one, as encoders read them."""
        return joined_text(self.texts[label], self.concepts.get(label))

    def encoder_texts(self) -> Sequence[str]:
        """All texts of each label as one."""
        return joined_texts(self.texts, self.concepts)

    def unread_texts(self) -> Sequence[str]:
        """Texts, as encoders read them, of the labels whose words are not among ``word_keys``."""
        if self.word_keys is None:
            return self.encoder_texts()
        return [self.encoder_text(label) for label in self._names[0].new_rows]

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
                for other in self.find_ids(self.concepts.get(waiting.pop(), NOTHING).broader).tolist():
                    if other not in found and other not in (label, -1):
                        found.add(other)
                        waiting.append(other)
            self._broader[label] = frozenset(found)
        return self._broader[label]

    def broader_pairs(self, num_labels: int) -> sparse.csr_array:
        """The next broader labels of each label, as a matrix of ``num_labels`` rows and columns."""
        pairs = [(label, uid) for label, concept in self.concepts.items() for uid in concept.broader]
        rows, columns = (
            np.array([label for label, _ in pairs], dtype=np.int64),
            self.find_ids([uid for _, uid in pairs]),
        )
        rows, columns = rows[columns >= 0], columns[columns >= 0]
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
        for name, room in self._rooms.items():
            if count > len(room):
                # An eighth more: on average, a label costs a few copied numbers, with little unused memory.
                size = max(count, first + first // 8, 1024)
                self._rooms[name] = np.concatenate([room[:first], np.zeros(size - first, dtype=room.dtype)])
        for names, new in zip(self._names, (texts, uids), strict=True):
            names.extend(new)
        self.concepts.update((first + at, one) for at, one in enumerate(concepts or ()) if one != NOTHING)
        assert self.table is not None
        self.table.add(first, uids)
        self._orders.clear()
        return self._next(count)

    def without(self, labels: Iterable[int]) -> LabelSet:
        """The labels with some removed."""
        if not self._rooms["removed"].flags.writeable:
            self._rooms["removed"] = self._rooms["removed"].copy()
        self._rooms["removed"][list(labels)] = True
        return self._next(len(self))

    def with_text(self, label: int, text: str) -> LabelSet:
        """The labels with another text for one of them."""
        self._names[0][label] = text
        self._orders.pop("text", None)
        return self._next(len(self))

    def _next(self, count: int) -> LabelSet:
        after = copy(self)
        self._broader.clear()
        self._shown.clear()
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
            found_L = rows_with(self.texts, wanted_text)
            found_L[[*self._further_with(wanted_text), *(row for row in (self._id(search),) if row >= 0)]] = True
            ids = ids[found_L[ids]]
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
                self._orders[order] = order_by_text(self.texts)
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


def _is_frozen(array: NDArray[Any]) -> bool:
    """Whether nobody can write to the memory of an array, such as that of a file that was mapped to be read."""
    found: Any = array
    while isinstance(found, np.ndarray):
        if found.flags.writeable:
            return False
        found = found.base
    return isinstance(array, np.ndarray)
