"""``unidex recipes`` and ``unidex config``: what there is, and every setting with its default and meaning."""

from __future__ import annotations

from typing import Annotated

import typer

from unidex.cli.output import print_json, print_table, print_text
from unidex.cli.shared_options import Json


def recipes(as_json: Json = False) -> None:
    """List the recipes: one for each system."""
    from unidex.config.recipes import load, recipe_names

    found = {name: load(name).about for name in recipe_names()}
    if as_json:
        print_json(found)
        return
    print_table(("recipe", "what it is"), list(found.items()))


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
    from unidex.config import settings_with_meaning
    from unidex.config.recipes import load

    chosen = load(recipe, settings or [])
    if as_json:
        print_json(chosen.model_dump())
        return
    meaning = {name: text for name, _, text in settings_with_meaning()}
    section = ""
    for line in chosen.as_toml().splitlines():
        if line.startswith("["):
            section = line.strip("[]").removeprefix("stages.")
        key = line.partition(" = ")[0]
        about = meaning.get(f"{section}.{key}", "")
        print_text(f"{line}  # {about}" if about else line)
