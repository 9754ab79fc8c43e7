"""Reference pages that come from the code: settings, recipes, refused combinations, commands, HTTP routes.

Each function returns Markdown; `write_all` writes one file per function, which a page of `reference/` includes.
Run by Sphinx (`make docs`), or by hand: ``python docs/generated_pages.py FOLDER``.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import httpx
from typer.main import get_command

from unidex.cli.main import app
from unidex.config import Config
from unidex.config.names import ENCODERS, LOSSES
from unidex.config.recipe import settings_with_meaning
from unidex.config.recipes import load, recipe_names
from unidex.config.renamed import RENAMED
from unidex.config.rules import rules_markdown
from unidex.config.toml_text import toml_value
from unidex.server.app import create_app
from unidex.server.settings import Settings

# Settings whose values are names that other files register.
_NAMES = {"encoder.kind": ENCODERS, "loss.dual": LOSSES, "loss.classifier": LOSSES}


def settings() -> str:
    """Every setting of every section: default, allowed values, meaning."""
    schema = Config.model_json_schema()
    lines: list[str] = []
    section = ""
    for path, default, meaning in settings_with_meaning():
        name, _, key = path.partition(".")
        if name != section:
            section = name
            about = type(getattr(Config(), name)).__doc__ or ""
            lines += ["", f"## {name}", "", about, "", "| setting | default | values | meaning |", "|---|---|---|---|"]
        definition = schema["$defs"][type(getattr(Config(), name)).__name__]["properties"][key]
        definition |= {"enum": list(_NAMES[path])} if path in _NAMES else {}
        lines.append(f"| `{path}` | {_code(toml_value(default))} | {_values(definition)} | {_cell(meaning)} |")
    return "\n".join(lines)


def renamed_settings() -> str:
    """Old and new names of settings."""
    return "\n".join(
        ["| old name | new name |", "|---|---|", *(f"| `{old}` | `{new}` |" for old, new in RENAMED.items())]
    )


def recipes() -> str:
    """Every recipe: what it is, its stages, its TOML file."""
    lines: list[str] = []
    for name in recipe_names():
        config = load(name)
        stages = ", ".join(f"`{stage.name}`" for stage in config.stages)
        text = Path(sys.modules["unidex"].__path__[0], "recipes", f"{name}.toml").read_text(encoding="utf-8")
        lines += ["", f"## {name}", "", _sentence(config.about)]
        lines += [f"Stages: {stages}."] if stages else []
        lines += ["", "```toml", text.rstrip(), "```"]
    return "\n".join(lines)


def command_line() -> str:
    """Every verb of the command line with its arguments and options."""
    lines: list[str] = []
    for name, command in _commands(get_command(app)):
        arguments = [_placeholder(found) for found in command.params if found.param_type_name == "argument"]
        usage = " ".join(["unidex", name, *arguments, "[OPTIONS]"])
        lines += ["", f"## unidex {name}", "", "```text", usage, "```", ""]
        for paragraph in (command.help or "").replace("\\[", "[").split("\n\n"):
            example = paragraph.removeprefix("Example: ")
            lines += ["", _escape(paragraph) if example == paragraph else f"```text\n{example}\n```"]
        lines += ["", "| | default | meaning |", "|---|---|---|", *map(_parameter, command.params)]
    return "\n".join(lines)


def http_routes() -> str:
    """Every route of the service with its parameters, its body and its answers."""
    document = asyncio.run(_openapi())
    lines: list[str] = []
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            lines += [
                "",
                f"## {method.upper()} {path}",
                "",
                _escape(route.get("description") or route.get("summary", "")),
            ]
            fields = [
                _row(
                    f"`{field['name']}`", f"in the {field['in']}", _kind(field["schema"]), field.get("description", "")
                )
                for field in route.get("parameters", [])
            ]
            body = route.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
            fields += list(_fields(document, body)) if body else []
            if fields:
                lines += ["", "| field | | type | meaning |", "|---|---|---|---|", *fields]
            lines += ["", "| status | answer |", "|---|---|"]
            for status, answer in route["responses"].items():
                content = next(iter(answer.get("content", {}).values()), {}).get("schema", {})
                told = f" ({_kind(content)})" if _kind(content) else ""
                lines.append(f"| {status} | {_cell(answer['description'])}{told} |")
    lines += ["", "## Types", ""]
    for name, schema in sorted(document["components"]["schemas"].items()):
        if "properties" not in schema:
            continue
        lines += ["", f"### {name}", "", _escape(schema.get("description", "")), ""]
        lines += ["| field | | type | meaning |", "|---|---|---|---|", *_properties(schema)]
    return "\n".join(lines)


def refused_combinations() -> str:
    """The settings that cannot be combined, with the reason for each."""
    return rules_markdown()


PAGES: dict[str, Callable[[], str]] = {
    "settings.md": settings,
    "renamed-settings.md": renamed_settings,
    "recipes.md": recipes,
    "command-line.md": command_line,
    "http-routes.md": http_routes,
    "refused-combinations.md": refused_combinations,
}


def write_all(folder: Path) -> None:
    """Write every generated page; a file whose text has not changed stays as it is."""
    folder.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        text = page().strip() + "\n"
        file = folder / name
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")


async def _openapi() -> dict[str, Any]:
    """The document that a service answers with; no model is read for it."""
    transport = httpx.ASGITransport(app=create_app(Settings(folder=Path("model"))))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.get("/v1/openapi.json")
    document: dict[str, Any] = answer.raise_for_status().json()
    return document


def _commands(group: Any, prefix: str = "") -> Iterable[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{prefix}{name} ")
        elif not command.hidden:
            yield prefix + name, command


def _parameter(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"| {_code(_placeholder(parameter))} | | {_cell(parameter.help or '')} |"
    names = ", ".join(parameter.opts)
    shown = _code(names if parameter.is_flag else f"{names} {_placeholder(parameter)}")
    has_default = parameter.default not in (None, "", (), []) and parameter.default is not False
    default = "required" if parameter.required else _code(str(parameter.default)) if has_default else ""
    return f"| {shown} | {default} | {_cell(parameter.help or '')} |"


def _placeholder(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _values(definition: dict[str, Any]) -> str:
    if "enum" in definition:
        return ", ".join(_code(json.dumps(value)) for value in definition["enum"])
    if definition.get("type") == "array":
        return f"list of {_values(definition['items']) or definition['items'].get('type', '')}"
    bounds = [
        f"{mark} {definition[key]:g}"
        for key, mark in (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"), ("exclusiveMaximum", "<"))
        if key in definition
    ]
    kinds = {"boolean": "true, false", "string": "text", "integer": "whole number", "number": "number"}
    return " ".join([kinds.get(definition.get("type", ""), ""), ", ".join(bounds)]).strip()


def _fields(document: dict[str, Any], schema: dict[str, Any]) -> Iterable[str]:
    name = schema.get("$ref", "").rpartition("/")[2]
    yield from _properties(document["components"]["schemas"][name] if name else schema)


def _properties(schema: dict[str, Any]) -> Iterable[str]:
    required = schema.get("required", [])
    for name, field in schema.get("properties", {}).items():
        need = "required" if name in required else ""
        yield _row(f"`{name}`", need, _kind(field), field.get("description", ""))


def _row(name: str, place: str, kind: str, meaning: str) -> str:
    return f"| {name} | {place} | {kind} | {_cell(meaning)} |"


def _kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(_kind(inner) for inner in schema[key]))
    if "enum" in schema:
        return ", ".join(_code(json.dumps(value)) for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return str(schema.get("type", ""))


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|") if text else ""


def _cell(text: str) -> str:
    return _escape(" ".join(text.split())).replace("|", "\\|")


def _escape(text: str) -> str:
    """Text as Markdown that shows it: no emphasis by a star, no links by brackets, no tags."""
    return re.sub(r"([*\[\]<>_{}$])", r"\\\1", text)


def _sentence(text: str) -> str:
    return _escape(text) + ("" if text.endswith(".") else ".")


if __name__ == "__main__":
    write_all(Path(sys.argv[1]))
