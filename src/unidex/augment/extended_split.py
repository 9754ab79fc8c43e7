"""Train texts with further points behind them, as a split of a data set."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import sparse

from unidex.data.dataset import Split
from unidex.data.text_packer import Packer
from unidex.data.texts import Texts


def joined(split: Split, points: Split, names: Sequence[str], prefix: str) -> Split:
    """A split, then further points. They get uids only where the split has some: ``prefix`` and their name.

    The prefix is lengthened by colons until no uid of the split begins with it, so that all uids differ.

    The names of the points are all different; their uids are not looked at.

    >>> pairs = sparse.csr_array(np.ones((1, 1), dtype=np.float32))
    >>> train = Split.of(Texts.of(["red hat"]), pairs, uids=Texts.of(["label:A"]))
    >>> list(joined(train, Split.of(Texts.of(["hats"]), pairs), ["A"], "label:").uids)
    ['label:A', 'label::A']
    """
    packer = Packer()
    for texts in (split.texts, points.texts):
        fields = list(texts.fields())
        packer.add_pairs([title for title, _ in fields], [content for _, content in fields])
    uids = None
    if split.uids is not None:
        own = list(split.uids)
        while any(uid.startswith(prefix) for uid in own):
            prefix += ":"
        uids = Texts.of_uids([*own, *(prefix + name for name in names)])
    return Split.of(
        Texts.packed(packer),
        sparse.vstack([split.positives, points.positives], format="csr", dtype=np.float32),
        sparse.vstack([split.filter_pairs, points.filter_pairs], format="csr", dtype=bool),
        uids,
    )
