"""Stages of a recipe as they are written: which sections and settings a stage may have of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unidex.config.names import ENCODERS
from unidex.errors import ConfigError, listed, quoted

# Sections that a stage may change. The others are of the model as a whole.
STAGED = ("encoder", "heads", "loss", "pool", "tree", "augment", "train")
# Settings that make the network what it is, beside those of the encoder.
_OF_THE_NETWORK = {
    "heads": {"dim", "projection", "shared_encoder", "classifier_feature_smoothing"},
    "tree": {"levels", "layers", "residual", "smooth_centroids"},
    "train": {"validation", "table_storage"},
}
# Folders of a run that a stage must not be mistaken for.
_TAKEN = {"gandalf", "hard"}


def check_stages(stages: object, of_stages: Mapping[str, Any], *, where: str) -> None:
    """Refuse stages that are not a list of named tables of settings, and overrides of stages that are not there.

    >>> check_stages([{"name": "first", "train": {"epochs": 2}}], {}, where="mine.toml")
    """
    if not isinstance(stages, list) or not all(isinstance(stage, dict) for stage in stages):
        raise ConfigError(f"{where}: stages must be written as [[stages]], each with a name, but are not")
    names = [_name_of(stage, where) for stage in stages]
    unknown = of_stages.keys() - set(names)
    if unknown:
        there = f"it has {listed(names)}" if names else "it has none"
        raise ConfigError(f"{where}: --set must name a stage of the recipe, but there is no {min(unknown)!r}; {there}")
    if len(set(names)) < len(names):
        raise ConfigError(f"{where}: stages must have names of their own, but one comes twice among {listed(names)}")
    for name, stage in zip(names, stages, strict=True):
        for section in stage.keys() - {"name", *ENCODERS}:
            _check_section(section, stage[section], where=f"{where}, stage {name}")
        # A stage may have settings for one encoder: [stages.bag.train].
        for variant in ENCODERS:
            for section, keys in stage.get(variant, {}).items():
                _check_section(section, keys, where=f"{where}, stage {name}, {variant}")
    for name, sections in of_stages.items():
        for section, keys in sections.items():
            _check_section(section, keys, where=f"{where}, stage {name}")


def is_of_network(section: str, key: str, *, has_staged_dropout: bool) -> bool:
    """Whether a setting makes the network what it is. The network continues from stage to stage, so the setting stays.

    >>> [is_of_network("encoder", key, has_staged_dropout=True) for key in ("dim", "dropout")]
    [True, False]
    """
    if section == "encoder":
        return not (has_staged_dropout and key in ("dropout", "layer_dropout"))
    return section not in STAGED or key in _OF_THE_NETWORK.get(section, ())


def _name_of(stage: Mapping[str, Any], where: str) -> str:
    name = stage.get("name")
    if not isinstance(name, str) or not name:
        raise ConfigError(f'{where}: a stage must have a name, but one has {quoted(name)}; write name = "first"')
    if name in _TAKEN:
        raise ConfigError(f"{where}: a stage must not be called {name!r}, which is the name of a trial; name it anew")
    return name


def _check_section(section: str, keys: object, *, where: str) -> None:
    if section not in STAGED or not isinstance(keys, Mapping):
        raise ConfigError(
            f"{where}: a stage has settings of the sections {', '.join(STAGED)}, but this one has {quoted(section)}; "
            "set it outside of [[stages]]"
        )
