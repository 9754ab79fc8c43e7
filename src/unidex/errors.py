"""The errors a user can meet. Every message says what must hold, what was found and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


class UnidexError(Exception):
    """Base of every error that the user can fix; the command line prints it as one line and exits with 1."""

    exit_code = 1


class ConfigError(UnidexError):
    """A recipe or a setting is invalid."""


class ModelError(UnidexError):
    """A model folder is missing, incomplete or damaged."""


class IndexUnreachableError(UnidexError):
    """The database of an index does not answer."""


class MissingExtraError(UnidexError):
    """A feature needs an optional package that is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f'{what} needs the "{extra}" extra, which is not installed: pip install "unidex[{extra}]"')


class DataError(UnidexError):
    """A data set breaks a rule of its format.

    Args:
        message: what must hold, but what was found; what to do.
        file: the file that breaks the rule.
        line: its line, counted from 1.

    >>> print(DataError("a label index must be below 10, but is 12", file="trn.json.gz", line=3))
    trn.json.gz:3: a label index must be below 10, but is 12
    """

    def __init__(self, message: str, *, file: str | Path | None = None, line: int | None = None) -> None:
        place = "" if file is None else f"{file}: " if line is None else f"{file}:{line}: "
        # A message is one line whatever a user's file holds.
        super().__init__(place + " ".join(message.split()))
        self.file = None if file is None else str(file)
        self.line = line


def listed(names: Iterable[object], *, limit: int = 10) -> str:
    """Sorted names for a message, cut at ``limit``.

    >>> listed(["b", "a"])
    'a, b'
    >>> listed(range(12), limit=3)
    '0, 1, 10 and 9 more'
    """
    found = sorted(str(name) for name in names)
    shown = ", ".join(found[:limit])
    return shown if len(found) <= limit else f"{shown} and {len(found) - limit} more"


def quoted(value: object, *, limit: int = 40) -> str:
    """A value as it is shown inside a message: quoted, and cut where it is long.

    >>> quoted("abc")
    "'abc'"
    >>> quoted("x" * 100, limit=5)
    "'xxxxx...'"
    """
    if isinstance(value, str) and len(value) > limit:
        return repr(value[:limit] + "...")
    shown = repr(value)
    return shown if len(shown) <= limit + 5 else shown[:limit] + "..."
