"""Settings that an encoder needs in recipes that were not written for it, so that every recipe trains every encoder.

A learning rate that suits the word vectors of a bag ruins a trained transformer, and the rate of a transformer leaves a
bag at its random vectors. A recipe has sections for the encoders that its authors used, such as [transformer.train].
For any other encoder, these settings are laid over the recipe and its stages.
"""

from __future__ import annotations

from typing import Any

Settings = dict[str, dict[str, Any]]

# Under every recipe that is trained with the encoder: the recipe's own settings win.
_COMMON: dict[str, Settings] = {
    "transformer": {"train": {"fit_to_texts": ["batch_size", "pool_size", "epochs", "patience"]}},
}
# Also under such recipes with both heads. At equal weights the weaker head costs the stronger one several points, and
# which head that is depends on the data and on how long it was trained.
_CHOSEN_FUSION: Settings = {"train": {"validation": 0.1}, "predict": {"choose_fusion": True}}
# Over recipes without a section for the encoder: one encoder serves both heads.
_SHARED: Settings = {"heads": {"shared_encoder": True, "classifier_feature_smoothing": 0.0}}
# These shares are of a bag or of inception; a stage may not differ in what a transformer does not have.
_NO_SHARES: Settings = {"encoder": {"dropout": 0.0, "layer_dropout": 0.0}}
_RATES: dict[str, dict[str, Any]] = {
    "bag": {"lr_encoder": 0.1, "lr_heads": 1e-3, "lr_classifier": 0.1, "row_optimiser": "adagrad", "batch_size": 512},
    "inception": {"lr_encoder": 5e-3, "lr_heads": 5e-3, "lr_classifier": 5e-3, "row_optimiser": "adam"},
    "transformer": {"lr_encoder": 1e-4, "lr_heads": 1e-3, "lr_classifier": 1e-3, "row_optimiser": "adam"},
}
_MORE: dict[str, dict[str, Any]] = {
    "inception": {"batch_size": 128, "schedule": "one-cycle", "warmup": 0.33, "decay_epochs": 0},
    "transformer": {"weight_decay": 0.01},
}


def settings_under(kind: str, heads: dict[str, Any]) -> Settings:
    """The settings of an encoder under a recipe whose section [heads] is given.

    >>> settings_under("transformer", {"classifier": False})["train"]["fit_to_texts"][0]
    'batch_size'
    >>> settings_under("transformer", {})["predict"], settings_under("bag", {})
    ({'choose_fusion': True}, {})
    """
    common = _COMMON.get(kind, {})
    if not common or not (heads.get("dual", True) and heads.get("classifier", True)):
        return common
    return {"train": {**common["train"], **_CHOSEN_FUSION["train"]}, "predict": _CHOSEN_FUSION["predict"]}


def settings_for(kind: str, train: dict[str, Any], *, is_stage: bool = False) -> Settings:
    """The settings of an encoder over a recipe, or a stage of one, whose section [train] is given.

    A rate of 0 stays: what does not learn there learns with no encoder. A stage only has rates of its own replaced.

    >>> settings_for("bag", {"lr_encoder": 0.0, "lr_classifier": 0.005}, is_stage=True)
    {'train': {'lr_classifier': 0.1}}
    """
    rates = {name: value for name, value in _RATES.get(kind, {}).items() if train.get(name) != 0}
    shares = _NO_SHARES if kind == "transformer" else {}
    if is_stage:
        return {"train": {name: value for name, value in rates.items() if name in train}, **shares}
    return {"train": rates | _MORE.get(kind, {}), **shares, **({} if kind == "bag" else _SHARED)}
