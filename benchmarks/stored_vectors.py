"""Vectors of a transformer that is not trained, in a file, so that several runs encode each text once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from unidex.encoders.transformer import TransformerEncoder
from unidex.features.tokens import TokenRows


class StoredVectors:
    """Vectors by the tokens of a text, read from a file and written to it.

    Attributes:
        seconds: CPU seconds that earlier runs took for the vectors of the file.
    """

    def __init__(self, file: Path) -> None:
        self._file, self._known = file, dict[bytes, np.ndarray[Any, np.dtype[np.float32]]]()
        self.seconds = self._seconds = 0.0
        if file.is_file():
            stored = np.load(file)
            tokens = np.split(stored["tokens"], np.cumsum(stored["lengths"])[:-1])
            self._known = {row.tobytes(): vector for row, vector in zip(tokens, stored["vectors"], strict=True)}
            self.seconds = self._seconds = float(stored["seconds"])

    @contextmanager
    def in_place_of_layers(self) -> Iterator[None]:
        """Texts whose vector is known do not go through the layers; those that do are stored at the end."""
        encode, num_known = TransformerEncoder._encoded, len(self._known)

        def looked_up(encoder: TransformerEncoder, rows: TokenRows, *more: Any) -> torch.Tensor:
            if more or torch.is_grad_enabled():
                return encode(encoder, rows, *more)
            keys = [np.asarray(row, dtype=np.int32).tobytes() for row in rows.as_lists()]
            new = [number for number, key in enumerate(keys) if key not in self._known]
            started = time.process_time()
            if new:
                vectors = encode(encoder, rows[new]).numpy()
                self._known |= {keys[number]: vector for number, vector in zip(new, vectors, strict=True)}
            self._seconds += time.process_time() - started
            return torch.from_numpy(np.stack([self._known[key] for key in keys]))

        with mock.patch.object(TransformerEncoder, "_encoded", looked_up):
            yield
        if len(self._known) > num_known:
            rows = [np.frombuffer(key, dtype=np.int32) for key in self._known]
            np.savez(
                self._file,
                tokens=np.concatenate(rows),
                lengths=[len(row) for row in rows],
                vectors=np.stack(list(self._known.values())),
                seconds=self._seconds,
            )
