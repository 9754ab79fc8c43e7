"""Names that a setting takes as its value and that other code may add to: losses, encoders.

The modules that implement them register themselves when they are imported. The names of the built-in ones are here, so
that a recipe is checked without importing torch.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic_core import PydanticCustomError


class Names:
    """Known names of one kind.

    >>> colours = Names("red", "green")
    >>> colours.check("red")
    'red'
    >>> colours.add("blue")
    >>> colours.check("yellow")
    Traceback (most recent call last):
    pydantic_core._pydantic_core.PydanticCustomError: must be one of red, green, blue
    """

    def __init__(self, *built_in: str) -> None:
        # A dict keeps the order.
        self._known = dict.fromkeys(built_in)

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def add(self, name: str) -> None:
        """Accept ``name`` from now on."""
        self._known[name] = None

    def remove(self, name: str) -> None:
        """Refuse ``name`` from now on."""
        self._known.pop(name, None)

    def check(self, name: str) -> str:
        """``name`` as it is, or an error of pydantic that lists the known names."""
        if name not in self._known:
            raise PydanticCustomError("unknown_name", "must be one of {known}", {"known": ", ".join(self._known)})
        return name


LOSSES = Names("decoupled-softmax", "supcon", "one-positive", "soft-top-k", "triplet", "contrastive", "bce")
