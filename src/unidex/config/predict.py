"""The section [predict] of a recipe: how the trained model is searched."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from unidex.config.section import Section

Precision = Literal["float32", "int8", "int5"]
Favour = Literal["accuracy", "balanced", "rare"]


class Predict(Section):
    """How the trained model predicts."""

    mode: Literal["both", "dual", "classifier"] = Field("both", description="the heads that score")
    fusion: float = Field(0.5, ge=0, le=1, description="weight of the dual encoder against the classifier")
    choose_fusion: bool = Field(False, description="choose the fusion weight on the validation split")
    rank: Literal["sum", "decision-tree", "learned"] = Field(
        "sum",
        description="how the parts of a score become one: 'sum', their weighted sum; 'learned', boosted trees over "
        "the parts, words that text and label share and more, fitted on validation; 'decision-tree' (NGAME), "
        "classifier + decision_tree_weight x (dual + probability of a decision tree fitted on validation)",
    )
    decision_tree_weight: float = Field(
        1.0, ge=0, description="rank = 'decision-tree': weight of the dual score and the probability"
    )
    favour: Favour = Field(
        "balanced",
        description="what choices on validation and the learned ranker favour: 'accuracy' (P@k), 'rare' (labels with "
        "few texts, PSP@k) or 'balanced'",
    )
    knn: float = Field(
        0.0, ge=0, description="weight of the kNN part: the labels of the nearest train texts; 0 for none"
    )
    choose_knn: bool = Field(False, description="choose the weight of the kNN part on the validation split")
    knn_texts: int = Field(32, ge=1, description="number of nearest train texts")
    knn_temperature: float = Field(0.05, gt=0, description="temperature of the softmax over their similarities")
    label_prior: float = Field(
        0.0, description="label prior: this times ln(1 + number of train texts) is added to a label's score"
    )
    choose_label_prior: bool = Field(False, description="choose the label prior on the validation split")
    allowed: list[str] = Field(
        [],
        description="rules for the only labels that the model predicts (a uid, uid=PATTERN or group=PATTERN); "
        "none: all labels",
    )
    forbidden: list[str] = Field([], description="rules for labels that the model never predicts")
    most_specific: bool = Field(
        False, description="drop a predicted label if a narrower one is predicted for the same text"
    )
    pretrained: str = Field(
        "",
        description="a frozen encoder beside the trained one, whose cosines and kNN scores the learned ranker may read "
        "if that pays on the validation split: 'minilm', 'wordllama', a folder or a hub name; 'auto' for the static "
        "vectors of wordllama if that package is installed and there are 2,000 to 20,000 train texts; empty for none. "
        "A text then costs one pass of it, and the model needs it to predict",
    )
    linear: bool = Field(
        False,
        description="a linear classifier per label over the features of texts, whose scores the learned ranker reads; "
        "for bag encoders, one process and train texts with up to 200 million features in all",
    )
    index: Literal["auto", "disk", "exact", "hnsw", "pq"] = Field(
        "auto",
        description="kind of search index; 'auto' is 'exact'; above 2 GiB of label vectors, 'auto' and 'pq' are 'disk'",
    )
    precision: Precision = Field(
        "float32",
        description="the vectors of features and labels in the model: 'float32'; 'int8' for a quarter of the size; "
        "'int5' for 5 bits per number, a seventh of the size",
    )
    snippet_length: int = Field(
        0, ge=0, description="characters of each train text that the model stores for explanations; 0 for none"
    )
