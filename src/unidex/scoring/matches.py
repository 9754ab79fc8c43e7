"""What is known of matches: labels of which a text has every word, and the names of their ranking features.

Shapes: N texts, L labels, M matches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

# The features of matches.
MATCHES = (
    "match_count",
    "match_first",
    "match_rate",
    "match_texts",
    "match_words",
    "match_ambiguity",
    "num_matches",
)


@dataclass(frozen=True, eq=False)
class Matches:
    """The labels that match texts.

    Attributes:
        places_NL: where the numbers of a text and a label stand in the arrays.
        counts_M: occurrences.
        firsts_M: share of the text before the first occurrence of all words.
        rows_M: the text of the label that matches.
        names_M: whether the text begins with all words of the label and no others, as one with that name does.
    """

    places_NL: sparse.csr_array
    counts_M: NDArray[np.float32]
    firsts_M: NDArray[np.float32]
    rows_M: NDArray[np.integer[Any]]
    names_M: NDArray[np.bool_]

    def __getitem__(self, texts: Any) -> Matches:
        return Matches(self.places_NL[texts], self.counts_M, self.firsts_M, self.rows_M, self.names_M)
