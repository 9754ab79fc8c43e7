"""``unidex recipes`` and ``unidex config``: the recipes, and every setting with its value and meaning."""

from __future__ import annotations

from typing import Annotated

import typer

from unidex.cli.output import print_result, print_table
from unidex.cli.shared_options import Json, Settings


def recipes(as_json: Json = False) -> None:
    """List the recipes: one per system."""
    from unidex.verbs.recipes import list_recipes

    found = list_recipes()
    print_result(found, as_json, lambda: print_table(("recipe", "system"), list(found.items())))


def config(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="A recipe or a TOML file.")] = "auto",
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Print a recipe with every setting and its meaning, as TOML that --recipe can read.

    Examples: unidex config unidec > mine.toml; unidex config unidec --set encoder.kind=transformer
    """
    from unidex.verbs.recipes import commented_toml, load_checked

    chosen = load_checked(recipe, settings or [])
    print_result(chosen.model_dump(), as_json, "\n".join(commented_toml(chosen)))
