"""Names that a recipe may use for what other files register: encoders and losses.

A recipe is checked without loading torch, so the names are known here before anything registers. A file outside the
package adds its name when it registers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import resources

from pydantic_core import PydanticCustomError


class Names:
    """The names of one kind that a recipe may use.

    >>> colours = Names(["red", "blue"])
    >>> colours.add("green")
    >>> list(colours), colours.check("red")
    (['blue', 'green', 'red'], 'red')
    """

    def __init__(self, known: Iterable[str]) -> None:
        self._known = set(known)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._known))

    def add(self, name: str) -> None:
        """Let recipes use a name."""
        self._known.add(name)

    def remove(self, name: str) -> None:
        """Let recipes use a name no longer."""
        self._known.discard(name)

    def check(self, name: str) -> str:
        """The name itself; one that is not known is an error of the recipe."""
        if name not in self._known:
            *others, last = (repr(known) for known in self)
            either = f"{', '.join(others)} or {last}" if others else last
            raise PydanticCustomError("unknown_name", "Input should be {known}", {"known": either})
        return name


# A module of encoders/ is an encoder of the same name.
_NO_ENCODERS = {"__init__", "pretrained_encoder", "registry"}
ENCODERS = Names(
    name
    for file in (resources.files("unidex") / "encoders").iterdir()
    if file.name.endswith(".py") and (name := file.name.removesuffix(".py")) not in _NO_ENCODERS
)

LOSSES = Names(["decoupled-softmax", "supcon", "one-positive", "soft-top-k", "triplet", "contrastive", "bce"])
