"""The section [heads] of a recipe: what is scored."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from unidex.config.section import Section


def _without_repeats(names: list[str]) -> list[str]:
    if len(set(names)) < len(names):
        raise ValueError("each name must be there once")
    return names


class Heads(Section):
    """What is scored: the dual encoder, the classifier, or both."""

    dual: bool = Field(True, description="score a text with the vector of the label's text")
    classifier: bool = Field(True, description="score a text with a learned vector of the label")
    shared_encoder: bool = Field(
        True,
        description="both heads use one encoder; false gives the classifier its own encoder with the same features "
        "(bag only)",
    )
    dim: int = Field(256, ge=1, description="dimension of each head")
    projection: bool = Field(True, description="the paper's linear layers with tanh before the scores")
    dropout: float = Field(0.1, ge=0, lt=1, description="dropout of the heads")
    dual_normalised: bool = Field(True, description="scale the dual encoder's vectors to length 1")
    classifier_dropout: float = Field(0.1, ge=0, lt=1, description="dropout of the classifier's vectors")
    classifier_init: Literal["random", "zero", "label-text", "label-graph", "centroid"] = Field(
        "random",
        description="initial value of classifiers: label-text, the vectors of the labels' texts; label-graph, these "
        "summed over similar labels in the label graph of augment.walk_* (SiameseXML); centroid, the mean vectors of "
        "the labels' train texts; all by the encoder at the moment when the classifier is switched on",
    )
    classifier_centroid: float = Field(
        0.0,
        ge=0,
        description="after training, this times the mean direction of the label's train texts is added to its "
        "classifier (Astec's score fusion); 0 for none",
    )
    classifier_parts: Annotated[list[Literal["free", "text", "graph"]], AfterValidator(_without_repeats)] = Field(
        ["free"],
        min_length=1,
        description="parts of a label's classifier in training: a free vector, the words of its text, the words of "
        "similar labels in the label graph of augment.walk_* (DECAF, ECLARE; bag and inception)",
    )
    combine_parts: Literal["gates", "attention"] = Field(
        "gates",
        description="how several parts become one vector: one learned gate per number of each part (DECAF), or "
        "attention over the parts (ECLARE)",
    )
    classifier_bias: Literal["none", "zero", "log-odds"] = Field(
        "none",
        description="a learned number per label that is added to its score: none; initialised with 0; or with the log "
        "odds of the label in train, so that bce need not first push all labels down",
    )
    classifier_normalised: bool = Field(False, description="train the classifier on unit vectors, as in search")
    classifier_feature_smoothing: float = Field(
        0.0,
        ge=0,
        description="in the classifier's own encoder, a feature of n train texts has weight n / (n + this), so that "
        "rare features count less; 0 disables it",
    )
    classifier_search_vectors: Literal["unit", "plain"] = Field(
        "unit", description="search classifiers as unit vectors, or with their trained lengths"
    )

    @property
    def separate_encoders(self) -> bool:
        """Whether the classifier has an encoder of its own; one head alone has nothing to share."""
        return self.dual and self.classifier and not self.shared_encoder
