"""A whole recipe: its sections and stages. A default is written once, in the module of its section.

An unknown key is an error that names the nearest known one.
"""

from __future__ import annotations

import difflib
from typing import Any

from pydantic import Field, ValidationError

from unidex.config.augment import Augment
from unidex.config.encoder import Encoder
from unidex.config.features import Features
from unidex.config.heads import Heads
from unidex.config.loss import Loss
from unidex.config.pool import Pool
from unidex.config.predict import Predict
from unidex.config.renamed import RENAMED
from unidex.config.section import Section
from unidex.config.toml_text import toml_value
from unidex.config.train import Train
from unidex.config.tree import Tree
from unidex.errors import ConfigError, quoted


class Stage(Section):
    """A stage of training, and the settings in which it differs from the last one, by section."""

    name: str = Field(pattern="^[a-z0-9][a-z0-9-]*$", description="what the stage is called in logs and --set")
    encoder: dict[str, Any] = Field({})
    heads: dict[str, Any] = Field({})
    loss: dict[str, Any] = Field({})
    pool: dict[str, Any] = Field({})
    tree: dict[str, Any] = Field({})
    augment: dict[str, Any] = Field({})
    train: dict[str, Any] = Field({})

    def changes(self) -> dict[str, dict[str, Any]]:
        """The settings of its own, by section."""
        return {name: value for name, value in self if isinstance(value, dict) and value}


class Config(Section):
    """A whole recipe: the settings of the model as it is in the end, and of the stages on the way to it."""

    recipe: str = Field("", description="name of the recipe")
    about: str = Field("", description="what it is, and the paper it follows")
    features: Features = Features()
    encoder: Encoder = Encoder()
    heads: Heads = Heads()
    loss: Loss = Loss()
    pool: Pool = Pool()
    tree: Tree = Tree()
    augment: Augment = Augment()
    train: Train = Train()
    predict: Predict = Predict()
    stages: list[Stage] = Field([], description="stages of training, one after the other; none for one stage")

    @property
    def has_tree(self) -> bool:
        """Whether labels are found by a tree of clusters; a stage that learns clusters in place of labels has none."""
        return bool(self.tree.levels) and not self.train.surrogate

    def in_stages(self) -> dict[str, Config]:
        """The recipe of each stage by its name, in their order; one without stages is itself, by the name "".

        >>> from unidex.config.recipes import load
        >>> [(name, config.heads.classifier) for name, config in load("ngame").in_stages().items()]
        [('dual', False), ('classifier', True)]
        """
        if not self.stages:
            return {"": self}
        settings = self.model_dump(exclude={"stages"})
        return {
            stage.name: parse(merged(settings, stage.changes()), where=f"stage {stage.name}") for stage in self.stages
        }

    def as_toml(self) -> str:
        """The whole recipe as TOML."""
        lines = [
            f"{key} = {toml_value(value)}" for key, value in self if not isinstance(value, Section) and key != "stages"
        ]
        for name, section in self:
            if isinstance(section, Section):
                lines += ["", f"[{name}]", *(f"{key} = {toml_value(value)}" for key, value in section)]
        for stage in self.stages:
            lines += ["", "[[stages]]", f"name = {toml_value(stage.name)}"]
            for name, changes in stage.changes().items():
                lines += ["", f"[stages.{name}]", *(f"{key} = {toml_value(value)}" for key, value in changes.items())]
        return "\n".join(lines) + "\n"


def parse(settings: dict[str, Any], *, where: str) -> Config:
    """Settings as a checked Config; the first thing wrong is named with its section and key."""
    try:
        return Config.model_validate(settings)
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(part) for part in first["loc"])
        if path in RENAMED:
            raise ConfigError(f"{where}: {path} is now called {RENAMED[path]}; rename it") from None
        if first["type"] == "extra_forbidden":
            raise ConfigError(f"{where}: there is no setting {path}; {_nearest(path)}") from None
        if first["type"] == "settings":
            raise ConfigError(f"{where}: {path}: {first['msg']}") from None
        raise ConfigError(f"{where}: {path}: {first['msg']}, but is {quoted(first['input'])}") from None


def settings_with_meaning() -> list[tuple[str, Any, str]]:
    """Every setting: section.key, default, meaning."""
    found = []
    for name, section in Config():
        if isinstance(section, Section):
            for key, field in type(section).model_fields.items():
                found.append((f"{name}.{key}", getattr(section, key), field.description or ""))
    return found


def merged(settings: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Settings by section with others over them."""
    sections = {
        name: settings[name] | section
        if isinstance(section, dict) and isinstance(settings.get(name), dict)
        else section
        for name, section in over.items()
    }
    return settings | sections


def _nearest(path: str) -> str:
    known = [name for name, _, _ in settings_with_meaning()] + list(Config.model_fields)
    close = difflib.get_close_matches(path, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else "unidex config RECIPE shows those that are"
