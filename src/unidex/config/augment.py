"""The section [augment] of a recipe: further training points."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from unidex.config.section import Section


class Augment(Section):
    """Additional training points (Gandalf, arXiv 2405.04545)."""

    method: Literal["none", "auto", "gandalf", "glas", "random-walk", "one-hot"] = Field(
        "none",
        description="targets of label texts as training points; none: no label texts; auto: gandalf if it improves the "
        "validation split, tried only if there are few texts",
    )
    delta: float = Field(0.1, ge=0, lt=1, description="gandalf, glas: targets up to this are dropped")
    max_targets: int = Field(0, ge=0, description="maximum number of targets per label text, highest first; 0 for all")
    self_label: bool = Field(True, description="a label text has its own label as a positive, with target 1")
    further_texts: bool = Field(
        False, description="further texts of labels, such as synonyms, are training points too; one more point for each"
    )
    points: Literal["union", "labels", "uniform"] = Field(
        "union",
        description="train on texts and label texts, on label texts alone, or on a sample of both, as many as texts",
    )
    label_share: float = Field(1.0, gt=0, le=1, description="share of the labels that become points")
    pick: Literal["random", "tail-first"] = Field("random", description="how these labels are chosen")
    walk_length: int = Field(400, ge=1, description="random-walk: hops from each label")
    walk_restart: float = Field(0.8, ge=0, le=1, description="random-walk: probability to restart at the label")
    walk_max_labels: int = Field(10, ge=1, description="random-walk: maximum number of labels, most visited first")
    walk_verbose: int = Field(500, ge=1, description="random-walk: labels with more texts than this are left out")
    mixup: Literal["none", "texts", "labels"] = Field(
        "none", description="mix the vectors of two texts and their targets, or of a text and one of its labels"
    )
    mixup_alpha: float = Field(0.2, gt=0, description="the mixing weight is drawn from Beta(alpha, alpha)")
