"""From a recipe to a network: which encoder, which heads, which classifiers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from unidex.config import Config
from unidex.encoders.bag import BagEncoder
from unidex.encoders.feature_settings import FeatureSettings
from unidex.encoders.features import Features
from unidex.errors import ConfigError
from unidex.labels.heads import ClassifierHead, DualHead
from unidex.labels.rows import RowTable
from unidex.network import Network


def build_encoder(config: Config, texts: Sequence[str], label_texts: Sequence[str]) -> Any:
    """An encoder before training; the bag's vocabulary is chosen from the texts."""
    if config.encoder.kind == "transformer":
        from unidex.encoders.transformer import TransformerEncoder

        return TransformerEncoder.load(config.encoder.path, config.encoder)
    features = Features.fit(texts, label_texts, FeatureSettings(**config.features.model_dump()))
    if features.num_features == 0:
        raise ConfigError(
            f"the bag encoder must find at least one feature that occurs in {config.features.min_df} texts, but finds "
            "none; lower features.min_df"
        )
    encoder = _bag(config, features)
    if config.encoder.path:
        from unidex.encoders.vectors import begin_from

        begin_from(encoder, config.encoder.path)
    return encoder


def load_encoder(config: Config, folder: Path) -> Any:
    """The encoder of a model folder, its weights yet to be filled in where they are the network's own."""
    if config.encoder.kind == "transformer":
        from unidex.encoders.transformer import TransformerEncoder

        return TransformerEncoder.from_config(folder, config.encoder)
    return _bag(config, Features.load(folder))


def build_network(config: Config, encoder: Any, num_labels: int, device: torch.device | str = "cpu") -> Network:
    """A network before training. The caller seeds torch."""
    heads = config.heads
    if not (heads.dual or heads.classifier):
        raise ConfigError("a recipe must have heads.dual or heads.classifier, but both are false")
    dim = heads.dim if heads.projection else encoder.dim
    options: dict[str, Any] = {"dropout": heads.dropout, "projection": heads.projection}
    dual = DualHead(encoder.dim, dim, **options) if heads.dual else None
    classifier = ClassifierHead(encoder.dim, dim, **options) if heads.classifier else None
    table = None
    if heads.classifier:
        start = torch.zeros if heads.classifier_start == "zero" else torch.randn
        # Unit length on average where they are trained as unit vectors, else small (as the paper's Xavier start is).
        scale = 1.0 if heads.classifier_normalised else 0.02
        table = RowTable((start(num_labels, dim) * (scale / dim**0.5)).to(device))
    network = Network(
        encoder,
        dual,
        classifier,
        table,
        temperature=config.loss.temperature,
        learn_temperature=config.loss.learn_temperature,
    )
    if config.encoder.kind == "bag":
        encoder.table.weight = encoder.table.weight.to(device)
    return network.to(device)


def start_classifiers(network: Network, labels: Any) -> None:
    """Let each classifier begin at the vector its head gives the label's own text; one without a text stays random."""
    vectors = network.text_vectors(labels).classifier
    assert vectors is not None
    assert network.classifiers is not None
    # A classifier of length 0 has no direction to learn from.
    said = vectors.abs().sum(dim=1, keepdim=True) > 0
    network.classifiers.weight.copy_(torch.where(said, vectors, network.classifiers.weight))


def _bag(config: Config, features: Features) -> BagEncoder:
    encoder = config.encoder
    return BagEncoder(features, encoder.dim, dropout=encoder.dropout, residual=encoder.residual)
