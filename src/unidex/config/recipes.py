"""Recipes by name, file or model folder; ``--set section.key=value`` overrides a recipe and each of its stages."""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

from unidex.config import Config, Encoder, Stage, merged, parse
from unidex.config.encoder_settings import settings_for, settings_under
from unidex.config.names import ENCODERS
from unidex.config.renamed import with_new_names
from unidex.config.rules import check_rules
from unidex.config.section import Section
from unidex.config.stages import check_stages
from unidex.config.toml_text import read_toml
from unidex.errors import ConfigError, quoted


def recipe_names() -> list[str]:
    """The recipes that come with unidex."""
    return sorted(file.name.removesuffix(".toml") for file in _recipe_folder().iterdir() if file.name.endswith(".toml"))


def load(recipe: str | Path = "auto", overrides: list[str] | None = None) -> Config:
    """A recipe by name or TOML file, with ``section.key=value`` overrides.

    An override holds in every stage; ``stages.NAME.section.key=value`` is for one stage.

    >>> load("unidec", ["train.epochs=3"]).train.epochs
    3
    """
    name = str(recipe)
    if name.endswith(".toml"):
        settings = _over_base(read_toml(Path(name)), name)
    elif name in recipe_names():
        settings = _over_base(_read_recipe(name), name) | {"recipe": name}
    else:
        raise ConfigError(f"a recipe must be a .toml file or one of {', '.join(recipe_names())}, but is {quoted(name)}")
    given: dict[str, Any] = {}
    for override in overrides or ():
        _apply(given, override)
    stages, of_stages = settings.pop("stages", []), given.pop("stages", {})
    check_stages(stages, of_stages, where=name)
    kind, own_kind = _kind(settings, given), _kind(settings, {})
    if not stages:
        common = _for_encoder(settings, kind, is_foreign=kind != own_kind)
        config = parse(_with_given(common, given), where=name)
        check_rules({"": config})
        return config
    # A section for the encoder in any stage shows that the recipe was written for it.
    is_foreign = kind != own_kind and not any(kind in part for part in (settings, *stages))
    common = _for_encoder(settings, kind, is_foreign=is_foreign)
    found = {}
    for stage in stages:
        own = {key: value for key, value in stage.items() if key != "name"}
        own = merged(common, _for_encoder(own, kind, is_foreign=is_foreign, is_stage=True))
        over = merged(given, of_stages.get(stage["name"], {}))
        found[stage["name"]] = parse(_with_given(own, over), where=f"{name}, stage {stage['name']}")
    check_rules(found)
    return join_stages(found, where=name)


def _read_recipe(name: str) -> dict[str, Any]:
    return tomllib.loads((_recipe_folder() / f"{name}.toml").read_text(encoding="utf-8"))


def _over_base(settings: dict[str, Any], where: str) -> dict[str, Any]:
    """Settings over those of the recipe of unidex that they name as their base, if they do."""
    base = settings.pop("base", None)
    if base is None:
        return settings
    if base not in recipe_names():
        raise ConfigError(f"{where}: base must be one of {', '.join(recipe_names())}, but is {quoted(base)}")
    return merged(_over_base(_read_recipe(base), base), settings)


def read_saved(folder: Path) -> Config:
    """The recipe of a model folder, also of one that was written under older names."""
    file = folder / "config.toml"
    return parse(with_new_names(read_toml(file)), where=str(file))


def join_stages(found: dict[str, Config], *, where: str) -> Config:
    """Stages as one recipe: the last one's settings, and for each stage what is otherwise in it."""
    last = list(found.values())[-1]
    stages = []
    for name, config in found.items():
        sections = {
            section: {key: value for key, value in getattr(config, section) if value != getattr(end, key)}
            for section, end in last
            if isinstance(end, Section)
        }
        stages.append(Stage(name=name, **{section: keys for section, keys in sections.items() if keys}))
    return last.model_copy(update={"stages": stages})


def _recipe_folder() -> Any:
    return resources.files("unidex") / "recipes"


def _for_encoder(settings: dict[str, Any], kind: str, *, is_foreign: bool, is_stage: bool = False) -> dict[str, Any]:
    """A recipe for the encoder asked for: sections of its own, such as [transformer.train], override the others.

    One that has none, and was written for another encoder (``is_foreign``), gets the settings that this one needs.
    """
    variants = {name: settings.pop(name, {}) for name in ENCODERS}
    over = variants.get(kind, {})
    if is_foreign and not over:
        over = settings_for(kind, settings.get("train", {}), is_stage=is_stage)
    under = {} if is_stage else settings_under(kind, settings.get("heads", {}))
    return merged(merged(under, settings), over)


def _with_given(settings: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Settings with those of the user over them; a size that the user names is not fitted to the number of texts."""
    found = merged(settings, given)
    sizes = found.get("train", {}).get("fit_to_texts", [])
    if sizes and "fit_to_texts" not in given.get("train", {}):
        named = {*given.get("train", {}), *(f"pool_{key}" for key in given.get("pool", {}))}
        found = merged(found, {"train": {"fit_to_texts": [size for size in sizes if size not in named]}})
    return found


def _kind(settings: dict[str, Any], given: dict[str, Any]) -> str:
    """The encoder that is asked for."""
    kind: str = given.get("encoder", {}).get("kind") or settings.get("encoder", {}).get("kind", Encoder().kind)
    return kind


def _apply(settings: dict[str, Any], override: str) -> None:
    path, equals, value = override.partition("=")
    section, dot, key = path.strip().partition(".")
    if not equals or not dot or not key:
        raise ConfigError(f"--set must be section.key=value, such as train.epochs=10, but is {quoted(override)}")
    try:
        # Read as TOML where it is one (numbers, true, "..."), else as plain text.
        parsed = tomllib.loads(f"value = {value.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    if section == "stages":
        # stages.NAME.section.key
        name, _, key = key.partition(".")
        stage, (section, dot, key) = settings.setdefault("stages", {}).setdefault(name, {}), key.partition(".")
        if not dot or not key:
            raise ConfigError(f"--set of one stage must be stages.NAME.section.key=value, but is {quoted(override)}")
        settings = stage
    target = settings.setdefault(section, {})
    if not isinstance(target, dict):
        raise ConfigError(f"--set must be section.key=value, but {quoted(section)} is not a section")
    target[key] = parsed
