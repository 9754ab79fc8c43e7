"""``recipes`` and ``config``: the recipes, and every setting with its value and meaning."""

from __future__ import annotations

from collections.abc import Iterator

from unidex.config import settings_with_meaning
from unidex.config.recipe import Config
from unidex.config.recipes import load, recipe_names
from unidex.config.rules import check_rules


def list_recipes() -> dict[str, str]:
    """Return the name of each recipe and the system it describes."""
    return {name: load(name).about for name in recipe_names()}


def load_checked(recipe: str, settings: list[str]) -> Config:
    """Return a recipe that is checked against all that its encoder can do, as training checks it."""
    from unidex.encoders import registry

    config = load(recipe, settings)
    check_rules(config.in_stages(), encoder=registry.get(config.encoder.kind).can)
    return config


def commented_toml(recipe: Config) -> Iterator[str]:
    """Return the lines of a recipe as TOML, each setting with its meaning as a comment."""
    meaning = {name: text for name, _, text in settings_with_meaning()}
    section = ""
    for line in recipe.as_toml().splitlines():
        if line.startswith("["):
            section = line.strip("[]").removeprefix("stages.")
        about = meaning.get(f"{section}.{line.partition(' = ')[0]}", "")
        yield f"{line}  # {about}" if about else line
