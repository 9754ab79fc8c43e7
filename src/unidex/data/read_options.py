"""What a user may say about how a data set is to be read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal, get_args

from unidex.errors import DataError, listed, quoted

TextFields = Literal["title", "content", "title+content"]
ROLES = ("text", "title", "content", "labels", "relevance", "uid")


@dataclass(frozen=True)
class TableForm:
    """How a table was read; a model remembers it for later tables of the same kind.

    Attributes:
        columns: role -> name of the column.
        separator: what separates labels in a cell; "" if a cell is one label, None if cells are lists.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    separator: str | None = None


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How to read; every field has a default that suits most data."""

    format: str | None = None  # name of a format, or None to detect it
    text: TextFields = "title+content"  # which fields make the text, where a format has titles and contents
    # role -> column name, for tables whose columns cannot be guessed
    columns: Mapping[str, str] = field(default_factory=dict)
    separator: str | None = None  # what separates labels in one cell, or None to guess
    test: Path | None = None  # a table of test texts beside the one given
    labels: Path | None = None  # a table or vocabulary of labels beside the one given
    language: str = ""  # language of label texts, where there are several; "": of most labels, then of the texts
    strict: bool = False  # refuse labels of texts that ``labels`` does not have, instead of leaving them out
    test_fraction: float = 0.2  # share of rows that become test where no test file is given
    whole: bool = False  # no such share: the rows are all to be judged
    trained: TableForm | None = None  # how the training data of a model was read: this table is one of the same kind
    split_seed: int = 0  # seed of that split
    propensity_a: float | None = None  # propensity constant A, or None for the data set's own
    propensity_b: float | None = None  # propensity constant B, or None for the data set's own

    def __post_init__(self) -> None:
        if self.text not in get_args(TextFields):
            raise DataError(f"--text must be one of {listed(get_args(TextFields))}, but is {quoted(self.text)}")
        for role in self.columns:
            if role not in ROLES:
                raise DataError(
                    f"--column takes ROLE=NAME with a role of {listed(ROLES)}, but the role is {quoted(role)}"
                )
        if not 0 <= self.test_fraction < 1:
            raise DataError(f"--test-fraction must be at least 0 and below 1, but is {self.test_fraction}")

    def separator_to_use(self) -> str | None:
        """What separates labels in one cell: as given, as in the training, or None to guess."""
        return self.separator if self.separator is not None or self.trained is None else self.trained.separator

    def flags(self) -> list[str]:
        """What a user would type for these options.

        >>> ReadOptions(text="title", columns={"text": "body"}).flags()
        ['--text', 'title', '--column', 'text=body']
        """
        words = []
        for name, flag in self._given():
            values = [getattr(self, name)]
            if name == "columns":
                values = [f"{role}={column}" for role, column in self.columns.items()]
            words += [word for value in values for word in (flag, str(value))]
        return words

    def _given(self) -> Iterator[tuple[str, str]]:
        """The fields that differ from their defaults, with their flags."""
        default = ReadOptions()
        for name in (option.name for option in fields(self) if option.name not in ("whole", "trained")):
            if getattr(self, name) != getattr(default, name):
                yield name, "--column" if name == "columns" else f"--{name.replace('_', '-')}"

    def refuse_others(self, heeded: Collection[str], what: str) -> None:
        """An option that has no effect on what is read is a mistake, not silence.

        >>> ReadOptions(separator="|").refuse_others(["text"], "the format xc-raw")
        Traceback (most recent call last):
        unidex.errors.DataError: --separator has no part in reading the format xc-raw; leave it out
        """
        for name, flag in self._given():
            if name not in heeded:
                raise DataError(f"{flag} has no part in reading {what}; leave it out")
