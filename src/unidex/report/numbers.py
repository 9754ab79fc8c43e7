"""Numbers as people read them."""

from __future__ import annotations

from typing import Any


def percent(value: float | None) -> str:
    """A metric, two decimals.

    >>> percent(45.204), percent(None)
    ('45.20', '')
    """
    return "" if value is None else f"{value:.2f}"


def with_spread(value: dict[str, Any], *, digits: int = 2) -> str:
    """Mean and spread in one line.

    >>> with_spread({"mean": 45.2, "spread": 0.314})
    '45.20 ± 0.31'
    >>> with_spread({"mean": 45.2, "spread": None})
    '45.20'
    """
    if value["mean"] is None:
        return ""
    mean = f"{value['mean']:.{digits}f}"
    return mean if value["spread"] is None else f"{mean} ± {value['spread']:.{digits}f}"


def seconds(value: float | None) -> str:
    """A duration.

    >>> seconds(3.21), seconds(75.2), seconds(7384), seconds(None)
    ('3.2 s', '1 min 15 s', '2 h 03 min', '')
    """
    if value is None:
        return ""
    if value < 60:
        return f"{value:.1f} s"
    whole = round(value)
    return (
        f"{whole // 60} min {whole % 60:02d} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    )


def size(value: float | None) -> str:
    """A number of bytes, in millions or billions.

    >>> size(1_234_567), size(2_500_000_000), size(900)
    ('1.2 MB', '2.50 GB', '0.0 MB')
    """
    if value is None:
        return ""
    return f"{value / 1e9:.2f} GB" if value >= 1e9 else f"{value / 1e6:.1f} MB"


def count(value: float | None) -> str:
    """A large number, short.

    >>> count(950), count(1_234_567), count(66_000_000), count(2.5e9)
    ('950', '1.23 M', '66.0 M', '2.50 G')
    """
    if value is None:
        return ""
    for unit, name in ((1e9, "G"), (1e6, "M")):
        if value >= unit:
            return f"{value / unit:.{2 if value < 10 * unit else 1}f} {name}"
    return f"{value:,.0f}"


def milliseconds(value: float | None) -> str:
    """A short time.

    >>> milliseconds(0.1234), milliseconds(12.3), milliseconds(None)
    ('0.12 ms', '12.3 ms', '')
    """
    if value is None:
        return ""
    return f"{value:.2f} ms" if value < 10 else f"{value:.1f} ms"
