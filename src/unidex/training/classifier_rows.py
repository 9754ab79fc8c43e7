"""The classifiers of a step's labels as they are scored: gathered, with dropout and of length 1 by the recipe."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from unidex.config import Config
from unidex.nn.network import Network
from unidex.nn.row_table import Touched


@dataclass(frozen=True, eq=False)
class ClassifierRows:
    """Rows of the classifiers that this process has.

    Attributes:
        network: whose classifiers they are.
        config: the recipe.
    """

    network: Network
    config: Config

    @property
    def are_as_stored(self) -> bool:
        """Whether classifiers are scored just as the table has them."""
        heads = self.config.heads
        return not (heads.classifier_normalised or heads.classifier_dropout or self.network.parts)

    def gather(self, ids_U: Tensor, touched: list[Touched]) -> Tensor:
        """U x D, with a graph back to the rows and parts they are made of. A bias is neither dropped nor scaled."""
        head, heads = self.network.classifier, self.config.heads
        assert head is not None
        rows_UD = self.network.gather_classifiers(ids_U, touched)
        if heads.classifier_dropout:
            rows_UD = head.beside_bias(lambda part: nn.functional.dropout(part, heads.classifier_dropout), rows_UD)
        return head.unit(rows_UD) if heads.classifier_normalised else rows_UD
