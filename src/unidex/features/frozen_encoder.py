"""A frozen encoder by its name: loaded with the first text, and known again by what it makes of a fixed text.

Frozen encoders are loaded by `unidex.encoders.pretrained_encoder`, which says here how.

Shapes: N texts, D dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unidex.errors import ConfigError, ModelError, quoted

Vectors = NDArray[np.float32]
Encode = Callable[[Sequence[str]], Vectors]

_PROBE = "What does this encoder make of these words?"
# Minimum cosine of the vector of the probe now and when the model was trained.
_SAME = 0.999
_loaders: list[Callable[[str, int], Encode]] = []


def register_loader(load: Callable[[str, int], Encode]) -> None:
    """Say how a frozen encoder is loaded, by its source and the number of tokens that it reads."""
    _loaders[:] = [load]


def load_frozen(setting: str, source: str, max_length: int) -> FrozenEncoder:
    """The encoder that a setting names, loaded: a missing one would else be noticed after minutes or hours."""
    encoder = FrozenEncoder(source, max_length)
    try:
        encoder.load()
    except (ConfigError, ModelError) as error:
        raise ConfigError(f"{setting} = {quoted(source, limit=200)} cannot be read: {error}") from None
    return encoder


class FrozenEncoder:
    """Unit vectors of texts.

    Args:
        source: "minilm", "wordllama", a folder or a hub name.
        max_length: tokens of a text that are read.
        probe_D: the vector of a fixed text, by which another encoder of the same name is found out; None where the
            encoder has not been used before.
    """

    def __init__(self, source: str, max_length: int, probe_D: Vectors | None = None) -> None:
        self.source, self.max_length = source, max_length
        self._probe_D = probe_D
        self._encode: Encode | None = None

    @property
    def probe(self) -> Vectors:
        """The vector of the fixed text; loads the encoder where it is not known yet."""
        if self._probe_D is None:
            self.load()
        assert self._probe_D is not None
        return self._probe_D

    @property
    def dim(self) -> int:
        """D."""
        return len(self.probe)

    def is_same(self, other: FrozenEncoder | None) -> bool:
        """Whether another one gives the same vectors."""
        return (
            other is not None
            and (self.source, self.max_length) == (other.source, other.max_length)
            and np.array_equal(self.probe, other.probe)
        )

    def load(self) -> Encode:
        """Load the encoder, if it is not there yet, and compare what it makes of the fixed text."""
        if self._encode is None:
            encode = _loaders[0](self.source, self.max_length)
            found_D = encode([_PROBE])[0]
            if self._probe_D is None:
                self._probe_D = found_D
            elif found_D.shape != self._probe_D.shape or found_D @ self._probe_D < _SAME:
                raise ModelError(
                    f"the frozen encoder {self.source!r} must be the encoder that the model was trained with, but "
                    "gives other vectors; install the version of that time, or train again"
                )
            self._encode = encode
        return self._encode

    def __call__(self, texts: Sequence[str]) -> Vectors:
        """The vectors of texts, N x D; 0 for a text without a known token."""
        return self.load()(texts)

    def about(self) -> dict[str, Any]:
        """What a model folder says of it, beside the vector of the fixed text."""
        return {"source": self.source, "max_length": self.max_length}
