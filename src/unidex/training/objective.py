"""What a step minimises: the losses of both heads on the scores of a batch and its pool."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unidex.augment.mixup import mix_labels, mix_texts
from unidex.config import Config
from unidex.errors import ConfigError
from unidex.losses import HeadLoss, Targets
from unidex.losses.inner_product import inner_product_loss
from unidex.nn.network import Network
from unidex.nn.row_table import Touched
from unidex.pools.pool import Batch


def objective(
    network: Network,
    texts: Any,
    labels: Any,
    batch: Batch,
    config: Config,
    log_q: Tensor | None,
    rng: np.random.Generator,
) -> tuple[Tensor, list[Touched]]:
    """The loss of a batch, and the rows of tables it has used.

    Args:
        network: in training mode.
        texts: all prepared texts.
        labels: all prepared label texts.
        batch: the texts and labels of the step.
        config: the recipe.
        log_q: how often each label enters a pool, or None.
        rng: for the dropout of features, the draw of one positive and mixing.
    """
    device = network.device
    touched: list[Touched] = []
    ids = torch.from_numpy(batch.labels).to(device)
    targets = batch.targets.to(device)
    log_q_P = None if log_q is None else log_q[ids]
    seed = int(rng.integers(2**62))
    scales = network.log_scales.exp()
    value = torch.zeros((), device=device)
    prepared_texts = texts[batch.texts]
    num_texts = len(batch.texts)
    own_encoder = network.classifier_encoder
    if network.dual is not None and _weighs(config):
        stacked = network.encoder.stack([prepared_texts, labels[batch.labels]])
        encoded = network.encoder(stacked, touched, rng)
        encoded, targets = _mixed(encoded, targets, config, rng)
        vectors = network.dual(encoded)
        encoded = encoded[:num_texts]
        loss = HeadLoss.of(config.loss.dual, config.loss)
        chosen = loss.sample(targets, seed)
        part = inner_product_loss(vectors[:num_texts], vectors[num_texts:], scales[0], chosen, loss.dense(log_q_P))
        value = value + part * (config.loss.dual_weight if network.classifier is not None else 1.0)
        if own_encoder is not None:
            encoded = own_encoder(prepared_texts, touched, rng)
    else:
        # The classifier alone: a dual encoder apart from it has nothing to learn in this step.
        encoded = (network.encoder if own_encoder is None else own_encoder)(prepared_texts, touched, rng)
        encoded, targets = _mixed(encoded, targets, config, rng)
    if network.classifier is not None and network.classifiers is not None:
        text_vectors = network.classifier(encoded)
        rows = network.gather_classifiers(ids, touched)
        label_vectors = nn.functional.dropout(rows, config.heads.classifier_dropout)
        if config.heads.classifier_normalised:
            text_vectors = nn.functional.normalize(text_vectors, dim=1)
            label_vectors = nn.functional.normalize(label_vectors, dim=1)
        weight = 1 - config.loss.dual_weight if network.dual is not None else 1.0
        loss = HeadLoss.of(config.loss.classifier, config.loss, bce_weight=config.loss.classifier_bce)
        chosen = loss.sample(targets, seed)
        part = inner_product_loss(text_vectors, label_vectors, scales[1], chosen, loss.dense(log_q_P))
        value = value + part * weight
    return value, touched


def _weighs(config: Config) -> bool:
    """Whether the dual encoder's loss counts; where it does not, label texts need not be encoded."""
    return config.loss.dual_weight > 0 or not config.heads.classifier or config.augment.mixup == "labels"


def _mixed(encoded: Tensor, targets: Targets, config: Config, rng: np.random.Generator) -> tuple[Tensor, Targets]:
    """The encoder's vectors, of the texts and then of the labels where they are encoded, with the texts mixed."""
    mixup, alpha, num_texts = config.augment.mixup, config.augment.mixup_alpha, targets.shape[0]
    if mixup == "none":
        return encoded, targets
    texts, labels = encoded[:num_texts], encoded[num_texts:]
    if mixup == "texts":
        texts, targets = mix_texts(texts, targets, alpha, rng)
    elif config.heads.dual:
        texts, targets = mix_labels(texts, labels, targets, alpha, rng)
    else:
        raise ConfigError(
            'augment.mixup = "labels" needs label texts to be encoded, but heads.dual is false; '
            'set heads.dual=true or augment.mixup="texts"'
        )
    return torch.cat([texts, labels]), targets
