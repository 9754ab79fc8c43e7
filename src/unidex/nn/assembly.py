"""From a recipe to a network: which encoder, which heads, which classifiers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from scipy import sparse

from unidex.config import Config
from unidex.config.saved import read_saved
from unidex.encoders.bag import BagEncoder
from unidex.encoders.inception import InceptionEncoder, num_places
from unidex.errors import ConfigError, ModelError
from unidex.features.extractor import Features
from unidex.features.feature_settings import FeatureSettings
from unidex.nn.heads import ClassifierHead, DualHead
from unidex.nn.label_tree import LabelTree
from unidex.nn.network import Network
from unidex.nn.row_table import RowTable
from unidex.nn.tree_heads import TreeHeads

# Rows of a table that share a seed.
_SEEDED = 4096
# What an encoder must have in common with the one whose weights it takes.
_SHAPE = {
    "bag": ("kind", "dim", "residual", "spectral"),
    "inception": ("kind", "dim", "max_length"),
    "transformer": ("kind", "pooling"),
}
# Added to the seed for the classifier's own encoder: drawn with the seed itself, it would be the dual encoder again.
_OWN_ENCODER = 0x2545F4914F6CDD1D
# The same for the clusters of each level.
_CLUSTERS = 0x5851F42D4C957F2D


def build_encoder(config: Config, texts: Sequence[str], label_texts: Sequence[str]) -> Any:
    """An encoder before training; the vocabulary of the bag or of inception is chosen from the texts.

    Where encoder.path is a model folder of ours, its encoder is taken, vocabulary and all.
    """
    # Refused here already: to count the features of many texts takes a while.
    encoders_apart(config)
    folder = Path(config.encoder.path)
    if config.encoder.path and (folder / "config.toml").is_file() and (folder / "encoder.safetensors").is_file():
        return _encoder_of_model(config, folder)
    if config.encoder.kind == "transformer":
        from unidex.encoders.transformer import TransformerEncoder

        return TransformerEncoder.load(config.encoder.path, config.encoder)
    if config.encoder.kind == "inception":
        # Refused here already, for the same reason.
        num_places(config.encoder.dim)
    features = Features.fit(texts, label_texts, _feature_settings(config))
    if features.num_features == 0:
        raise ConfigError(
            f"the {config.encoder.kind} encoder must find at least one feature that occurs in "
            f"{config.features.min_df} texts, but finds none; lower features.min_df"
        )
    encoder = _with_table(config, features)
    if config.encoder.path:
        from unidex.nn.static_vectors import begin_from

        begin_from(encoder, config.encoder.path)
    return encoder


def _encoder_of_model(config: Config, folder: Path) -> Any:
    """The trained encoder of a model folder, as the start of another model."""
    saved = read_saved(folder).encoder
    wanted = config.encoder
    for key in _SHAPE[wanted.kind]:
        if getattr(saved, key) != getattr(wanted, key):
            raise ConfigError(
                f"{folder}: encoder.{key} must be that of the model whose encoder is taken, {getattr(saved, key)!r}, "
                f"but is {getattr(wanted, key)!r}; set it with --set encoder.{key}={getattr(saved, key)}"
            )
    encoder = load_encoder(config, folder / "encoder")
    try:
        weights = load_file(folder / "encoder.safetensors")
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{folder}: the model cannot be read ({error}); copy it again") from None
    if "features" in weights:
        encoder.table.weight = weights["features"]
    prefix = "encoder."
    own = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
    encoder.load_state_dict(own)
    return encoder


def load_encoder(config: Config, folder: Path) -> Any:
    """The encoder of a model folder, its weights yet to be filled in where they are the network's own."""
    if config.encoder.kind == "transformer":
        from unidex.encoders.transformer import TransformerEncoder

        return TransformerEncoder.from_config(folder, config.encoder)
    return _with_table(config, Features.load(folder))


def encoders_apart(config: Config) -> bool:
    """Whether the classifier has an encoder of its own; a recipe where it cannot have one is refused.

    With one head there is nothing to share, and heads.shared_encoder says nothing.
    """
    heads = config.heads
    if heads.shared_encoder or not (heads.dual and heads.classifier):
        return False
    unfit = None
    if config.encoder.kind != "bag":
        unfit = f"encoder.kind = {config.encoder.kind!r}"
    elif config.augment.mixup != "none":
        unfit = f"augment.mixup = {config.augment.mixup!r}, which mixes vectors that both heads read"
    if unfit is not None:
        raise ConfigError(
            "an encoder of the classifier's own (heads.shared_encoder = false) needs encoder.kind = 'bag' and "
            f"augment.mixup = 'none', but this recipe has {unfit}; set heads.shared_encoder=true or change that"
        )
    return True


