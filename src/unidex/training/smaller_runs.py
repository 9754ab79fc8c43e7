"""Settings with which a run needs less memory."""

from __future__ import annotations

from collections.abc import Callable

from unidex.config import Config

# A change that makes a run smaller: the setting to show, and the change of the recipe.
Change = tuple[str, Callable[[Config], Config]]


def smaller_settings(config: Config) -> list[Change]:
    """Changes of a recipe that need less memory, the mildest first."""

    def change(section: str, key: str, value: object) -> Change:
        def apply(before: Config) -> Config:
            part = getattr(before, section).model_copy(update={key: value})
            return before.model_copy(update={section: part})

        return f"{section}.{key}={str(value).lower()}", apply

    found = [change("train", "table_storage", "file")] if config.train.table_storage == "memory" else []
    if config.heads.classifier and config.train.classifier_numbers == "float32":
        found.append(change("train", "classifier_numbers", "float16"))
    if config.predict.linear:
        found.append(change("predict", "linear", False))
    if config.predict.index != "disk" and not config.has_tree:
        found.append(change("predict", "index", "disk"))
    if config.encoder.kind == "bag":
        found += [change("encoder", "dim", dim) for dim in (64, 32, 16) if dim < config.encoder.dim]
        found.append(change("features", "max_features", 100_000))
    if config.predict.rank == "learned":
        found.append(change("predict", "rank", "sum"))
    return found
