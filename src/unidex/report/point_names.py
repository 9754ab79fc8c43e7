"""Names beside points, none over another where there is room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

_CHARACTER, _LINE = 6.9, 13.0  # of a name, in the picture's units
# Directions from a point, the best first; then the same from farther away, with a line to the point.
_DIRECTIONS = ((1, 0), (-1, 0), (0, -1), (0, 1), (1, -1), (1, 1), (-1, -1), (-1, 1))
_DISTANCES = (9.0, 20.0, 34.0, 50.0)


@dataclass(frozen=True)
class Name:
    """Where a name stands: its baseline, the end that is there, and whether it needs a line to its point."""

    x: float
    y: float
    anchor: Literal["left", "center", "right"]
    is_far: bool


@dataclass(frozen=True)
class _Box:
    left: float
    top: float
    right: float
    bottom: float

    def overlap(self, other: _Box) -> float:
        wide = min(self.right, other.right) - max(self.left, other.left)
        high = min(self.bottom, other.bottom) - max(self.top, other.top)
        return max(wide, 0.0) * max(high, 0.0)

    def outside(self, width: float, height: float) -> float:
        return max(-self.left, 0) + max(self.right - width, 0) + max(-self.top, 0) + max(self.bottom - height, 0)


def place_names(points: Sequence[tuple[float, float]], names: Sequence[str], width: float, height: float) -> list[Name]:
    """A place for each name, near its point, inside the picture, off other names and points.

    Greedy: a name takes the first free place, or where none is free the one with the smallest overlap.

    >>> [name.anchor for name in place_names([(10, 50), (95, 50)], ["left", "right"], 100, 100)]
    ['left', 'right']
    """
    taken = [_Box(x - 6, y - 6, x + 6, y + 6) for x, y in points]
    found = []
    for (x, y), name in zip(points, names, strict=True):
        tried = []
        for distance in _DISTANCES:
            for right, down in _DIRECTIONS:
                place, box = _candidate(x, y, right, down, distance, len(name) * _CHARACTER)
                cost = sum(box.overlap(other) for other in taken) + 1000 * box.outside(width, height)
                tried.append((cost, place, box))
        # The first of equals: near before far.
        _, place, box = min(tried, key=lambda one: one[0])
        taken.append(box)
        found.append(place)
    return found


def _candidate(x: float, y: float, right: int, down: int, distance: float, length: float) -> tuple[Name, _Box]:
    anchor: Literal["left", "center", "right"] = "center" if right == 0 else "left" if right > 0 else "right"
    at_x, middle = x + right * distance, y + down * max(distance, 0.6 * _LINE + 5)
    left = at_x - {"left": 0.0, "center": length / 2, "right": length}[anchor]
    box = _Box(left, middle - _LINE / 2, left + length, middle + _LINE / 2)
    return Name(at_x, middle + 4, anchor, distance > _DISTANCES[0]), box
