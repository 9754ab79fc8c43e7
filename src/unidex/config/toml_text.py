"""TOML as text: a file that is read, a value that is written."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from unidex.errors import ConfigError


def read_toml(file: Path) -> dict[str, Any]:
    """A TOML file."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{file}: the recipe must exist, but does not") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: the recipe must be TOML, but: {error}") from None


def toml_value(value: object) -> str:
    r"""A setting as TOML has it.

    >>> [toml_value(value) for value in (True, 0.5, "it's", ["free"], [[5, 6], [8]])]
    ['true', '0.5', '"it\'s"', '["free"]', '[[5, 6], [8]]']
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return repr(value)
