"""``unidex recipes`` and ``unidex config``: the recipes, and every setting with its value and meaning."""

from __future__ import annotations

from typing import Annotated

import typer

from unidex.cli.output import print_json, print_table, print_text
from unidex.cli.shared_options import Json


def recipes(as_json: Json = False) -> None:
    """List the recipes: one per system."""
    from unidex.verbs.recipes import list_recipes

    found = list_recipes()
    if as_json:
        print_json(found)
        return
    print_table(("recipe", "system"), list(found.items()))


def config(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="A recipe or a TOML file.")] = "auto",
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Change a setting. Repeatable.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print a recipe with every setting and its meaning, as TOML that --recipe can read.

    Examples: unidex config unidec > mine.toml; unidex config unidec --set encoder.kind=transformer
    """
    from unidex.verbs.recipes import commented_toml, load

    chosen = load(recipe, settings or [])
    if as_json:
        print_json(chosen.model_dump())
        return
    for line in commented_toml(chosen):
        print_text(line)
