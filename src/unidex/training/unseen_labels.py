"""Labels that no text of training has: what becomes of their classifiers where nothing else speaks for them."""

from __future__ import annotations

import logging

import numpy as np
import torch
from scipy import sparse

from unidex.config import Config
from unidex.nn.classifier_parts import TEXT
from unidex.nn.network import Network

logger = logging.getLogger(__name__)


def are_left_random(config: Config) -> bool:
    """Whether classifiers of labels without texts end as they began, and began at nothing that is known of the label.

    With all labels in every step they are learned as negatives; a label's text, as the start or as a part of its
    classifier, and a dual encoder say something of it.
    """
    heads = config.heads
    says_nothing = heads.classifier_init not in ("label-text", "label-graph") and TEXT not in heads.classifier_parts
    return heads.classifier and not heads.dual and says_nothing and config.pool.labels == "picked"


@torch.no_grad()
def settle_unseen(network: Network, config: Config, positives: sparse.csr_array) -> None:
    """Let labels without texts score as labels do on average, which is low, where their classifiers are left random.

    Left as they are, they would stand before labels that have learned which texts are not theirs: a random vector has
    a score of about 0, a trained one is below that for nearly all texts.
    """
    if not are_left_random(config) or network.classifiers is None:
        return
    seen_L = np.bincount(positives.indices, minlength=positives.shape[1]) > 0
    if seen_L.all() or not seen_L.any():
        return
    logger.info("%d labels have no training text: they score as labels do on average.", int((~seen_L).sum()))
    seen = torch.from_numpy(seen_L).to(network.device)
    weight = network.classifiers.weight
    weight.copy_(torch.where(seen[:, None], weight, weight[seen].mean(dim=0)))
