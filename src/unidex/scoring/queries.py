"""Queries: the form of texts that a scorer searches with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse


@dataclass(frozen=True, eq=False)
class Queries:
    """Texts as a scorer reads them.

    Attributes:
        vectors: one row per text, as `unidex.scoring.layout` lays it out.
        words: the rows of the lexical part; None where the model has none.
        pretrained: vectors by a frozen encoder; None where the model has none.
    """

    vectors: NDArray[np.float32]
    words: sparse.csr_array | None = None
    pretrained: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.vectors)

    def __getitem__(self, texts: Any) -> Queries:
        parts = (None if part is None else part[texts] for part in (self.words, self.pretrained))
        return Queries(self.vectors[texts], *parts)
