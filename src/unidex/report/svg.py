"""The parts of a picture as SVG: elements, a scale with round ticks, axes. Colours are the page's, by class.

Elements are built as a tree, so that no text of a user can be taken for markup.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from unidex.report.display_text import plain

Element = ElementTree.Element


def element(name: str, *children: Element, text: str | None = None, **attributes: str | float) -> Element:
    """An element; ``class_`` is class, ``stroke_width`` is stroke-width, numbers have two decimals at most.

    >>> as_text(element("circle", cx=1.234, cy=5, class_="point"))
    '<circle cx="1.23" cy="5" class="point" />'
    """
    made = ElementTree.Element(name)
    for key, value in attributes.items():
        shown = plain(value) if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")
        made.set(key.rstrip("_").replace("_", "-"), shown)
    made.text = None if text is None else plain(text)
    made.extend(children)
    return made


def as_text(tree: Element) -> str:
    """SVG as it stands in a page."""
    return ElementTree.tostring(tree, encoding="unicode")


def picture(width: float, height: float, title: str, *children: Element) -> Element:
    """A whole picture, as wide as its place; ``title`` is for who cannot see it."""
    return element(
        "svg",
        element("title", text=title),
        *children,
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        class_="picture",
    )


def path(points: Sequence[tuple[float, float]], class_: str) -> Element:
    """A line through points."""
    return element("path", d="M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points), class_=class_)


@dataclass(frozen=True)
class Scale:
    """Values low to high at places start to end; by their logarithms where that is asked.

    >>> Scale(0, 10, 0, 200)(5)
    100.0
    >>> Scale(1, 100, 0, 200, logarithmic=True)(10)
    100.0
    """

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    @classmethod
    def around(
        cls,
        values: Sequence[float],
        start: float,
        end: float,
        *,
        logarithmic: bool = False,
        margin: float = 0.12,
        most: float = math.inf,
    ) -> Scale:
        """A scale with some room around values, but not below 0 where they are not, and not above ``most``."""
        low, high = min(values, default=0.0), max(values, default=1.0)
        if logarithmic:
            room = max((high / low) ** margin, 1.3)
            return cls(low / room, high * room, start, end, logarithmic=True)
        room = max(margin * (high - low), 0.005 * abs(high), 1e-6)
        return cls(max(low - room, 0.0) if low >= 0 else low - room, min(high + room, max(most, high)), start, end)

    def __call__(self, value: float) -> float:
        """The place of a value."""
        low, high = self.low, self.high
        if self.logarithmic:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return self.start + (value - low) / ((high - low) or 1.0) * (self.end - self.start)

    def ticks(self, most: int = 5) -> list[float]:
        """Round values inside.

        >>> Scale(0.3, 9.6, 0, 1).ticks(), Scale(3, 400, 0, 1, logarithmic=True).ticks()
        ([2.0, 4.0, 6.0, 8.0], [5.0, 10.0, 20.0, 50.0, 100.0, 200.0])
        """
        if self.logarithmic:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            for steps in ((1, 2, 5), (1, 3), (1,)):
                found = [step * 10.0**power for power in powers for step in steps]
                inside = [value for value in found if self.low <= value <= self.high]
                if len(inside) <= most + 1:
                    break
            if len(inside) > 1:
                return inside
            # Less than a power of ten: round steps, as of any values.
        rough = (self.high - self.low) / most
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        return [round(at * step, 10) for at in range(first, math.floor(self.high / step + 1e-9) + 1)]


def axes(
    x: Scale, y: Scale, x_name: str, y_name: str, *, most: tuple[int, int] = (5, 5), is_counted: bool = False
) -> Element:
    """Grid lines, ticks and names of two axes; y grows upwards, so its start is below its end.

    With ``is_counted``, x has whole numbers only.
    """
    made = element("g", class_="axes")
    for value in (value for value in x.ticks(most[0]) if not is_counted or value == int(value)):
        at = x(value)
        made.append(element("line", x1=at, x2=at, y1=y.start, y2=y.end, class_="grid"))
        made.append(element("text", x=at, y=y.start + 15, text_anchor="middle", text=f"{value:,g}"))
    for value in y.ticks(most[1]):
        at = y(value)
        made.append(element("line", x1=x.start, x2=x.end, y1=at, y2=at, class_="grid"))
        made.append(element("text", x=x.start - 6, y=at + 4, text_anchor="end", text=f"{value:,g}"))
    if x_name:
        made.append(element("text", x=x.end, y=y.start + 31, text_anchor="end", class_="what", text=x_name))
    if y_name:
        made.append(element("text", x=x.start - 30, y=y.end - 13, class_="what", text=y_name))
    return made
