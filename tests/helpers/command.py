"""The command line: the installed command in a process of its own, or its app in this one."""

import os
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from helpers import warm_start
from unidex.cli import main as cli

UNIDEX = Path(sys.executable).with_name("unidex")


def run(*arguments, text="", cwd=None, **environment):
    """Run the command in a process of its own, which starts warm."""
    return warm_start.run(*arguments, text=text, cwd=cwd, env=os.environ | environment)


def run_cold(*arguments, **environment):
    """Run the installed command as users do: where a test is about its start, its imports or the locale."""
    return subprocess.run(
        [UNIDEX, *map(str, arguments)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="surrogateescape",
        env=os.environ | environment,
    )


def call(*arguments):
    """Run the command in this process; errors of ours come out as they are."""
    result = CliRunner().invoke(cli.app, ["--quiet", *map(str, arguments)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def assert_one_line(done, code=1):
    assert done.returncode == code
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("unidex: ")
    assert "Traceback" not in done.stderr
