"""The recipe of a model folder: what its config.toml says, also of one that was written under older names."""

from __future__ import annotations

import json
from pathlib import Path

from unidex.config.recipe import Config, parse
from unidex.config.renamed import with_new_names
from unidex.config.toml_text import read_toml

# Folders of these formats have settings under the names of `renamed`.
OLD_NAMES = (1, 2)


def read_saved(folder: Path) -> Config:
    """The recipe of a model folder."""
    file = folder / "config.toml"
    settings = read_toml(file)
    if _format(folder) in OLD_NAMES:
        settings = with_new_names(settings)
    return parse(settings, where=str(file))


def _format(folder: Path) -> object:
    """The format that a manifest names; None where it cannot be read, which others report."""
    try:
        return json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["format"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
