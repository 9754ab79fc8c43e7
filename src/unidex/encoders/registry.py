"""The registered encoders: what a recipe can name in ``encoder.kind``.

To add an encoder, write one module that registers it, and import it before the recipe is read::

    class LettersEncoder(nn.Module): ...  # as `unidex.nn.encoder_protocol.Encoder` says

    register(RegisteredEncoder("letters", build=LettersEncoder.build, load=LettersEncoder.load))

A module of this package is an encoder of the module's name, and is imported when a recipe names it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from unidex.config import Config
from unidex.config.capabilities import EncoderCapabilities
from unidex.config.names import ENCODERS
from unidex.config.recipes import read_saved
from unidex.errors import ConfigError, ModelError
from unidex.features import frozen_encoder
from unidex.nn.array_network import ENCODER_TABLES
from unidex.storage.eight_bits import read_table, whole_table

AUTO = "auto"


@dataclass(frozen=True)
class RegisteredEncoder:
    """An encoder and what the rest of the package must know of it."""

    name: str  # its name in a recipe
    # From a recipe, the train texts and the label texts, an encoder before training. The caller seeds torch.
    build: Callable[[Config, Sequence[str], Sequence[str]], Any]
    # From a recipe and the folder that the encoder has saved, an encoder whose weights the caller replaces.
    load: Callable[[Config, Path], Any]
    # Settings of the section [encoder] that must be the same where trained weights are taken over; "auto" takes them.
    must_match: tuple[str, ...] = ()
    can: EncoderCapabilities = field(default_factory=EncoderCapabilities)  # what it can do
    # From a recipe and the encoder by array operations, the encoder; for encoders with such a form.
    of_arrays: Callable[[Config, Any], Any] = lambda _config, encoder: encoder


_REGISTERED: dict[str, RegisteredEncoder] = {}
# Encoders with a form that predicts without torch, as `unidex.nn.array_network.ArrayEncoder` says.
_ARRAY_ENCODERS = {"bag": "unidex.nn.bag_arrays:BagArrays"}


def register(encoder: RegisteredEncoder) -> None:
    """Make an encoder known to recipes by its name."""
    if encoder.name in _REGISTERED:
        raise ValueError(f"an encoder must have a name of its own, but {encoder.name!r} is registered already")
    _REGISTERED[encoder.name] = encoder
    ENCODERS.add(encoder.name)


def unregister(name: str) -> None:
    """Forget an encoder."""
    del _REGISTERED[name]
    ENCODERS.remove(name)


def get(name: str) -> RegisteredEncoder:
    """The encoder of a name.

    >>> get("bag").can.has_table
    True
    """
    if name not in _REGISTERED:
        if name not in ENCODERS:
            raise ValueError(f"an encoder must be one of {', '.join(ENCODERS)}, but is {name!r}; register it first")
        import_module(f"unidex.encoders.{name}")
    return _REGISTERED[name]


def build_encoder(config: Config, texts: Sequence[str], label_texts: Sequence[str]) -> Any:
    """An encoder before training; where encoder.path is a model folder of ours, that model's encoder."""
    if config.features.pretrained and not get(config.encoder.kind).can.reads_weights:
        raise ConfigError(
            "the vector of a frozen encoder beside words (features.pretrained) needs an encoder that reads weights of "
            f"features, but encoder.kind = {config.encoder.kind!r}; set encoder.kind='bag' or features.pretrained=''"
        )
    folder = Path(config.encoder.path)
    if config.encoder.path and (folder / "config.toml").is_file() and (folder / "encoder.safetensors").is_file():
        return _encoder_of_model(config, folder)
    return get(config.encoder.kind).build(config, texts, label_texts)


def load_encoder(config: Config, folder: Path) -> Any:
    """The encoder of a model folder; the caller replaces the weights."""
    return get(config.encoder.kind).load(config, folder)


def array_reader(kind: str) -> Any:
    """The class that reads an encoder of a kind by array operations alone; None where the kind has no such form."""
    if kind not in _ARRAY_ENCODERS:
        return None
    module, name = _ARRAY_ENCODERS[kind].split(":")
    return getattr(import_module(module), name)


def saves_weights(config: Config) -> bool:
    """Whether the encoder of a recipe writes its weights to its own folder."""
    return get(config.encoder.kind).can.saves_weights


def check_any_features(config: Config, num_features: int) -> None:
    """Refuse an encoder of features where the texts have none."""
    if num_features == 0:
        raise ConfigError(
            f"the {config.encoder.kind} encoder must find at least one feature that occurs in "
            f"{config.features.min_df} texts, but finds none; lower features.min_df"
        )


def _frozen(source: str, max_length: int) -> frozen_encoder.Encode:
    # Static vectors do without torch, and whoever has no frozen encoder without either.
    from unidex.encoders.pretrained_encoder import PretrainedEncoder

    return PretrainedEncoder(source, max_length)


frozen_encoder.register_loader(_frozen)


def _encoder_of_model(config: Config, folder: Path) -> Any:
    """The trained encoder of a model folder, as the initial encoder of another model."""
    saved, wanted = read_saved(folder).encoder, config.encoder
    taken = {}
    for key in ("kind", *get(wanted.kind).must_match):
        if getattr(wanted, key) == AUTO:
            taken[key] = getattr(saved, key)
        elif getattr(saved, key) != getattr(wanted, key):
            raise ConfigError(
                f"{folder}: encoder.{key} must be that of the model whose encoder is taken, {getattr(saved, key)!r}, "
                f"but is {getattr(wanted, key)!r}; set it with --set encoder.{key}={getattr(saved, key)}"
            )
    from safetensors.torch import load_file

    own_config = config.model_copy(update={"encoder": wanted.model_copy(update=taken)})
    encoder = load_encoder(own_config, folder / "encoder")
    try:
        weights = load_file(folder / "encoder.safetensors")
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{folder}: the model cannot be read ({error}); copy it again") from None
    if hasattr(encoder, "table"):
        table = ENCODER_TABLES["encoder"]
        saved_table = {name: value.numpy() for name, value in weights.items() if name.split(".")[0] == table}
        encoder.table.weight = encoder.table.weight.new_tensor(whole_table(read_table(saved_table, table)))
    prefix = "encoder."
    own = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
    if own or not saves_weights(config):
        encoder.load_state_dict(own)
    return encoder
