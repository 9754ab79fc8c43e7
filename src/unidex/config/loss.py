"""The section [loss] of a recipe: what is minimised."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from unidex.config.names import LOSSES
from unidex.config.section import Section

LossName = Annotated[str, AfterValidator(LOSSES.check)]


class Loss(Section):
    """What is minimised."""

    dual: LossName = Field("decoupled-softmax", description="loss of the dual encoder")
    classifier: LossName = Field("decoupled-softmax", description="loss of the classifier")
    classifier_bce: float = Field(0.0, ge=0, description="weight of an additional BCE on the classifier's scores")
    text_to_label: float = Field(0.5, ge=0, le=1, description="1 - weight of the label-to-text direction; 1 is one-way")
    dual_weight: float = Field(
        0.5, ge=0, le=1, description="weight of the dual encoder's loss; the classifier's has 1 - this"
    )
    temperature: float = Field(1 / 18, gt=0, description="scores are divided by this in the loss")
    classifier_temperature: float = Field(
        0.0, ge=0, description="the same for the classifier's loss; 0 uses loss.temperature"
    )
    learn_temperature: bool = Field(False, description="learn the temperatures, initialised with the settings above")
    log_q: float = Field(
        0.0,
        ge=0,
        le=1,
        description="share of log q that is subtracted from the scores of a label; q is how often it enters a pool",
    )
    margin: float = Field(0.3, ge=0, description="margin of the triplet loss")
    triplet_temperature: float = Field(
        0.1, gt=0, description="triplet: temperature of the weights of a text's hardest negatives; high for equal ones"
    )
    other_positives: Literal["ignored", "negatives"] = Field(
        "ignored", description="one-positive: how positives count that were not sampled"
    )
    sampled_positives: int = Field(
        0, ge=0, description="triplet, contrastive: positives sampled per text and step; 0 for all in the pool"
    )
    hardest_positives: int = Field(
        0, ge=0, description="triplet: positives per text that count, the hardest first; 0 for all"
    )
    hardest_negatives: int = Field(
        10, ge=1, description="triplet, contrastive: negatives per text that count, highest scores first"
    )
    contrastive_c: float = Field(0.9, gt=0, lt=1, description="contrastive: probability of a pair whose score is 1")
    contrastive_d: float = Field(
        1.5, gt=0, description="contrastive: how fast the probability decreases with the score"
    )
    contrastive_min: float = Field(0.0, ge=0, description="contrastive: terms of negatives below this are dropped")
    bce_reduction: Literal["mean", "sum"] = Field(
        "mean", description="bce: mean over pairs, or sum over the labels of a text"
    )
    k: int = Field(5, ge=0, description="soft-top-k: size of the top; 0 for the number of a text's positives")
    alpha: float = Field(2.0, gt=0, description="soft-top-k: sharpness")
