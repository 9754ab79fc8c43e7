"""Whether two data sets are the same, told by a short hash of everything that training and scoring look at."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from unidex.data.dataset import Dataset
from unidex.data.texts import Texts

_BLOCK = 4096
_DIGITS = 16


def fingerprint(dataset: Dataset) -> str:
    """16 hexadecimal digits of a SHA-256 over labels, texts, pairs and propensity constants.

    The name of the data set, uids of texts and where it was read from do not count: the same content in another format
    has the same fingerprint.

    >>> from scipy import sparse
    >>> from unidex.data.dataset import Labels, Split
    >>> train = Split.of(Texts.of(["red shoe", "hat"]), sparse.csr_array(np.eye(2)))
    >>> shop = Dataset("shop", Labels(Texts.of(["shoes", "hats"])), train)
    >>> fingerprint(shop) == fingerprint(Dataset("store", shop.labels, train))
    True
    >>> fingerprint(shop) == fingerprint(Dataset("shop", Labels(Texts.of(["shoes", "caps"])), train))
    False
    """
    digest = hashlib.sha256()
    _add_texts(digest, dataset.labels.texts)
    _add_texts(digest, dataset.labels.uids)
    for split in dataset.splits:
        _add_texts(digest, split.texts)
        for pairs, kind in ((split.positives, np.float32), (split.filter_pairs, np.bool_)):
            # Widths of whole numbers differ between formats, and mean nothing.
            for array in (pairs.indptr.astype(np.int64), pairs.indices.astype(np.int64), pairs.data.astype(kind)):
                digest.update(np.ascontiguousarray(array).data)
    digest.update(repr((dataset.propensity.a, dataset.propensity.b)).encode())
    return digest.hexdigest()[:_DIGITS]


def _add_texts(digest: Any, texts: Texts | None) -> None:
    if texts is None:
        digest.update(b"none")
        return
    # With the lengths, so that "ab", "c" is not "a", "bc".
    digest.update(np.ascontiguousarray(texts.lengths().astype(np.int64)).data)
    for start in range(0, len(texts), _BLOCK):
        digest.update("".join(texts[start : start + _BLOCK]).encode())
