"""Requests and answers of the service: decoded and encoded as these types, which OpenAPI describes too."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from unidex.data.concepts import Term
from unidex.model.label_set import LabelRow
from unidex.model.similar_labels import SimilarLabel
from unidex.scoring.layout import Mode
from unidex.verbs.predict import PredictedLabel

LabelName = str | int  # a string is a uid, a number an id
# Python and JavaScript, whose patterns OpenAPI uses, differ in what a space is: this pattern excludes both.
NotBlank = Annotated[str, Meta(pattern=r"[^\s\x1c-\x1f\x85\ufeff]", description="Not only spaces.")]
LabelText = Annotated[NotBlank, Meta(description="Its text; the model finds the label by it.")]
LabelUid = Annotated[NotBlank, Meta(description="Your own name for it; default: its text.")]
UsedMode = Annotated[Mode | None, Meta(description="Heads that count; default: the mode of the model.")]


Language = Annotated[str, Meta(description="Language of label texts, such as de; default: their own texts.")]


class PredictRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Texts to predict labels for: "texts", or one "text"."""

    texts: Annotated[list[str], Meta(description="The texts.", min_length=1)] | UnsetType = UNSET
    text: Annotated[str, Meta(description="One text, instead of texts.")] | UnsetType = UNSET
    k: Annotated[int, Meta(ge=1, description="Labels per text.")] = 5
    mode: UsedMode = None
    min_probability: Annotated[
        float,
        Meta(ge=0.0, le=1.0, description="Minimum probability; above 0 for a calibrated model only."),
    ] = 0.0
    allowed: Annotated[
        tuple[LabelName, ...] | None,
        Meta(description="The only labels that may be predicted: uids, ids, uid=PATTERN or group=PATTERN."),
    ] = None
    forbidden: Annotated[
        tuple[LabelName, ...] | None, Meta(description="Labels that are not predicted, given likewise.")
    ] = None
    most_specific: Annotated[
        bool | None,
        Meta(description="Drop a label if a narrower one is predicted; default: as the rules of the model say."),
    ] = None
    language: Language = ""


class ExplainRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A text, and the labels to explain: the k best, or the given ones."""

    text: Annotated[str, Meta(description="The text.")]
    k: Annotated[int, Meta(ge=1, description="Number of best labels to explain.")] = 5
    labels: (
        Annotated[
            list[LabelName], Meta(min_length=1, description="Labels to explain instead of the best: uids or ids.")
        ]
        | None
    ) = None
    mode: UsedMode = None


class NewTerm(Term, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A further text of a label."""

    text: NotBlank


class NewLabel(msgspec.Struct, forbid_unknown_fields=True):
    """A label to add; all but its text may be left out."""

    text: LabelText
    uid: LabelUid | None = None
    language: Annotated[str, Meta(description="Language of its text.")] = ""
    texts: Annotated[list[NotBlank | NewTerm], Meta(description="Further texts, such as synonyms.")] = []
    notation: Annotated[str, Meta(description="A short code.")] = ""
    broader: Annotated[list[str], Meta(description="Uids of the next broader labels.")] = []
    related: Annotated[list[str], Meta(description="Uids of related labels.")] = []
    groups: Annotated[list[str], Meta(description="Schemes, collections and types.")] = []


class NewLabels(msgspec.Struct, forbid_unknown_fields=True):
    """A label to add, or several in "labels"."""

    text: LabelText | UnsetType = UNSET
    uid: LabelUid | UnsetType | None = UNSET
    labels: Annotated[list[NewLabel], Meta(min_length=1, description="Several labels, instead of one.")] | UnsetType = (
        UNSET
    )


class RenameRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The new text of a label."""

    text: Annotated[NotBlank, Meta(description="The new text.")]


class TeachRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Texts to teach a label with."""

    texts: Annotated[list[NotBlank], Meta(min_length=1, description="Texts that have the label.")]


class Prediction(msgspec.Struct):
    """The labels of one text, best first."""

    labels: list[PredictedLabel]
    known: Annotated[
        float | None,
        Meta(description="Share of the text's words that the model knows; null for a model without a vocabulary."),
    ] = None


class PredictAnswer(msgspec.Struct):
    """One prediction per text, in the order of the texts."""

    predictions: list[Prediction]
    model: str


class RequestLimits(msgspec.Struct):
    """The limits of one request."""

    text_length: int
    texts: int
    body: int
    k: int
    concurrent: int


class ModelAnswer(msgspec.Struct):
    """The live model."""

    model: str
    name: str
    version: str
    num_labels: int
    num_train: int
    recipe: str
    modes: list[Mode]
    calibrated: bool
    thresholds: dict[str, dict[str, float]] | None
    languages: Annotated[list[str], Meta(description="Languages that labels have names in.")]
    keeps_texts: bool
    writable: bool
    examples: Annotated[list[str], Meta(description="Texts to try: train texts if the model keeps them, or labels.")]
    limits: RequestLimits


class LabelsAnswer(msgspec.Struct):
    """One page of labels, and the number of all labels found."""

    total: int
    offset: int
    labels: list[LabelRow]
    model: str


class SimilarAnswer(msgspec.Struct):
    """A label and the labels similar to it."""

    label: LabelRow
    similar: list[SimilarLabel]


class NeighboursAnswer(msgspec.Struct):
    """A label and the labels similar to it, under the former name."""

    label: LabelRow
    neighbours: list[SimilarLabel]


class AddedAnswer(msgspec.Struct):
    """The added labels; they are on disk."""

    labels: list[LabelRow]
    model: str


class RenamedAnswer(msgspec.Struct):
    """The label with its new text."""

    label: LabelRow


class TaughtAnswer(msgspec.Struct):
    """The label after it learned, the number of texts it learned from, and the model that has learned it."""

    label: LabelRow
    num_texts: int
    model: str


class RemovedAnswer(msgspec.Struct):
    """The removed label."""

    removed: LabelRow


class TokenAttribution(msgspec.Struct):
    """The characters of the text from start to end, and their part of the score."""

    token: str
    start: int
    end: int
    score: float


class NearText(msgspec.Struct):
    """A train text that has the label."""

    text: str
    similarity: float


class Together(msgspec.Struct):
    """A predicted label that occurs with this one: on this share of its train texts."""

    id: int
    uid: str
    text: str
    share: float


class Explanation(PredictedLabel, kw_only=True):
    """Why a label has its score."""

    parts: Annotated[dict[str, float], Meta(description="The parts of the score by name.")]
    tokens: list[TokenAttribution]
    rest: float
    texts: list[NearText]
    together: list[Together]


class ExplainAnswer(msgspec.Struct):
    """One explanation per label."""

    labels: list[Explanation]
    model: str


class ReloadAnswer(msgspec.Struct):
    """The live model."""

    model: str


class StatusAnswer(msgspec.Struct):
    """The state of the service."""

    status: str
