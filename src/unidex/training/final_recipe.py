"""The recipe of a finished model: that of its training, with what was decided on held-out texts."""

from __future__ import annotations

from unidex.config import Config
from unidex.nn.network import Network
from unidex.scoring.layout import Layout, Weights
from unidex.scoring.linear_part import LINEAR
from unidex.scoring.pretrained import PRETRAINED
from unidex.scoring.rankers import FittedRanker
from unidex.training.phases import changed
from unidex.training.pretrained_vectors import PretrainedVectors
from unidex.training.validation import Choice


def final_recipe(
    config: Config,
    network: Network,
    choice: Choice | None,
    ranker: FittedRanker | None,
    frozen: PretrainedVectors | None,
) -> Config:
    """The recipe with the weights and epochs that were chosen, and with the parts that the ranker reads, alone.

    Args:
        config: the recipe of the best trial.
        network: the trained one.
        choice: what was chosen on held-out texts; None without such texts.
        ranker: the fitted one; None where labels are ranked by the weighted sum.
        frozen: the vectors of a frozen encoder, if the recipe asked for one.
    """
    if choice is not None:
        weights = {"fusion": choice.fusion, "knn": choice.knn, "label_prior": choice.label_prior}
        config = changed(config, {"predict": weights, "train": {"epochs": choice.epochs}})
    if ranker is None:
        return changed(config, {"predict": {"rank": "sum", "pretrained": "", "linear": False}})
    read = set(ranker.ranker(Layout.of(network, Weights.of(config.predict))).features)
    source = frozen.source if frozen is not None and read & set(PRETRAINED) else ""
    return changed(config, {"predict": {"pretrained": source, "linear": bool(read & set(LINEAR))}})
