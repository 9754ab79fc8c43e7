"""Every command in docs/data-formats.md prints what the page shows."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

UNIDEX = Path(sys.executable).with_name("unidex")
PAGE = (Path(__file__).resolve().parents[1] / "docs" / "data-formats.md").read_text(encoding="utf-8")
FILES = re.findall(r"^`(\S+)`:\n\n```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SESSIONS = re.findall(r"^```console\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = [part.partition("\n") for session in SESSIONS for part in re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]]


def test_every_command_prints_what_the_page_shows(tmp_path):
    """One after the other: some commands read what those before them have written."""
    assert len(FILES) >= 7
    assert len(COMMANDS) >= 12
    for name, content in FILES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    for command, _, expected in COMMANDS:
        program, *arguments = shlex.split(command)
        done = subprocess.run(
            [UNIDEX if program == "unidex" else program, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            cwd=tmp_path,
        )
        assert (command, done.stdout) == (command, expected)
        assert done.returncode == (1 if expected.startswith("unidex: ") else 0)
