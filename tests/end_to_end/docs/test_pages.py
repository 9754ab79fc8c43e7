"""Every console command in the pages below prints what the page shows, and every example runs."""

import doctest
import re
import shlex
import shutil
import subprocess

import pytest

from helpers import warm_start
from helpers.paths import DOCS, ROOT


@pytest.mark.parametrize(
    ("page", "num_files", "num_commands"),
    [("docs/reference/data-formats.md", 7, 12), ("docs/how-to/gandalf.md", 0, 2), ("README.md", 0, 1)],
    ids=["formats", "gandalf", "README"],
)
def test_every_command_prints_what_the_page_shows(page, num_files, num_commands, tmp_path):
    """One after the other: some commands read what those before them have written."""
    text = (ROOT / page).read_text(encoding="utf-8")
    files = re.findall(r"^`(\S+)`:\n\n```\w+\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    sessions = re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    commands = [
        part.partition("\n") for session in sessions for part in re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]
    ]
    assert len(files) >= num_files
    assert len(commands) >= num_commands
    for name, content in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    for command, _, expected in commands:
        program, *arguments = shlex.split(command)
        pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "cwd": tmp_path}
        if program == "unidex":
            process = warm_start.start(*arguments, **pipe)
        else:
            process = subprocess.Popen([program, *arguments], text=True, encoding="utf-8", **pipe)
        assert (command, process.communicate()[0]) == (command, expected)
        assert process.returncode == (1 if re.search("^unidex: ", expected, re.MULTILINE) else 0)


def test_every_command_of_the_page_on_vocabularies_prints_what_the_page_shows(tmp_path):
    """Scores may differ in their last digits on other machines."""
    pytest.importorskip("rdflib", reason="SKOS needs the extra skos (rdflib)")
    text = (DOCS / "how-to/vocabularies.md").read_text(encoding="utf-8")
    shutil.copytree(ROOT / "examples/vocabulary", tmp_path, dirs_exist_ok=True)
    for name, content in re.findall(r"^`(\S+)`:\n\n```\w+\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        (tmp_path / name).write_text(content, encoding="utf-8")
    sessions = re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    commands = [
        part.partition("\n") for session in sessions for part in re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]
    ]
    assert len(commands) == 8
    for command, _, expected in commands:
        pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "cwd": tmp_path}
        process = warm_start.start(*shlex.split(command)[1:], **pipe)
        assert (command, _rounded(process.communicate()[0])) == (command, _rounded(expected))
        assert process.returncode == 0


def _rounded(text):
    return re.sub(r"\d+\.\d{4}\b", lambda number: f"{float(number[0]):.1f}", text)


@pytest.mark.parametrize(
    "page",
    [
        "how-to/gandalf.md",
        "reference/losses.md",
        "reference/metrics.md",
        "reference/python-api.md",
        "reference/search-index.md",
    ],
)
def test_every_python_session_prints_what_the_page_shows(page):
    found = doctest.testfile(str(DOCS / page), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.attempted >= 7
    assert found.failed == 0


def test_the_example_goes_from_a_table_to_predictions():
    done = warm_start.run(program=(ROOT / "examples" / "from_csv.py").read_text(encoding="utf-8"))
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == "the printer has no toner -> printing, supplies"
    assert second.startswith("no wireless network today -> wireless network")
