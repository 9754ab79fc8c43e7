"""Short vectors of the words of texts, by which similar texts are found before a network is trained.

Shapes: N texts, F words or tokens, D dimensions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

# A cosine of two texts is off by about 1 / sqrt(D).
_DIMENSIONS, _SIGNS = 128, 4
_TEXTS_AT_ONCE = 1 << 16


def word_vectors(rows_NF: Any, rng: np.random.Generator) -> Tensor:
    """N x D unit vectors whose inner products are about the cosines of sparse rows; 0 for an empty row.

    Formula: each word f gets a sparse vector s_f of four signs at random places, and a text sum_f x_f s_f, normalised.
    The rows are read in blocks and may be looked up in a file.

    References: Charikar, Chen, Farach-Colton, Finding frequent items in data streams (2002).

    >>> rows = sparse.csr_array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 2.0]])
    >>> found = word_vectors(rows, np.random.default_rng(0))
    >>> found.shape, bool(found[0] @ found[1] > 0.99), bool(abs(found[0] @ found[2]) < 0.5)
    (torch.Size([3, 128]), True, True)
    """
    num_texts, num_words = rows_NF.shape
    places = rng.integers(0, _DIMENSIONS, size=(num_words, _SIGNS))
    signs = rng.choice(np.array([-1, 1], dtype=np.float32), size=(num_words, _SIGNS))
    words = np.repeat(np.arange(num_words), _SIGNS)
    signs_FD = sparse.csr_array((signs.ravel(), (words, places.ravel())), shape=(num_words, _DIMENSIONS))
    found_ND = np.empty((num_texts, _DIMENSIONS), dtype=np.float32)
    for start in range(0, num_texts, _TEXTS_AT_ONCE):
        block = slice(start, start + _TEXTS_AT_ONCE)
        found_ND[block] = (rows_NF[block] @ signs_FD).toarray()
    return torch.nn.functional.normalize(torch.from_numpy(found_ND), dim=1)
