"""The requests and clients of docs/how-to/serve.md work, and answers have the form that the page shows."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest
from typer.main import get_command

from helpers.paths import DOCS
from helpers.served import TOKEN, served
from helpers.synthetic import QUICK, topics
from helpers.waits import PATIENCE
from unidex.cli.main import app
from unidex.server.settings import Limits
from unidex.verbs.train import train

PAGE = (DOCS / "how-to" / "serve.md").read_text(encoding="utf-8")
SESSIONS = re.findall(r"^```\n(\$ .*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = [
    part.partition("\n")[::2] for session in SESSIONS for part in re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]
]


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    data = topics()
    settings = [
        *QUICK,
        "train.validation=0.2",
        "predict.knn=0.1",
        "predict.choose_knn=false",
        "predict.snippet_length=160",
    ]
    train(data, "unidec", settings=settings, out=folder / "model")
    tokens = folder / "tokens.txt"
    tokens.write_text(f"{TOKEN}\n")
    tokens.chmod(0o600)
    with served(folder / "model", "--token-file", tokens) as found:
        found.folder = folder
        yield found


def form_of(value):
    """The names in an answer and the kinds of their values; what stands in a list is its first."""
    if isinstance(value, dict):
        return {name: form_of(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [form_of(value[0])] if value else []
    return "number" if isinstance(value, int | float) else type(value).__name__


def fits(found, shown):
    """Whether an answer has the form that the page shows; a list may be empty, and a number may be null."""
    if isinstance(shown, dict):
        return isinstance(found, dict) and found.keys() == shown.keys() and all(fits(found[n], shown[n]) for n in shown)
    if isinstance(shown, list):
        return isinstance(found, list) and (not found or not shown or fits(found[0], shown[0]))
    return found in (shown, "NoneType") if shown == "number" else found == shown


def run(command, service, number_of_labels=24):
    command = command.replace("localhost:8000", f"{service.address[0]}:{service.address[1]}")
    command = command.replace("/10621", f"/{number_of_labels}").replace("HP:0000750", "L3")
    program, *arguments = shlex.split(command.replace("$TOKEN", TOKEN))
    done = subprocess.run([program, *arguments], capture_output=True, text=True, cwd=service.folder, timeout=PATIENCE)
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_every_request_of_the_page_is_answered_in_the_form_shown(service):
    """One after the other: what a request adds, a later one renames and removes."""
    asked = [(command, shown) for command, shown in COMMANDS if command.startswith("curl ") and "|" not in command]
    assert len(asked) >= 11
    for command, shown in asked:
        answer = json.loads(run(command, service))
        # Only the parts a model has are told, and this one has others.
        wanted = form_of(without_parts(json.loads(shown)))
        assert fits(form_of(without_parts(answer)), wanted), (command, answer)


def without_parts(value):
    if isinstance(value, dict):
        return {name: without_parts(inner) for name, inner in value.items() if name != "parts"}
    return [without_parts(inner) for inner in value] if isinstance(value, list) else value


def test_every_metric_of_the_page_is_counted(service):
    service.predict(["w1a w2b"])
    found = service.client.get("/metrics").text
    shown = next(shown for command, shown in COMMANDS if "/metrics" in command)
    names = {re.match(r"\w+", line)[0] for line in shown.splitlines()}
    assert len(names) == 12
    told = {line.split()[2] for line in found.splitlines() if line.startswith("# TYPE ")}
    # A count of what has not happened yet is announced and has no line.
    assert {re.sub(r"_(total|count|sum)$", "", name) for name in names} == {
        re.sub(r"_total$", "", name) for name in told
    }


def client(language):
    return re.search(rf"`(client\.\w+)`:\n\n```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL).groups()


@pytest.mark.parametrize(
    ("language", "program", "num_lines"), [("python", sys.executable, 4), ("javascript", shutil.which("node"), 4)]
)
def test_the_example_clients_print_labels(service, tmp_path, language, program, num_lines):
    if program is None:
        pytest.skip("node is not installed")
    name, code = client(language)
    (tmp_path / name).write_text(code, encoding="utf-8")
    done = subprocess.run(
        [program, tmp_path / name], capture_output=True, text=True, env=os.environ | {"UNIDEX_URL": service.url}
    )
    assert done.returncode == 0, done.stderr
    shown = next(shown for command, shown in COMMANDS if command.endswith(name))
    assert len(done.stdout.splitlines()) == len(shown.splitlines()) == num_lines
    assert re.search(r"(tail|torso|head)\)?$", done.stdout)


def test_options_and_limits_are_those_of_the_command():
    options = {name for option in get_command(app).commands["serve"].params for name in option.opts}
    unit = (DOCS / "how-to" / "unidex.service").read_text(encoding="utf-8")
    container = (DOCS / "how-to" / "Containerfile").read_text(encoding="utf-8")
    named = set(re.findall(r"`(--[\w-]+)", PAGE.partition("\n## Security")[0]))
    assert {"--token-file", "--workers", "--max-k"} <= named
    assert named - {"--max-"} <= options
    started = re.search(r"^ExecStart=.*", unit, re.MULTILINE)[0]
    assert set(re.findall(r"--[\w-]+", started)) <= options
    assert set(re.findall(r"--[\w-]+", container.partition("ENTRYPOINT")[2])) <= options
    limits = Limits()
    for count in (limits.text_length, limits.texts, limits.k, limits.labels, limits.concurrent):
        assert f"| {count:,} |" in PAGE
    assert f"| {limits.body >> 20} MiB |" in PAGE
    assert f"{limits.body_seconds:g} s to send its body" in " ".join(PAGE.split())
