"""The labels of a model by id: they come one at a time and go, and each costs the same however many there are.

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

from unidex.errors import DataError, quoted
from unidex.metrics.bins import CLASSES, frequency_classes
from unidex.model.journal import unknown_label

Order = Literal["frequency", "text", "id"]
ORDERS = ("frequency", "text", "id")


@dataclass(frozen=True, eq=False)
class LabelSet:
    """The labels of a model.

    ``added``, ``without`` and ``renamed`` give the set after a change. It takes over what the set before it has instead
    of copying it, so that one label more costs the same however many there are: go on with the new set alone. Nothing
    else changes a set: its arrays cannot be written, and its lists must not be.

    Attributes:
        texts: their texts.
        uids: the user's own names; no two labels that are not removed share one.
        frequencies: number of train texts of each; 0 for one that was added.
        removed: which are not predicted any more.

    >>> labels = LabelSet(["Shoe", "Hat"], ["s", "h"], np.array([120, 3]), np.array([False, False]))
    >>> labels = labels.added(["Red hat"], ["r"]).without([1])
    >>> labels.id_of("r"), [labels.frequency_class(label) for label in range(3)]
    (2, ['head', 'tail', 'tail'])
    >>> labels.chosen(order="text", search="hat").tolist()
    [2]
    """

    texts: list[str]
    uids: list[str]
    frequencies: NDArray[np.int64]
    removed: NDArray[np.bool_]
    # Room that the two arrays grow into; they are the first part of it.
    _rooms: dict[str, NDArray[Any]] = field(init=False, repr=False)
    _orders: dict[Order, NDArray[np.int64]] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        # Copies: what grows here must not grow in whatever it was made from.
        own = {"texts": list(self.texts), "uids": list(self.uids)}
        rooms = {"frequencies": np.array(self.frequencies), "removed": np.array(self.removed)}
        for name, value in {**own, "_rooms": rooms}.items():
            object.__setattr__(self, name, value)
        self._show(len(self.texts))

    def __len__(self) -> int:
        return len(self.frequencies)

    @cached_property
    def _ids(self) -> dict[str, int]:
        """Ids by uid, without the removed; made when first wanted and kept from then on."""
        removed = self.removed.tolist()
        return {uid: label for label, uid in enumerate(self.uids) if not removed[label]}

    @cached_property
    def _folded(self) -> list[str]:
        """Texts in one case, to search in."""
        return [text.casefold() for text in self.texts]

    @cached_property
    def _classes(self) -> list[str]:
        """Head, torso or tail by id: answers name the class of each label, so that it is not worked out every time."""
        return [CLASSES[number] for number in frequency_classes(self.frequencies).tolist()]

    def __contains__(self, uid: object) -> bool:
        """Whether a label that is not removed has this uid."""
        return uid in self._ids

    def id_of(self, uid: str) -> int:
        """The id of a label by its uid; a removed label is not one any more."""
        try:
            return self._ids[uid]
        except KeyError:
            raise DataError(unknown_label(uid)) from None

    def frequency_class(self, label: int) -> str:
        """Head, torso or tail."""
        return self._classes[label]

    def added(self, texts: Sequence[str], uids: Sequence[str]) -> LabelSet:
        """The labels with further ones, which get the next ids and have no train text."""
        first, count = len(self), len(self) + len(texts)
        # Whatever is cached must exist before it can be kept up to date.
        ids, classes, folded = self._ids, self._classes, self.__dict__.get("_folded")
        for name, room in self._rooms.items():
            if count > len(room):
                # An eighth more: a label costs a few copied numbers on average, and memory stays near what is needed.
                size = max(count, first + first // 8, 1024)
                self._rooms[name] = np.concatenate([room[:first], np.zeros(size - first, dtype=room.dtype)])
        self.texts.extend(texts)
        self.uids.extend(uids)
        classes.extend([CLASSES[-1]] * len(texts))
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

    def renamed(self, label: int, text: str) -> LabelSet:
        """The labels with another text for one of them."""
        self.texts[label] = text
        if "_folded" in self.__dict__:
            self._folded[label] = text.casefold()
        self._orders.pop("text", None)
        return self._next(len(self))

    def _next(self, count: int) -> LabelSet:
        after = copy(self)
        after._show(count)
        return after

    def chosen(
        self, *, search: str = "", frequency: str | None = None, order: Order = "frequency"
    ) -> NDArray[np.int64]:
        """Ids of labels that are not removed, in an order, equals by id.

        Args:
            search: only those whose text holds this, in any case, or whose uid it is.
            frequency: only head, torso or tail labels.
            order: "frequency" (most frequent first), "text" or "id".
        """
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
            folded, uids = self._folded, self.uids
            ids = ids[[wanted_text in folded[label] or uids[label] == search for label in ids.tolist()]]
        return ids

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
