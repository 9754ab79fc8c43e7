"""What a step minimises: the losses of both heads on the scores of a batch and its pool."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unidex.augment.mixup import mix_labels, mix_texts
from unidex.config import Config, LossName
from unidex.errors import ConfigError
from unidex.losses import (
    Loss,
    LossGrad,
    Targets,
    bce,
    contrastive,
    correct_log_q,
    decoupled_softmax,
    soft_topk_loss,
    supcon,
    symmetric,
    triplet,
)
from unidex.losses.inner_product import inner_product_loss
from unidex.nn.network import Network
from unidex.nn.row_table import Touched
from unidex.pools.pool import Batch
from unidex.training.drawn_targets import drawn_targets

_LOSSES: dict[LossName, Loss] = {
    "decoupled-softmax": decoupled_softmax,
    "supcon": supcon,
    # On the drawn targets this is the softmax on one positive that leaves a text's other positives out.
    "one-positive": decoupled_softmax,
    "soft-top-k": soft_topk_loss,
    "triplet": triplet,
    "contrastive": contrastive,
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
        loss = _loss(config.loss.dual, config, log_q_P)
        chosen = drawn_targets(targets, config.loss.dual, config.loss, seed)
        part = inner_product_loss(vectors[:num_texts], vectors[num_texts:], scales[0], chosen, loss)
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
        loss = _with_bce(_loss(config.loss.classifier, config, log_q_P), config.loss.classifier_bce)
        chosen = drawn_targets(targets, config.loss.classifier, config.loss, seed)
        part = inner_product_loss(text_vectors, label_vectors, scales[1], chosen, loss)
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


def _loss(name: LossName, config: Config, log_q_P: Tensor | None) -> Loss:
    loss, settings = _LOSSES[name], config.loss
    if name == "triplet":
        loss = partial(
            triplet,
            margin=settings.margin,
            num_negatives=settings.hardest_negatives,
            num_positives=settings.hardest_positives,
        )
    elif name == "contrastive":
        loss = partial(
            contrastive,
            c=settings.contrastive_c,
            d=settings.contrastive_d,
            num_negatives=settings.hardest_negatives,
            least=settings.contrastive_min,
        )
    elif name == "one-positive" and settings.other_positives == "negatives":
        loss = supcon
    elif name == "bce":
        loss = partial(bce, reduction=config.loss.bce_reduction)
    elif name == "soft-top-k":
        loss = partial(soft_topk_loss, k=config.loss.k or "positives", alpha=config.loss.alpha)
    if name in ("decoupled-softmax", "supcon", "one-positive") and config.loss.text_to_label < 1:
        return partial(symmetric, loss=loss, text_to_label=config.loss.text_to_label, log_q_P=log_q_P)
    if log_q_P is None or name in ("triplet", "contrastive", "bce", "soft-top-k"):
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
