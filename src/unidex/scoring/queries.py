"""Queries: the form of texts that a scorer searches with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex.scoring.matches import Matches


@dataclass(frozen=True, eq=False)
class Queries:
    """Texts as a scorer reads them.

    Attributes:
        vectors: one row per text, as `unidex.scoring.layout` lays it out.
        words: the rows of the lexical part; None where the model has none.
        matches: the labels of which the text has every word; None where no ranker asks for them.
        pretrained: vectors by a frozen encoder; None where the model has none.
        rows: the features of the encoder; None where no linear part reads them.
        links: the links of the texts to labels, N x L; None where the model has none.
    """

    vectors: NDArray[np.float32]
    words: sparse.csr_array | None = None
    pretrained: NDArray[np.float32] | None = None
    matches: Matches | None = None
    rows: sparse.csr_array | None = None
    links: sparse.csr_array | None = None

    def __len__(self) -> int:
        return len(self.vectors)

    def __getitem__(self, texts: Any) -> Queries:
        found = (self.words, self.pretrained, self.matches, self.rows, self.links)
        parts: list[Any] = [None if part is None else part[texts] for part in found]
        return Queries(self.vectors[texts], *parts)
