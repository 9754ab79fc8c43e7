"""The section [pool] of a recipe: the labels of a step."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from unidex.config.section import Section


class Pool(Section):
    """The labels of a step."""

    labels: Literal["picked", "all"] = Field("picked", description="a pool picked for the batch, or all labels")
    positives: int = Field(3, ge=1, description="positives sampled per text (beta)")
    hard_negatives: int = Field(6, ge=0, description="mined labels sampled per text (eta)")
    try_hard_negatives: int = Field(
        0, ge=0, description="try so many per text on the validation split; skipped if there are many texts"
    )
    size: int = Field(3000, ge=1, description="maximum number of labels in a pool")
    batches: Literal["clustered", "random", "labels"] = Field(
        "clustered",
        description="similar texts in one batch; random texts; or random labels with one text each (SiameseXML)",
    )
    candidates: Literal["pool", "own"] = Field(
        "pool",
        description="labels that a text is scored with: the whole pool; or, as soon as labels are mined, its own: its "
        "positives and the labels mined for it (Astec, SiameseXML), with losses from text to label alone",
    )
    start: int = Field(5, ge=0, description="epochs before batches are clustered and negatives mined")
    refresh_every: int = Field(5, ge=1, description="epochs between two rounds of clustering and mining")
    similar_by: Literal["vectors", "words"] = Field(
        "vectors",
        description="what texts of a clustered batch are similar by: vectors of the network, from epoch pool.start on; "
        "or words, from the first epoch on, for which no text is encoded",
    )
    fill: bool = Field(True, description="fill the rest of a pool with further labels of the texts")
    shortlist: int = Field(
        0, ge=0, description="mined labels stored per text, to sample from; 0 for hard_negatives x refresh_every"
    )
    cluster_growth: list[int] = Field(
        [],
        description="epochs at which clusters of texts, of one text at first, double in size; a batch is then made of "
        "random clusters. Empty: a cluster is a batch",
    )
