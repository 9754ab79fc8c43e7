"""The settings that ``tune`` tries: those that change results most, around the values of the recipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unidex.config.toml_text import toml_value

if TYPE_CHECKING:
    from unidex.config import Config

_FACTOR = 4.0  # a number is tried from a quarter of the recipe's value to four times it


@dataclass(frozen=True)
class Dimension:
    """A setting and its values: a range of numbers by factors, or choices."""

    name: str
    default: Any
    low: float = 0.0
    high: float = 0.0
    choices: tuple[Any, ...] = ()

    @classmethod
    def around(cls, name: str, value: float, *, maximum: float = float("inf")) -> Dimension:
        """A range around a value.

        >>> Dimension.around("train.lr_heads", 0.5, maximum=1.0)
        Dimension(name='train.lr_heads', default=0.5, low=0.125, high=1.0, choices=())
        """
        return cls(name, value, value / _FACTOR, min(maximum, value * _FACTOR))

    @classmethod
    def of(cls, name: str, value: Any, *choices: Any) -> Dimension:
        """Choices, and the recipe's own value among them.

        >>> Dimension.of("encoder.dim", 96, 64, 128).choices
        (64, 96, 128)
        """
        return cls(name, value, choices=tuple(sorted({value, *choices})))

    def distribution(self) -> Any:
        """The same for optuna."""
        from optuna.distributions import CategoricalDistribution, FloatDistribution

        if self.choices:
            return CategoricalDistribution(self.choices)
        return FloatDistribution(self.low, self.high, log=True)

    def as_text(self, value: Any) -> str:
        """A value as --set takes it; four digits are enough."""
        return toml_value(float(f"{value:.4g}") if isinstance(value, float) else value)


def search_space(config: Config) -> list[Dimension]:
    """The settings to try for a recipe."""
    train, loss, heads = config.train, config.loss, config.heads
    found = [
        Dimension.around(f"train.{name}", getattr(train, name))
        for name in ("lr_encoder", "lr_heads", "lr_classifier")
        if getattr(train, name) > 0 and (name != "lr_classifier" or heads.classifier)
    ]
    found += [
        Dimension.around(f"loss.{name}", getattr(loss, name))
        for name in ("temperature", "classifier_temperature")
        if getattr(loss, name) > 0
    ]
    if config.encoder.kind == "bag":
        found.append(Dimension.of("encoder.dim", config.encoder.dim, 64, 128, 256))
    found.append(Dimension.of("pool.hard_negatives", config.pool.hard_negatives, 0, 2, 4))
    method = "none" if config.augment.method == "auto" else config.augment.method
    found.append(Dimension.of("augment.method", method, "none", "gandalf"))
    return found
