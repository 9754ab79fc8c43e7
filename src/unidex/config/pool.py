"""The section [pool] of a recipe: the labels of a step."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from unidex.config.section import Section


class Pool(Section):
    """The labels of a step."""

    labels: Literal["picked", "all"] = Field("picked", description="a pool picked for the batch, or all labels")
    positives: int = Field(3, ge=1, description="labels drawn for each text (beta)")
    hard_negatives: int = Field(6, ge=0, description="mined labels drawn for each text (eta)")
    try_hard_negatives: int = Field(
        0, ge=0, description="try on the validation split whether so many for each text pay; not where texts are many"
    )
    size: int = Field(3000, ge=1, description="most labels in a pool")
    batches: Literal["clustered", "random", "labels"] = Field(
        "clustered",
        description="similar texts in one batch; any texts; or any labels, each with one of its texts (SiameseXML)",
    )
    start: int = Field(5, ge=0, description="epochs before batches are clustered and negatives mined")
    refresh_every: int = Field(5, ge=1, description="epochs between two rounds of clustering and mining")
    fill: bool = Field(True, description="where a pool has room left, further labels of the texts come in")
    shortlist: int = Field(
        0, ge=0, description="mined labels kept for each text, to draw from; 0 for hard_negatives x refresh_every"
    )
    cluster_growth: list[int] = Field(
        [],
        description="epochs at which clusters of texts, of one text at first, become twice as large; a batch is then "
        "made of any clusters. Empty: a cluster is a batch",
    )
