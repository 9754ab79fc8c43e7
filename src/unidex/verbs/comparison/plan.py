"""The runs of a comparison, and whether an existing run is the planned one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unidex.config import Config, parse
from unidex.config.recipes import load
from unidex.errors import ConfigError, listed, quoted

NAMES = ("recipe", "about")


@dataclass(frozen=True)
class Asked:
    """One planned run: a recipe as it was given, with settings over it, and the config that both come to."""

    recipe: str
    settings: tuple[str, ...]
    seed: int
    config: Config

    @property
    def name(self) -> str:
        """RECIPE-AUGMENT-SEED: the name of its model folder."""
        return f"{recipe_name(self.recipe)}-{self.config.augment.method}-{self.seed}"


def recipe_name(recipe: str) -> str:
    """Return the name of a recipe; for a TOML file, the name of the file.

    >>> recipe_name("unidec"), recipe_name("mine/short.toml")
    ('unidec', 'short')
    """
    return Path(recipe).stem if recipe.endswith(".toml") else recipe


def asked_runs(
    recipes: Sequence[str], augments: Sequence[str] = (), num_seeds: int = 1, settings: Sequence[str] = ()
) -> list[Asked]:
    """Every recipe with every augmentation and every seed, in this order, as `compare` takes them.

    >>> [run.name for run in asked_runs(["unidec", "depsl"], ["none", "gandalf"])]
    ['unidec-none-0', 'unidec-gandalf-0', 'depsl-none-0', 'depsl-gandalf-0']
    >>> [run.config.train.epochs for run in asked_runs(["unidec", "depsl"], [], 1, ["unidec:train.epochs=3"])]
    [3, 10]
    """
    if not recipes:
        raise ConfigError("--recipes must name at least one recipe, but names none; unidex recipes lists them")
    names = [recipe_name(recipe) for recipe in recipes]
    _check_unequal("--recipes", names)
    _check_unequal("--augment", list(augments))
    if num_seeds < 1:
        raise ConfigError(f"--seeds must be at least 1, but is {num_seeds}")
    meant = [_meant(setting, names) for setting in settings]
    found = []
    for recipe, name in zip(recipes, names, strict=True):
        own = [setting for of, setting in meant if of in (None, name)]
        for augment in augments or (None,):
            changed = (*own, *([] if augment is None else [f"augment.method={augment}"]))
            config = load(recipe, list(changed))
            found += [Asked(recipe, changed, seed, config) for seed in range(num_seeds)]
    return found


def difference(before: dict[str, Any], config: Config) -> str:
    """Describe the first difference between an earlier recipe and the present one; "" if there is none.

    A setting that there was not yet had its default.

    >>> difference(load("unidec", ["train.epochs=3"]).model_dump(), load("unidec", ["train.epochs=4"]))
    'train.epochs is 3 there and 4 here'
    >>> difference(load("unidec").model_dump(), load("unidec"))
    ''
    """
    try:
        there = _flat(parse(before, where="run"))
    except ConfigError as error:
        return f"its settings are not of this version ({error})"
    here = _flat(config)
    differing = [
        f"{name} is {quoted(there[name])} there and {quoted(here[name])} here"
        for name in here
        if name not in NAMES and there[name] != here[name]
    ]
    more = f" ({len(differing) - 1} more differ)" if len(differing) > 1 else ""
    return differing[0] + more if differing else ""


def _flat(config: Config) -> dict[str, Any]:
    return {
        f"{section}.{key}" if isinstance(values, dict) else section: value
        for section, values in config.model_dump().items()
        for key, value in (values.items() if isinstance(values, dict) else [("", values)])
    }


def _meant(setting: str, names: Sequence[str]) -> tuple[str | None, str]:
    """Return the recipe of a setting, None for all recipes, and the setting itself."""
    before = setting.partition("=")[0]
    if ":" not in before:
        return None, setting
    name, _, rest = setting.partition(":")
    if name not in names:
        raise ConfigError(f"--set RECIPE:section.key=value must name one of {listed(names)}, but names {quoted(name)}")
    return name, rest


def _check_unequal(flag: str, names: Sequence[str]) -> None:
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise ConfigError(f"{flag} must name each only once, but names {quoted(repeated[0])} twice")
