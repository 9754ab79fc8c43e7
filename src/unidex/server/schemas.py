"""What the service takes and gives: requests are decoded by these types, answers made of them, OpenAPI shows them."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

Mode = Literal["both", "dual", "classifier"]
Frequency = Literal["head", "torso", "tail"]
Order = Literal["frequency", "text", "id"]
LabelName = str | int  # a string is a uid, a number an id
# What a space is differs between Python and JavaScript, in whose words OpenAPI has its patterns: here, all of both.
Said = Annotated[str, Meta(pattern=r"[^\s\x1c-\x1f\x85\ufeff]", description="Not only spaces.")]


class PredictRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Texts to predict labels for: "texts", or one "text"."""

    texts: Annotated[list[str], Meta(description="The texts.", min_length=1)] | UnsetType = UNSET
    text: Annotated[str, Meta(description="One text, instead of texts.")] | UnsetType = UNSET
    k: Annotated[int, Meta(ge=1, description="Labels a text.")] = 5
    mode: Annotated[Mode | None, Meta(description="Which heads count; the model's own choice unless given.")] = None
    min_probability: Annotated[
        float,
        Meta(ge=0.0, le=1.0, description="Only labels at least so probable; above 0 for a calibrated model only."),
    ] = 0.0
    allowed: Annotated[
        list[LabelName] | None, Meta(description="The only labels that may be predicted: uids or ids.")
    ] = None
    forbidden: Annotated[list[LabelName] | None, Meta(description="Labels that are not predicted: uids or ids.")] = None


class ExplainRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A text, and which labels to explain: the k best, or those named."""

    text: Annotated[str, Meta(description="The text.")]
    k: Annotated[int, Meta(ge=1, description="How many of the best labels.")] = 5
    labels: (
        Annotated[list[LabelName], Meta(min_length=1, description="These labels instead of the best: uids or ids.")]
        | None
    ) = None
    mode: Annotated[Mode | None, Meta(description="Which heads count; the model's own choice unless given.")] = None


class NewLabel(msgspec.Struct, forbid_unknown_fields=True):
    """A label to add."""

    text: Annotated[Said, Meta(description="Its text, by which it is found.")]
    uid: Annotated[Said, Meta(description="Your own name of it; its text unless given.")] | None = None


class NewLabels(msgspec.Struct, forbid_unknown_fields=True):
    """A label to add, or several in "labels"."""

    text: Annotated[Said, Meta(description="Its text, by which it is found.")] | UnsetType = UNSET
    uid: Annotated[Said, Meta(description="Your own name of it; its text unless given.")] | UnsetType | None = UNSET
    labels: Annotated[list[NewLabel], Meta(min_length=1, description="Several, instead of one.")] | UnsetType = UNSET


class RenameRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The new text of a label."""

    text: Annotated[Said, Meta(description="The new text.")]


class PredictedLabel(msgspec.Struct):
    """A label that was predicted."""

    id: int
    uid: str
    text: str
    score: float
    probability: float | None
    frequency: Frequency


class Prediction(msgspec.Struct):
    """The labels of one text, best first."""

    labels: list[PredictedLabel]


class PredictAnswer(msgspec.Struct):
    """One prediction a text, in the order of the texts."""

    predictions: list[Prediction]
    model: str


class LimitsShown(msgspec.Struct):
    """What one request may hold."""

    text_length: int
    texts: int
    body: int
    k: int
    concurrent: int


class ModelAnswer(msgspec.Struct):
    """The model that is served."""

    model: str
    name: str
    version: str
    num_labels: int
    num_train: int
    recipe: str
    modes: list[Mode]
    calibrated: bool
    thresholds: dict[str, dict[str, float]] | None
    keeps_texts: bool
    writable: bool
    limits: LimitsShown


class LabelRow(msgspec.Struct):
    """A label: its id, the user's own name, its text, how many train texts have it."""

    id: int
    uid: str
    text: str
    frequency: Frequency
    num_texts: int


class NearRow(LabelRow):
    """A label near another, with its score."""

    score: float


class LabelsAnswer(msgspec.Struct):
    """A page of labels, and how many there are in all."""

    total: int
    offset: int
    labels: list[LabelRow]
    model: str


class NeighboursAnswer(msgspec.Struct):
    """A label and those near it."""

    label: LabelRow
    neighbours: list[NearRow]


class AddedAnswer(msgspec.Struct):
    """Labels that were added; they are on disk."""

    labels: list[LabelRow]
    model: str


class RenamedAnswer(msgspec.Struct):
    """The label with its new text."""

    label: LabelRow


class RemovedAnswer(msgspec.Struct):
    """The label that was removed."""

    removed: LabelRow


class Parts(msgspec.Struct, omit_defaults=True):
    """The terms of a score, which is their sum; only the parts that the model has."""

    dual: float | UnsetType = UNSET
    classifier: float | UnsetType = UNSET
    label_tree: float | UnsetType = UNSET
    decision_tree: float | UnsetType = UNSET
    knn: float | UnsetType = UNSET
    label_prior: float | UnsetType = UNSET


class TokenShown(msgspec.Struct):
    """A piece of the text from character start to end, and what it gave."""

    token: str
    start: int
    end: int
    score: float


class NearText(msgspec.Struct):
    """A train text that has the label."""

    text: str
    similarity: float


class Together(msgspec.Struct):
    """A predicted label that comes with this one: on this share of its train texts."""

    id: int
    uid: str
    text: str
    share: float


class ReasonShown(msgspec.Struct):
    """Why a label has its score."""

    id: int
    uid: str
    text: str
    score: float
    probability: float | None
    frequency: Frequency
    parts: Parts
    tokens: list[TokenShown]
    rest: float
    texts: list[NearText]
    together: list[Together]


class ExplainAnswer(msgspec.Struct):
    """The reasons, one a label."""

    labels: list[ReasonShown]
    model: str


class ReloadAnswer(msgspec.Struct):
    """The model that serves now."""

    model: str


class StatusAnswer(msgspec.Struct):
    """How the service is."""

    status: str