def build_network(
    config: Config,
    encoder: Any,
    labels: slice | int,
    device: torch.device | str = "cpu",
    tree: LabelTree | None = None,
) -> Network:
    """A network before training, with classifiers for so many labels or for a shard of them. The caller seeds torch.

    With ``tree``, also with heads for its clusters.
    """
    heads = config.heads
    if not (heads.dual or heads.classifier):
        raise ConfigError("a recipe must have heads.dual or heads.classifier, but both are false")
    dim = heads.dim if heads.projection else encoder.dim
    options: dict[str, Any] = {"dropout": heads.dropout, "projection": heads.projection}
    dual = DualHead(encoder.dim, dim, normalised=heads.dual_normalised, **options) if heads.dual else None
    classifier = table = None
    if heads.classifier:
        has_bias = _has_bias(config)
        classifier = ClassifierHead(
            encoder.dim, dim, searched=heads.classifier_search_vectors, bias=has_bias, **options
        )
        rows = labels if isinstance(labels, slice) else slice(0, labels)
        # Unit length on average where they are trained as unit vectors, else small (as the paper's Xavier start is).
        scale = 0.0 if heads.classifier_init == "zero" else 1.0 if heads.classifier_normalised else 0.02
        start = random_rows(rows, dim) * (scale / dim**0.5)
        table = RowTable((torch.nn.functional.pad(start, (0, 1)) if has_bias else start).to(device))
    own = _own_encoder(config, encoder) if encoders_apart(config) else None
    network = Network(
        encoder,
        dual,
        classifier,
        table,
        temperature=config.loss.temperature,
        classifier_temperature=config.loss.classifier_temperature or None,
        learn_temperature=config.loss.learn_temperature,
        classifier_encoder=own,
        tree=None if tree is None else _tree_heads(config, encoder, tree, device),
    )
    for part in (encoder, own):
        if isinstance(part, BagEncoder | InceptionEncoder):
            part.table.weight = part.table.weight.to(device)
    return network.to(device)


def _tree_heads(config: Config, encoder: Any, tree: LabelTree, device: torch.device | str) -> TreeHeads:
    """Heads for the clusters of a tree, which begin as small as classifiers do."""
    layers = config.tree.layers
    if layers and any(not 1 <= layer <= encoder.num_layers for some in layers for layer in some):
        raise ConfigError(
            f"tree.layers must be layers of the transformer, 1 to {encoder.num_layers}, but are {layers}; for one of "
            f"{encoder.num_layers} layers, spread them over the upper half"
        )
    heads = TreeHeads(tree, config.tree, encoder.dim, bias=_has_bias(config))
    for level, table in enumerate(heads.tables):
        dim = table.dim - heads.bias
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed((torch.initial_seed() + _CLUSTERS * (level + 1)) % 2**63)
            table.weight[:, :dim] = random_rows(slice(0, table.num_rows), dim) * (0.02 / dim**0.5)
        table.weight = table.weight.to(device)
    return heads


