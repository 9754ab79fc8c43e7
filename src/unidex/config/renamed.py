"""Settings that had other names: a recipe with an old name is refused with the new one, an old model folder is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

OLD_NAMES = (1, 2)  # the formats of model folders that have them
# Old name -> new name.
RENAMED = {
    "heads.classifier_rare": "heads.classifier_feature_smoothing",
    "heads.classifier_start": "heads.classifier_init",
    "heads.classifier_searched": "heads.classifier_search_vectors",
    "heads.parts_joined": "heads.combine_parts",
    "loss.bce": "loss.bce_reduction",
    "loss.contrastive_least": "loss.contrastive_min",
    "loss.drawn_positives": "loss.sampled_positives",
    "loss.others": "loss.other_positives",
    "augment.labels": "augment.label_share",
    "augment.most": "augment.max_targets",
    "augment.walk_most": "augment.walk_max_labels",
    "tree.learns": "tree.losses",
    "tree.smoothed": "tree.smooth_centroids",
    "train.falling_epochs": "train.decay_epochs",
    "train.least_gain": "train.min_gain",
    "train.rehearse": "train.simulate_decay_up_to",
    "train.rows": "train.row_optimiser",
    "train.tables": "train.table_storage",
    "predict.choose_neighbours": "predict.choose_knn",
    "predict.choose_prior": "predict.choose_label_prior",
    "predict.fuse": "predict.rank",
    "predict.combine": "predict.rank",
    "predict.keep_texts": "predict.snippet_length",
    "predict.neighbours": "predict.knn",
    "predict.neighbours_temperature": "predict.knn_temperature",
    "predict.num_neighbours": "predict.knn_texts",
    "predict.prior": "predict.label_prior",
    "predict.tree_weight": "predict.decision_tree_weight",
}
# Values that had other names, by the new name of their setting.
# Codes of 6 bits are still read, and what is added to such a model has 8.
_VALUES = {"predict.rank": {"tree": "decision-tree"}, "predict.precision": {"int6": "int8"}}


def with_new_names(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a model folder of an earlier format under the names of today.

    >>> with_new_names({"predict": {"fuse": "tree", "index": "exact"}})
    {'predict': {'rank': 'decision-tree', 'index': 'exact'}}
    """
    found: dict[str, Any] = {}
    for section, value in settings.items():
        if section == "stages" and isinstance(value, list):
            found[section] = [with_new_names(stage) for stage in value]
        else:
            found[section] = dict(_renamed(section, value)) if isinstance(value, Mapping) else value
    return found


def _renamed(section: str, keys: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in keys.items():
        name = RENAMED.get(f"{section}.{key}", f"{section}.{key}")
        values = _VALUES.get(name, {})
        yield name.partition(".")[2], values.get(value, value) if isinstance(value, str) else value
