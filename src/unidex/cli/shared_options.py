"""Options that several verbs share; a flag means the same everywhere."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from unidex.data.read_options import ROLES, ReadOptions
from unidex.errors import DataError

Data = Annotated[str, typer.Argument(metavar="DATA", help="A folder, a file, or 'hpo'.", show_default=False)]
ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder.", show_default=False)]
ModeOption = Annotated[str | None, typer.Option("--mode", help="dual, classifier or both; default: the recipe's mode.")]
PairsFile = Annotated[
    Path,
    typer.Argument(metavar="PAIRS", help='JSON lines with "text" and "labels", plain or gzipped.', show_default=False),
]
NewFolder = Annotated[
    Path | None, typer.Option("--out", metavar="NEW", help="A new model folder to write; default: MODEL itself.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Change a setting (unidex config RECIPE). Repeatable."),
]
Device = Annotated[str, typer.Option("--device", help="cpu, cuda, ... or auto.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]

_PANEL = "Reading DATA"
_DEFAULTS = ReadOptions()


def _option(kind: Any, name: str, help_text: str, **more: Any) -> Any:
    return Annotated[kind, typer.Option(name, help=help_text, rich_help_panel=_PANEL, **more)]


# flag -> (annotation, default); the flags become one ReadOptions.
_READING: dict[str, tuple[Any, Any]] = {
    "format": (
        _option(
            str | None,
            "--format",
            "Format of DATA: unidex, xc-raw, dexml, pecos, xclib, bag-of-words, libmultilabel or table; "
            "default: detected (docs/reference/data-formats.md).",
            metavar="NAME",
        ),
        None,
    ),
    "text": (
        _option(str, "--text", "Fields to use as the text, if there are several: title, content or title+content."),
        _DEFAULTS.text,
    ),
    "column": (
        _option(
            list[str] | None,
            "--column",
            f"The role of a column of a table ({', '.join(ROLES)}), and the name of the column. Repeatable.",
            metavar="ROLE=NAME",
        ),
        None,
    ),
    "separator": (
        _option(
            str | None,
            "--separator",
            "Separator of labels in one cell of a table, such as ';'; default: guessed.",
        ),
        None,
    ),
    "test": (_option(Path | None, "--test", "A file of test texts, if DATA is one file.", metavar="FILE"), None),
    "labels": (
        _option(Path | None, "--labels", "A table of labels (uid and text), if DATA is a table.", metavar="FILE"),
        None,
    ),
    "test_fraction": (
        _option(float, "--test-fraction", "Share of the rows to use as test texts, if a table has none."),
        _DEFAULTS.test_fraction,
    ),
    "split_seed": (_option(int, "--split-seed", "Seed of that split."), _DEFAULTS.split_seed),
    "propensity_a": (
        _option(float | None, "--propensity-a", "Propensity constant A; default: from dataset.json, or 0.55."),
        None,
    ),
    "propensity_b": (
        _option(float | None, "--propensity-b", "Propensity constant B; default: from dataset.json, or 1.5."),
        None,
    ),
}


def with_flags(
    flags: Mapping[str, tuple[Any, Any]], into: str, join: Callable[[dict[str, Any]], Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a verb flags, which it receives joined into one argument.

    Args:
        flags: name -> annotation and default.
        into: the argument.
        join: its value, from the values by name.
    """

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(verb, eval_str=True)
        added = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for name, (annotation, default) in flags.items()
        ]
        kept = [parameter for name, parameter in own.parameters.items() if name != into]
        parameters = [*(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in kept), *added]

        @functools.wraps(verb)
        def joined(**given: Any) -> None:
            values = {name: given.pop(name) for name in flags}
            verb(**{into: join(values)}, **given)

        joined.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        # Typer reads the annotations too, and would find the unresolved ones of the verb.
        joined.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return joined

    return decorate


def _read_options(flags: dict[str, Any]) -> ReadOptions:
    return ReadOptions(columns=_columns(flags.pop("column")), **flags)


def _columns(given: list[str] | None) -> dict[str, str]:
    columns = {}
    for item in given or ():
        role, equals, name = item.partition("=")
        if not equals:
            raise DataError(f"--column must be ROLE=NAME, such as text=title, but is {item!r}")
        columns[role] = name
    return columns


# The flags for reading DATA, as one argument ``reading: ReadOptions``.
reads_data = with_flags(_READING, "reading", _read_options)
