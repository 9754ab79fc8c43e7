"""What a step minimises: the losses of both heads on the scores of a batch and its pool."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unidex.config import Config, LossName
from unidex.labels.rows import Touched
from unidex.losses import (
    Loss,
    LossGrad,
    Targets,
    bce,
    correct_log_q,
    decoupled_softmax,
    one_positive,
    supcon,
    symmetric,
    triplet,
)
from unidex.losses.inner_product import inner_product_loss
from unidex.network import Network
from unidex.pools.pool import Batch

_LOSSES: dict[LossName, Loss] = {
    "decoupled-softmax": decoupled_softmax,
    "supcon": supcon,
    # On the drawn targets this is the softmax on one positive that leaves a text's other positives out.
    "one-positive": decoupled_softmax,
    "triplet": triplet,
    "bce": bce,
}


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
        rng: for the dropout of features and the draw of one positive.
    """
    device = network.device
    touched: list[Touched] = []
    ids = torch.from_numpy(batch.labels).to(device)
    targets = batch.targets.to(device)
    log_q_P = None if log_q is None else log_q[ids]
    drawn = _drawn(targets, config, rng)
    scales = network.log_scales.exp()
    value = torch.zeros((), device=device)
    num_texts = len(batch.texts)
    if network.dual is not None:
        stacked = network.encoder.stack([texts[batch.texts], labels[batch.labels]])
        encoded = network.encoder(stacked, touched, rng)
        vectors = network.dual(encoded)
        encoded = encoded[:num_texts]
        loss = _loss(config.loss.dual, config, log_q_P)
        part = inner_product_loss(vectors[:num_texts], vectors[num_texts:], scales[0], drawn(config.loss.dual), loss)
        value = value + part * (config.loss.dual_weight if network.classifier is not None else 1.0)
    else:
        encoded = network.encoder(texts[batch.texts], touched, rng)
    if network.classifier is not None and network.classifiers is not None:
        text_vectors = network.classifier(encoded)
        rows = network.classifiers.gather(ids)
        touched.append(Touched(network.classifiers, ids, rows))
        label_vectors = nn.functional.dropout(rows, config.heads.classifier_dropout)
        if config.heads.classifier_normalised:
            text_vectors = nn.functional.normalize(text_vectors, dim=1)
            label_vectors = nn.functional.normalize(label_vectors, dim=1)
        weight = 1 - config.loss.dual_weight if network.dual is not None else 1.0
        loss = _with_bce(_loss(config.loss.classifier, config, log_q_P), config.loss.classifier_bce)
        part = inner_product_loss(text_vectors, label_vectors, scales[1], drawn(config.loss.classifier), loss)
        value = value + part * weight
    return value, touched


def _drawn(targets: Targets, config: Config, rng: np.random.Generator) -> Any:
    """Targets as a loss wants them: one drawn positive a text where it trains on one."""
    seed = int(rng.integers(2**62))

    def drawn(name: LossName) -> Targets:
        if name != "one-positive":
            return targets
        return one_positive(targets, torch.Generator(targets.rows.device).manual_seed(seed))

    return drawn


def _loss(name: LossName, config: Config, log_q_P: Tensor | None) -> Loss:
    loss = _LOSSES[name]
    if name == "triplet":
        loss = partial(triplet, margin=config.loss.margin)
    if name in ("decoupled-softmax", "supcon", "one-positive") and config.loss.text_to_label < 1:
        return partial(symmetric, loss=loss, text_to_label=config.loss.text_to_label, log_q_P=log_q_P)
    if log_q_P is None or name in ("triplet", "bce"):
        return loss
    return lambda scores_BP, targets: loss(correct_log_q(scores_BP, log_q_P), targets)


def _with_bce(loss: Loss, weight: float) -> Loss:
    """A loss plus a weighted BCE on the same scores."""
    if weight == 0:
        return loss

    def both(scores_BP: Tensor, targets: Targets) -> LossGrad:
        extra = bce(scores_BP.clone(), targets)
        main = loss(scores_BP, targets)
        return LossGrad(main.value + weight * extra.value, main.gradient.add_(extra.gradient, alpha=weight))

    return both
