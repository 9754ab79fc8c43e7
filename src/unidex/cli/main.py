"""``unidex VERB ...``: the verbs, and how errors become exit codes.

Exit codes: 0 done, 1 the user's input, 2 usage, 3 our fault, 130 interrupted.
"""

from __future__ import annotations

import io
import os
import re
import sys
from typing import Annotated

import typer

from unidex import __version__
from unidex.cli.augment import augment
from unidex.cli.calibrate import calibrate
from unidex.cli.collector import spare_collections
from unidex.cli.compare import compare, report
from unidex.cli.convert import convert
from unidex.cli.explain import explain
from unidex.cli.export import export
from unidex.cli.inspect import inspect
from unidex.cli.labels import app as labels_app
from unidex.cli.output import ReaderLeftError, install_logging, install_progress
from unidex.cli.plan import plan
from unidex.cli.predict import predict
from unidex.cli.recipes import config, recipes
from unidex.cli.remember import remember
from unidex.cli.score import evaluate, score
from unidex.cli.serve import serve
from unidex.cli.shared_options import add_verb
from unidex.cli.threads import choose_threads
from unidex.cli.train import train
from unidex.cli.tune import tune
from unidex.errors import UnidexError
from unidex.storage.disk_errors import as_disk_error

# Torch raises a RuntimeError, whose words alone say that memory is short.
_TORCH_LACKS_MEMORY = re.compile("can't allocate memory|not enough memory|out of memory")

app = typer.Typer(
    name="unidex",
    help=(
        "Match a text to the right few of thousands to a hundred million labels.\n\n"
        "DATA is a folder, a file or the name of the built-in set 'hpo'. Results go to standard output, progress and "
        "logs to standard error."
    ),
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


for verb in (
    *(inspect, convert, augment, plan, train, tune, predict, explain, evaluate, calibrate),
    *(score, compare, report, remember, export, serve, recipes, config),
):
    add_verb(app, verb.__name__, verb)
app.add_typer(labels_app, name="labels")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"unidex {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="UNIDEX_DEBUG", help="Show the traceback of an error.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no log lines.")] = False,
) -> None:
    # Without the flag the environment variable decides; "0" and "false" mean no.
    os.environ["UNIDEX_DEBUG"] = "1" if debug else ""
    # Of several processes that torchrun started, rank 0 alone prints.
    quiet = quiet or not _is_first()
    if not quiet:
        install_progress()
    install_logging(quiet=quiet)


def main() -> None:
    """Run the command line and leave with its exit code."""
    choose_threads(os.environ)
    spare_collections()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Results are UTF-8 in every locale; file names that are not UTF-8 keep their bytes.
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
    try:
        try:
            app()
        except SystemExit:
            # Flush here: at interpreter exit Python could only complain about a closed pipe.
            sys.stdout.flush()
            raise
    except UnidexError as error:
        # All ranks meet the same error, and rank 0 prints it; an error of one rank alone has is_first.
        is_told = getattr(error, "is_first", _is_first())
        _exit(error.exit_code, f"unidex: {error}" if is_told else "", error)
    except KeyboardInterrupt:
        _exit(130, "unidex: interrupted", None)
    except (BrokenPipeError, ReaderLeftError):
        # Keep Python from printing an error when it closes the output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:
        if isinstance(error, MemoryError) or _TORCH_LACKS_MEMORY.search(str(error)):
            _exit(1, "unidex: out of memory; use fewer texts or a machine with more memory", error)
        refused = as_disk_error(getattr(error, "filename", None) or "standard output", error)
        if refused is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            _exit(refused.exit_code, f"unidex: {refused}", error)
        what = f"{type(error).__name__}: {error}"
        _exit(3, f"unidex: internal error, not a fault of your data: {what} (--debug shows the traceback)", error)


def _is_first() -> bool:
    # Set by torchrun; asking torch would import it.
    return os.environ.get("RANK", "0") == "0" or os.environ.get("WORLD_SIZE", "1") == "1"


def _exit(code: int, message: str, error: BaseException | None) -> None:
    if error is not None and os.environ.get("UNIDEX_DEBUG"):
        import traceback

        traceback.print_exception(error, file=sys.stderr)
    if message:
        # One line, even if a file name has line ends.
        sys.stderr.write(" ".join(message.split()) + "\n")
    if getattr(error, "leaves_threads", False):
        # Threads that wait for a lost process would abort an orderly end, and with it the exit code.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
