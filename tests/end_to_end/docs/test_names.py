"""README and docs name extras, verbs, options, settings, recipes and files that exist; README's lists are complete."""

import re
import tomllib
from importlib import import_module

import pytest
from typer.main import get_command

from helpers.paths import DOCS, ROOT
from unidex.cli.main import app
from unidex.config import Config
from unidex.config.recipe import settings_with_meaning
from unidex.config.recipes import recipe_names

README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
PAGES = [page for page in PAGES if "_generated" not in page.parts]
IDS = [str(page.relative_to(ROOT)) for page in PAGES]
SECTIONS = {path.partition(".")[0] for path, _, _ in settings_with_meaning()}
SETTINGS = {path for path, _, _ in settings_with_meaning()}
# Endings of files that begin like a section: train.jsonl.
# Settings of earlier commits, in figures of docs/results/tried.md that name the commit.
REMOVED = {"train.refit", "loss.choose_dual"}
ENDINGS = {"jsonl", "json", "csv", "txt", "tsv", "parquet", "npz", "md", "py", "safetensors", "te"}


def rows(heading):
    """The first cells of the table under a heading of README, as the code in them."""
    table = re.search(rf"^## {heading}\n.*?(^\|.*?)\n\n", README + "\n\n", re.MULTILINE | re.DOTALL)[1]
    return [re.findall(r"`([^`]+)`", line.split("|")[1]) for line in table.splitlines()[2:]]


def commands():
    root = get_command(app)
    for name, command in root.commands.items():
        for inner, verb in getattr(command, "commands", {"": command}).items():
            if not verb.hidden:
                yield f"{name} {inner}".strip(), verb


def test_extras_are_those_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert [name for cell in rows("Extras") for name in cell] == list(project["optional-dependencies"])


def test_verbs_are_those_of_the_command_line():
    found = []
    for cell in rows("Verbs"):
        for code in cell:
            first, *others = code.split(", ")
            words = first.split()
            verb = f"labels {words[1]}" if words[0] == "labels" else words[0]
            found += [verb, *(f"labels {name}" for name in others)]
    assert sorted(found) == sorted(name for name, _ in commands())


def test_recipes_are_those_of_the_package():
    listed = re.search(r"^## Recipes\n(.*?)^## ", README, re.MULTILINE | re.DOTALL)[1]
    assert set(recipe_names()) <= set(re.findall(r"`([^`]+)`", listed))
    page = (DOCS / "concepts" / "recipes.md").read_text(encoding="utf-8")
    cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    assert sorted(name for cell in cells for name in re.findall(r"`([^`]+)`", cell)) == recipe_names()


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_setting_that_a_page_names_exists(page):
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"`([a-z]+\.[a-z_]+)(?: [=<>x] .*?)?`", text) + re.findall(
        r"--set (?:\w+:)?(?:stages\.\w+\.)?([a-z]+\.[a-z_]+)=", text
    )
    named = [name for name in named if name.partition(".")[0] in SECTIONS and name.partition(".")[2] not in ENDINGS]
    assert set(named) <= SETTINGS | REMOVED


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_value_that_a_page_sets_is_allowed(page):
    for path, value in re.findall(r'`([a-z]+\.[a-z_]+) = ("[\w-]+"|true|false)`', page.read_text(encoding="utf-8")):
        section, _, key = path.partition(".")
        if section in SECTIONS:
            Config.model_validate({section: {key: tomllib.loads(f"value = {value}")["value"]}})


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_command_of_a_page_has_its_options(page):
    options = {name: {option for found in verb.params for option in found.opts} for name, verb in commands()}
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    fences = "\n".join(re.findall(r"^```\w*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    lines = re.findall(r"(?:^|\$ |[|&] |-m )unidex ([a-z-][^\n]*)", fences, re.MULTILINE)
    lines += re.findall(r"`(?:[A-Z_]+=\d+ )?unidex ([a-z-][^`\n]*)`", text)
    for line in lines:
        words = re.split(r"\s#\s|&&|\|\s|;\s|>\s", line)[0].split()
        words = words[1:] if words[0] == "--quiet" else words
        verb = " ".join(words[:2]) if words[0] == "labels" else words[0]
        if words[0].startswith("--") or verb == "labels VERB":
            continue
        assert verb in options, line
        for word in words:
            flag = re.fullmatch(r"\[?(--[a-z][a-z-]*)\]?.*", word)
            assert not flag or flag[1] in options[verb] | {"--help"} or flag[1].endswith("-"), line


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_file_that_a_page_names_exists(page):
    text = page.read_text(encoding="utf-8")
    places = [ROOT, ROOT / "src" / "unidex"]
    named = re.findall(r"(?:`|python |pytest )((?:[\w-]+/)+[\w-]+\.(?:py|toml|sh))\b", text)
    named += re.findall(r"`((?:src|tests|benchmarks|examples|docs)/[\w./-]*)`", text)
    for name in named:
        assert any((place / name).exists() for place in places), name


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_python_name_of_a_page_exists(page):
    text = page.read_text(encoding="utf-8")
    for name in re.findall(r"`(unidex(?:\.\w+)+)", text) + re.findall(r"^.. auto\w+:: (\S+)", text, re.MULTILINE):
        if name.endswith((".service", ".md")):
            continue
        assert exists(name), name
    for module, names in re.findall(r"^(?:>>> )?from (unidex[\w.]*) import (.+)$", text, re.MULTILINE):
        for name in names.split(", "):
            assert exists(f"{module}.{name}"), f"{module}.{name}"


def test_every_test_that_a_page_names_exists():
    tests = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("test_*.py"))
    for page in PAGES:
        for name in re.findall(r"`(test_\w+)`", page.read_text(encoding="utf-8")):
            assert f"def {name}(" in tests, f"{page.name} names {name}"


def exists(name):
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False