def _own_encoder(config: Config, encoder: BagEncoder) -> BagEncoder:
    """An encoder of the same features for the classifier alone.

    It begins at random vectors of its own, so that rare features, which keep much of their start, do not err alike in
    both heads. Where the dual encoder has begun from given vectors (encoder.path), it begins from the same.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed((torch.initial_seed() + _OWN_ENCODER) % 2**63)
        own = _bag(config, encoder.features)
    if config.encoder.path:
        own.table.weight = encoder.table.weight.clone()
        own.load_state_dict(encoder.state_dict())
    if config.heads.classifier_feature_smoothing > 0:
        own.weigh(torch.ones(encoder.features.num_features))
    return own


def random_rows(rows: slice, dim: int) -> torch.Tensor:
    """Standard normal rows of a table, the same whoever asks for them: a shard has the rows of the whole.

    Each block of rows has a seed of its own, so that no process draws the rows of the others.

    >>> torch.equal(random_rows(slice(0, 5000), 2)[4000:4200], random_rows(slice(4000, 4200), 2))
    True
    """
    found = torch.empty(rows.stop - rows.start, dim)
    for first in range(rows.start // _SEEDED * _SEEDED, rows.stop, _SEEDED):
        seed = (torch.initial_seed() + 0x9E3779B97F4A7C15 * (first // _SEEDED + 1)) % 2**63
        block = torch.randn(_SEEDED, dim, generator=torch.Generator().manual_seed(seed))
        start, stop = max(first, rows.start), min(first + _SEEDED, rows.stop)
        found[start - rows.start : stop - rows.start] = block[start - first : stop - first]
    return found


def start_classifiers(network: Network, labels: Any) -> None:
    """Let each classifier begin at the vector its head gives the label's own text; one without a text stays random."""
    vectors = network.text_vectors(labels).classifier
    assert vectors is not None
    assert network.classifiers is not None
    assert network.classifier is not None
    # A classifier of length 0 has no direction to learn from; the 1 of a bias is none.
    said = vectors[:, : vectors.shape[1] - network.classifier.bias].abs().sum(dim=1, keepdim=True) > 0
    network.classifiers.weight.copy_(torch.where(said, vectors, network.classifiers.weight))


def start_biases(network: Network, start: str, positives: sparse.csr_array, shard: slice) -> None:
    """Let the bias of each label in a shard begin at 0, or at ln(p / (1 - p)) with p the share of texts that have it.

    A score is divided by the temperature, and the bias with it; log odds are those of what comes out.
    """
    assert network.classifiers is not None
    _begin(network, network.classifiers.weight[:, -1], start, positives, shard)


def start_cluster_biases(network: Network, start: str, of_levels: Sequence[sparse.csr_array]) -> None:
    """The same for the clusters of a label tree; ``of_levels`` are texts x clusters, level by level."""
    assert network.tree is not None
    for table, positives in zip(network.tree.tables, of_levels, strict=True):
        _begin(network, table.weight[:, -1], start, positives, slice(0, table.num_rows))


def _begin(network: Network, biases_L: torch.Tensor, start: str, positives: sparse.csr_array, shard: slice) -> None:
    if start == "zero":
        biases_L.zero_()
        return
    counts_L = np.bincount(positives.indices, weights=positives.data, minlength=positives.shape[1])[shard]
    # Half a text more with the label, and half a one without: no log of 0.
    odds_L = (counts_L + 0.5) / (positives.shape[0] - counts_L + 0.5)
    temperature = math.exp(-float(network.log_scales[1].detach()))
    biases_L.copy_(torch.from_numpy(np.log(odds_L) * temperature))


def _has_bias(config: Config) -> bool:
    heads = config.heads
    if heads.classifier_bias == "none":
        return False
    unfit = None
    if heads.classifier_search_vectors != "plain":
        unfit = f"heads.classifier_search_vectors = {heads.classifier_search_vectors!r}"
    elif heads.classifier_normalised:
        unfit = "heads.classifier_normalised = true"
    elif heads.classifier_dropout:
        unfit = f"heads.classifier_dropout = {heads.classifier_dropout}"
    if unfit is not None:
        raise ConfigError(
            "a bias (heads.classifier_bias) is one more number of a label's vector, so that vectors must be trained "
            f"and searched as they are, but this recipe has {unfit}; set heads.classifier_search_vectors=plain, "
            "heads.classifier_normalised=false and heads.classifier_dropout=0, or heads.classifier_bias=none"
        )
    return True


def _feature_settings(config: Config) -> FeatureSettings:
    features = config.features
    if config.encoder.kind == "bag":
        return FeatureSettings(**features.model_dump())
    return FeatureSettings(
        parts=False,
        bigrams=False,
        weighting="none",
        min_df=features.min_df,
        max_features=features.max_features,
        num_buckets=features.num_buckets,
    )


def _with_table(config: Config, features: Features) -> BagEncoder | InceptionEncoder:
    if config.encoder.kind == "inception":
        return InceptionEncoder(features, config.encoder)
    return _bag(config, features)


def _bag(config: Config, features: Features) -> BagEncoder:
    encoder = config.encoder
    return BagEncoder(
        features,
        encoder.dim,
        dropout=encoder.dropout,
        residual=encoder.residual,
        spectral=encoder.spectral,
        layer_dropout=encoder.layer_dropout,
    )
