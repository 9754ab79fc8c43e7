"""A part of the train texts in the place of test: what is tried is judged on it, so that test texts decide nothing.

Labels that only judged texts have are left out, and so are judged texts without another label. All labels of the sets
have train texts. If some had none, each of them would be right for a judged text: who predicts them without reason
would gain.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from slice_of_set import with_labels
from unidex.data.dataset import Dataset

_SEED = 11
_SHARE, _MAX_JUDGED = 0.2, 3000


def with_judged_part(dataset: Dataset, max_texts: int | None = None) -> Dataset:
    """At most so many of the train texts, drawn at random, of which a fifth, 3,000 at most, takes the place of test."""
    drawn = np.random.default_rng(_SEED).permutation(len(dataset.train))[:max_texts]
    number = min(_MAX_JUDGED, int(_SHARE * len(drawn)))
    judged, others = np.sort(drawn[:number]), np.sort(drawn[number:])
    divided = replace(dataset, train=dataset.train.take(others), test=dataset.train.take(judged))
    return with_labels(divided, np.flatnonzero(divided.label_frequencies()))
