"""From one stage of a recipe to the next: what the network takes along, and what begins there."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import torch
from scipy import sparse

from unidex.config import Config
from unidex.distributed import Processes
from unidex.errors import ConfigError
from unidex.nn.assembly import start_biases, start_classifiers
from unidex.nn.label_tree import balanced_clusters, label_centroids
from unidex.nn.network import Network
from unidex.scoring.decision_tree import check_installed
from unidex.training.training_set import TrainingSet
from unidex.training.tree_setup import membership, smoothing_graph, targets_of_clusters

logger = logging.getLogger(__name__)

_CLUSTERS = 3  # part of a seed: batching has 0 to 2


def check_recipe(stages: dict[str, Config]) -> None:
    """Refuse what stages cannot have, before anything is trained."""
    *earlier, last = stages.values()
    if last.train.surrogate:
        raise ConfigError(
            "train.surrogate is for a stage that another follows, but is set in the last one; a model must know the "
            "labels themselves"
        )
    for config in earlier:
        heads = config.heads
        if config.train.surrogate and (heads.dual or not heads.classifier):
            raise ConfigError(
                "a stage with train.surrogate needs heads.classifier = true and heads.dual = false, as clusters of "
                "labels have no texts, but has not"
            )
    for config in stages.values() if earlier else ():
        unfit = None
        if config.train.decay_epochs:
            unfit = "train.decay_epochs"
        elif config.augment.method == "auto":
            unfit = "augment.method = 'auto'"
        elif config.pool.try_hard_negatives:
            unfit = "pool.try_hard_negatives"
        if unfit is not None:
            raise ConfigError(
                f"what is tried or trained beside a recipe needs one of one stage, but this one has {len(stages)} and "
                f"{unfit}; leave that out"
            )


def check_fuse(config: Config) -> None:
    """Refuse a tree that fuses scores where it cannot be fitted, before anything is trained."""
    predict = config.predict
    if predict.combine != "decision-tree":
        return
    check_installed()
    wanted = {
        "train.validation above 0": config.train.validation > 0,
        "train.decay_epochs = 0": config.train.decay_epochs == 0,
        "heads.dual = true and heads.classifier = true": config.heads.dual and config.heads.classifier,
        "predict.fusion between 0 and 1": predict.choose_fusion or 0 < predict.fusion < 1,
        "predict.knn = 0, not chosen": predict.knn == 0 and not predict.choose_knn,
        "predict.label_prior = 0, not chosen": predict.label_prior == 0 and not predict.choose_label_prior,
    }
    missing = [rule for rule, holds in wanted.items() if not holds]
    if missing:
        raise ConfigError(
            f"predict.combine = 'decision-tree' joins the scores of two heads as fitted on validation: it needs "
            f"{missing[0]}, but the recipe has otherwise; change that or set predict.combine=sum"
        )


def set_dropout(encoder: Any, config: Config, built: Config) -> None:
    """Let an encoder drop what a stage says; ``built`` is the recipe it was built by, which it follows otherwise."""
    for key in ("dropout", "layer_dropout"):
        wanted = getattr(config.encoder, key)
        if isinstance(getattr(encoder, key, None), float):
            setattr(encoder, key, wanted)
        elif wanted != getattr(built.encoder, key):
            raise ConfigError(
                f"encoder.{key} can differ between stages for the bag alone, but differs for encoder.kind = "
                f"{config.encoder.kind!r}; set it outside of [[stages]]"
            )


def carry_on(network: Network, before: Network, *, same_labels: bool) -> bool:
    """Let a network go on where that of the stage before ended; the result says whether its classifiers do.

    Encoders, heads, parts of classifiers and classifiers that both have are taken; a head that is new begins as it was
    built. Classifiers of clusters (train.surrogate) are not those of labels (not ``same_labels``) and are left behind.
    """
    for name in ("dual", "classifier"):
        new, old = getattr(network, name), getattr(before, name)
        if new is not None and old is not None:
            new.load_state_dict(old.state_dict())
    if network.classifier_encoder is not None and before.classifier_encoder is not None:
        network.classifier_encoder = before.classifier_encoder
    if network.parts is not None and before.parts is not None:
        network.parts.carry_on(before.parts)
    if network.tree is not None and before.tree is not None:
        network.tree.load_state_dict(before.tree.state_dict())
        network.tree.tables = before.tree.tables
    if network.log_scales.requires_grad and before.log_scales.requires_grad:
        with torch.no_grad():
            network.log_scales.copy_(before.log_scales)
    if network.classifiers is None or before.classifiers is None or not same_labels:
        return False
    network.classifiers = before.classifiers
    return True


def begin_classifiers(
    network: Network, config: Config, data: TrainingSet, label_texts: Any, processes: Processes
) -> None:
    """Let new classifiers begin where the recipe says, those of clusters at random; biases too.

    Args:
        network: in eval mode, as what begins at vectors begins at those that are searched.
        config: the recipe, or that of a stage.
        data: what it is trained on, labels or clusters of them.
        label_texts: prepared texts of all labels.
        processes: who takes part; each has a shard of the classifiers.
    """
    heads, shard = config.heads, processes.shard(data.labels.shape[0])
    if heads.classifier_init == "label-text" and not config.train.surrogate:
        start_classifiers(network, label_texts[shard])
    elif heads.classifier_init == "centroid" and not config.train.surrogate:
        start_at_centroids(network, data.texts, data.positives, shard, processes)
    if heads.classifier_bias != "none":
        start_biases(network, heads.classifier_bias, data.positives, shard)


@torch.no_grad()
def start_at_centroids(
    network: Network, texts: Any, positives: sparse.csr_array, shard: slice, processes: Processes
) -> None:
    """Let each classifier begin at the mean direction of its texts, less that of all labels; one without texts stays.

    What all have in common changes every score of a text alike, so a search with such classifiers ranks labels by their
    centroids, as Astec makes its shortlists; left in, it would make every label likely where there are no biases.
    """
    vectors = network.text_vectors(texts, processes).classifier
    assert vectors is not None
    assert network.classifiers is not None
    centroids = label_centroids(vectors.cpu().numpy(), positives)
    assert not sparse.issparse(centroids)
    found = torch.from_numpy(np.ascontiguousarray(centroids))
    said = found.abs().sum(dim=1, keepdim=True) > 0
    found = torch.where(said, found - found[said[:, 0]].mean(dim=0), 0)[shard].to(network.device)
    network.classifiers.weight.copy_(torch.where(said[shard].to(network.device), found, network.classifiers.weight))


def num_surrogates(config: Config, num_labels: int) -> int:
    """How many clusters of labels a stage learns in their place; never more than labels."""
    return min(config.train.surrogate, num_labels)


def surrogate_set(
    data: TrainingSet, texts_NF: Any, config: Config, seed: int, label_rows_LF: sparse.csr_array | None = None
) -> TrainingSet:
    """The training set of a stage that learns clusters of labels: a text has the clusters of its labels.

    Args:
        data: the training set with the labels themselves.
        texts_NF: features or vectors of its texts, that labels are clustered by.
        config: the recipe of the stage.
        seed: of every random choice.
        label_rows_LF: what the labels' texts say, where classifiers are made of it: a cluster says what its labels say.

    References: Astec (arXiv 2111.06685), its surrogate task.
    """
    positives = data.positives
    num_labels, count = positives.shape[1], num_surrogates(config, positives.shape[1])
    rng = np.random.default_rng([seed, _CLUSTERS])
    graph = smoothing_graph(positives, rng)
    clusters_L = balanced_clusters(label_centroids(texts_NF, positives, graph), count, rng)
    logger.info(
        "%d labels in %d clusters, %d or %d each", num_labels, count, num_labels // count, -(-num_labels // count)
    )
    members_LC = membership(clusters_L, count)
    return TrainingSet(
        data.texts,
        # Clusters have no texts; what is never read has no columns.
        np.empty((count, 0), dtype=np.float32)
        if label_rows_LF is None
        else sparse.csr_array(members_LC.T @ label_rows_LF),
        targets_of_clusters(positives, members_LC),
        sparse.csr_array((len(data.positives.indptr) - 1, count), dtype=bool),
    )


def together(stages: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """How the stages went, together and each for itself."""
    last = list(stages.values())[-1]
    sums = {key: sum(result[key] for result in stages.values()) for key in ("epochs", "steps", "seconds")}
    return last | sums | {"seconds": round(sums["seconds"], 1), "stages": stages}


def encoder_weights(encoder: Any) -> dict[str, torch.Tensor]:
    """A copy of what an encoder has learned, to come back to."""
    found = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    return found | ({"table": encoder.table.weight.clone()} if hasattr(encoder, "table") else {})


def restore_encoder(encoder: Any, weights: dict[str, torch.Tensor]) -> None:
    """Be again what ``encoder_weights`` has copied."""
    encoder.load_state_dict({name: tensor for name, tensor in weights.items() if name != "table"})
    if "table" in weights:
        encoder.table.weight = weights["table"].clone()
