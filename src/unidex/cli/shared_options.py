"""Verbs as commands, and the options that several share; a flag means the same everywhere."""

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
    typer.Argument(
        metavar="PAIRS", help="A table of texts and labels (.csv, .tsv, .jsonl, .parquet, .xlsx).", show_default=False
    ),
]
NewFolder = Annotated[
    Path | None, typer.Option("--out", metavar="NEW", help="A new model folder to write; default: MODEL itself.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Change a setting (unidex config RECIPE). Repeatable."),
]
Device = Annotated[str, typer.Option("--device", help="cpu, cuda, ... or auto.")]
LanguageOption = Annotated[
    str,
    typer.Option("--language", metavar="TAG", help="Language of label texts, such as de; default: their own texts."),
]
AllowedOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allowed",
        metavar="FILE_OR_RULE",
        help="Predict only these labels: a file of uids, a uid, uid=PATTERN or group=PATTERN. Repeatable.",
    ),
]
ForbiddenOption = Annotated[
    list[str] | None,
    typer.Option("--forbidden", metavar="FILE_OR_RULE", help="Do not predict these labels, given likewise."),
]
MostSpecificOption = Annotated[
    bool | None,
    typer.Option(
        "--most-specific/--no-most-specific",
        help="Drop a label if a narrower one is predicted; default: as the model's rules say.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]


def picture(what: str) -> Any:
    """The option of a picture."""
    return typer.Option("--plot", metavar="FILE", help=f"{what} (.png, .svg, .pdf).")


def flag(name: str, default: Any, meaning: str, kind: Any, **more: Any) -> tuple[Any, Any]:
    """The annotation and the default of a flag for `with_flags`."""
    return Annotated[kind, typer.Option(f"--{name.replace('_', '-')}", help=meaning, **more)], default


_READING = {
    name: flag(name, default, meaning, kind, metavar=metavar, rich_help_panel="Reading DATA")
    for name, kind, default, metavar, meaning in (
        (
            *("format", str | None, None, "NAME"),
            "Format of DATA: unidex, xc-raw, dexml, pecos, xclib, bag-of-words, annif, libmultilabel or table; "
            "default: detected (docs/reference/data-formats.md).",
        ),
        (
            *("text", str, ReadOptions().text, None),
            "Fields to use as the text, if there are several: title, content or title+content.",
        ),
        (
            *("column", list[str] | None, None, "ROLE=NAME"),
            f"The role of a column of a table ({', '.join(ROLES)}), and the name of the column. Repeatable.",
        ),
        (
            *("separator", str | None, None, None),
            "Separator of labels in one cell of a table, such as ';'; default: guessed.",
        ),
        ("test", Path | None, None, "FILE", "A file of test texts, if DATA is one file."),
        (
            *("labels", Path | None, None, "FILE"),
            "Labels, if DATA is a table: a table (uid and text) or a SKOS vocabulary (.ttl, .rdf, .nt, also .gz).",
        ),
        (
            *("language", str, ReadOptions().language, "TAG"),
            "Language of label texts, such as de; default: the one that most labels have, of equals that of the texts.",
        ),
        ("strict", bool, False, None, "Refuse labels of texts that --labels lacks; default: leave them out."),
        (
            *("test_fraction", float, ReadOptions().test_fraction, None),
            "Share of the rows to use as test texts, if a table has none.",
        ),
        ("split_seed", int, ReadOptions().split_seed, None, "Seed of that split."),
        (
            "propensity_a",
            float | None,
            None,
            None,
            "Propensity constant A; default: from dataset.json, or by the name, or 0.55.",
        ),
        (
            "propensity_b",
            float | None,
            None,
            None,
            "Propensity constant B; default: from dataset.json, or by the name, or 1.5.",
        ),
    )
}


def with_flags(
    flags: Mapping[str, tuple[Any, Any]], into: str, join: Callable[[dict[str, Any]], Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a verb flags (name -> annotation and default), which it receives joined into one argument."""

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
    columns: dict[str, str] = {}
    for item in flags.pop("column") or ():
        role, equals, name = item.partition("=")
        if not equals:
            raise DataError(f"--column must be ROLE=NAME, such as text=title, but is {item!r}")
        if role in columns:
            raise DataError(
                f"--column must name each role once, but {role} is {columns[role]!r} and {name!r}; leave one out"
                + (" (two columns of text are --column title=... --column content=...)" if role == "text" else "")
            )
        columns[role] = name
    return ReadOptions(columns=columns, **flags)


# The flags for reading DATA, as one argument ``reading: ReadOptions``.
reads_data = with_flags(_READING, "reading", _read_options)


def _judge_options(flags: dict[str, Any]) -> ReadOptions:
    if flags["test_fraction"] is None:
        if flags["split_seed"] != ReadOptions().split_seed:
            raise DataError("--split-seed is about the share of --test-fraction, but there is none; leave it out")
        flags |= {"test_fraction": ReadOptions().test_fraction, "whole": True}
    return _read_options(flags)


# The flags for reading DATA that a model is judged on: all rows of a table.
judges_data = with_flags(
    _READING
    | {
        "test_fraction": flag(
            *("test_fraction", None, "Judge only this share of the rows of a table; default: all rows."),
            *(float | None,),
            rich_help_panel="Reading DATA",
        )
    },
    "reading",
    _judge_options,
)
WithTrainTexts = Annotated[
    bool, typer.Option("--with-train-texts", help="Count texts that the model was trained on; default: leave them out.")
]
SplitOption = Annotated[
    str | None, typer.Option("--split", help="test or train; default: test if DATA has test texts, else all texts.")
]
_TABLE_FORMAT = flag(
    *("format", None, "csv, tsv, jsonl, parquet, xlsx or text (one text per line); default: by the name of the file."),
    *(str | None,),
    metavar="NAME",
    rich_help_panel="Reading DATA",
)
_TEXT_FLAGS = {"format": _TABLE_FORMAT} | {name: _READING[name] for name in ("column", "text")}
# The flags for reading texts alone, and texts with labels, from one file that may be a table.
reads_texts = with_flags(_TEXT_FLAGS, "reading", _read_options)
# The same for new labels, whose texts may be in several languages.
reads_labels = with_flags(_TEXT_FLAGS | {"language": _READING["language"]}, "reading", _read_options)
reads_pairs = with_flags(_TEXT_FLAGS | {"separator": _READING["separator"]}, "reading", _read_options)


def help_text(docstring: str) -> str:
    r"""Join the lines of each paragraph, and escape brackets, which Typer would read as markup.

    >>> help_text("Add texts\nto a list [of texts].")
    'Add texts to a list \\[of texts].'
    """
    paragraphs = inspect.cleandoc(docstring).replace("[", r"\[").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def add_verb(app: typer.Typer, name: str, verb: Callable[..., None], *, hidden: bool = False) -> None:
    """Add a verb to a command, with its docstring as help; --help does not list a hidden one."""
    app.command(name, help=help_text(verb.__doc__ or ""), hidden=hidden)(verb)
