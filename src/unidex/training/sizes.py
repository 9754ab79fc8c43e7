"""Sizes that follow from the number of train texts: batches, pools and epochs."""

from __future__ import annotations

import logging
import math
from typing import Any

from unidex.config import Config
from unidex.encoders import registry as encoders
from unidex.training.phases import changed

logger = logging.getLogger(__name__)

# From so many texts on, a recipe for a transformer keeps the sizes of its paper.
_MANY_TEXTS = 100_000
# Labels of a pool per text of a batch, where a transformer encodes each of them.
_LABELS_PER_TEXT = 4
# With fewer held-out texts than this, one validation without gain may be chance: so many decide.
_FEW_HELD_OUT, _PATIENCE = 200, 3
# Epochs of a trained transformer on at most so many texts; more texts have more epochs, in proportion.
_FEW_EPOCHS, _FEW_TEXTS = 20, 10_000


def batch_size_for(num_texts: int) -> int:
    """Texts of a step: about 32 steps per epoch, so that a small data set has enough of them, at most 1024.

    >>> batch_size_for(1000), batch_size_for(9000), batch_size_for(30_000), batch_size_for(10**6)
    (128, 256, 1024, 1024)
    """
    return int(min(1024, max(128, 2 ** round(math.log2(max(1, num_texts) / 32)))))


def pretrained_batch_size_for(num_texts: int) -> int:
    """Texts of a step of a pretrained encoder, about 2 sqrt(N): its rates are small, so that steps count.

    >>> [pretrained_batch_size_for(num_texts) for num_texts in (50, 1000, 8000, 30_000, 10**6)]
    [16, 64, 128, 256, 512]
    """
    return int(min(512, max(16, 2 ** int(math.log2(2 * math.sqrt(max(1, num_texts)) * 1.25)))))


def fit_sizes(config: Config, num_texts: int, *, tell: bool = True) -> Config:
    """A recipe whose sizes fit the number of train texts.

    A batch size of 0 is chosen. Sizes in train.fit_to_texts are lowered where texts are few, except where every step
    encodes all labels: smaller batches would encode them more often. Patience is raised where few texts are held out.
    """
    train, pool = config.train, config.pool
    is_pretrained = encoders.get(config.encoder.kind).can.is_pretrained
    best = pretrained_batch_size_for(num_texts) if is_pretrained else batch_size_for(num_texts)
    size = train.batch_size or best
    sizes: dict[str, dict[str, Any]] = {"train": {"batch_size": size}, "pool": {"size": pool.size}}
    encodes_all = pool.labels == "all" and config.heads.dual
    if num_texts < _MANY_TEXTS and not encodes_all:
        if "batch_size" in train.fit_to_texts:
            size = sizes["train"]["batch_size"] = min(size, best)
        if "pool_size" in train.fit_to_texts:
            sizes["pool"]["size"] = min(pool.size, _LABELS_PER_TEXT * size)
        if "epochs" in train.fit_to_texts:
            most = round(_FEW_EPOCHS * max(1.0, num_texts / _FEW_TEXTS))
            sizes["train"]["epochs"] = min(train.epochs, most)
    if "patience" in train.fit_to_texts and train.patience and train.validation * num_texts < _FEW_HELD_OUT:
        sizes["train"]["patience"] = max(train.patience, _PATIENCE)
    fitted = changed(config, sizes)
    if tell and size != train.batch_size:
        logger.info("Batches of %d texts: that is %d steps per epoch.", size, math.ceil(num_texts / size))
    if tell and (fitted.pool.size, fitted.train.epochs) != (pool.size, train.epochs):
        lowered = (fitted.pool.size, fitted.train.epochs)
        logger.info("Texts are few: pools of at most %d labels, %d epochs (train.fit_to_texts).", *lowered)
    return fitted
