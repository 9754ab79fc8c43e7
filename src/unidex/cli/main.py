"""``unidex VERB ...``: the verbs, and how errors become exit codes.

Exit codes: 0 done, 1 the user's input, 2 usage, 3 our fault, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from unidex import __version__
from unidex.cli import convert, inspect, score
from unidex.cli.output import install_logging, install_progress
from unidex.errors import UnidexError

app = typer.Typer(
    name="unidex",
    help=(
        "Match a text to the right few of thousands to hundreds of millions of labels.\n\n"
        "DATA is a folder, a file or the name of the built-in set 'hpo'. Results go to standard output, progress and "
        "logs to standard error."
    ),
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("inspect")(inspect.inspect)
app.command("convert")(convert.convert)
app.command("score")(score.score)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"unidex {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="UNIDEX_DEBUG", help="Show the traceback of an error.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no log lines.")] = False,
) -> None:
    if debug:
        os.environ["UNIDEX_DEBUG"] = "1"
    if not quiet:
        install_progress()
        install_logging()


def main() -> None:
    """Run the command line and leave with its exit code."""
    try:
        app()
    except UnidexError as error:
        _leave(error.exit_code, f"unidex: {error}", error)
    except KeyboardInterrupt:
        _leave(130, "unidex: interrupted", None)
    except BrokenPipeError:
        # Whoever read our output has left; what Python would print on closing it is noise.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except MemoryError as error:
        _leave(1, "unidex: the machine's memory does not suffice; take fewer texts or a machine with more", error)
    except Exception as error:
        what = " ".join(f"{type(error).__name__}: {error}".split())
        _leave(3, f"unidex: a fault of ours, not of your data: {what} (--debug shows where)", error)


def _leave(code: int, message: str, error: BaseException | None) -> None:
    if error is not None and os.environ.get("UNIDEX_DEBUG"):
        import traceback

        traceback.print_exception(error, file=sys.stderr)
    sys.stderr.write(message + "\n")
    sys.exit(code)
