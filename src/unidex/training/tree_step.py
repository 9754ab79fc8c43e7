"""A step by a label tree: each text meets the labels that its beam leads to, and no others.

Level 0 scores all clusters. A text's true clusters and the best others, as many as the beam is wide, are opened, and
their children are the candidates of the next level; the labels of the last level's beam are the candidates of the
text. Each level and the labels have a binary cross-entropy over the candidates::

    loss = BCE(labels) + weight * sum over levels of BCE(clusters)

The target of a cluster is the sum of those of its labels, at most 1. A filter pair does not count, nor does a cluster
that a text has a filter pair in and no positive.

Shapes: B texts, K candidates of a text, C clusters of a level, U rows of a step, D dimensions, W width of the beam.

References: InceptionXML (arXiv 2109.07319), section 4; CascadeXML (arXiv 2211.00640), section 3.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn

from unidex.config import Config
from unidex.config.tree import at_level
from unidex.index.tree import opened
from unidex.losses.bce import softplus
from unidex.nn.candidate_scores import candidate_scores
from unidex.nn.network import Network
from unidex.nn.row_table import RowTable, Touched
from unidex.topk import PADDING
from unidex.training.tree_setup import cluster_positives

Ids = NDArray[np.int64]
# Numbers of a batch's targets that are laid out as a whole, which is quicker than to look each candidate up.
_WHOLE_UP_TO = 1 << 24


class TreeStep:
    """What stays the same from step to step.

    Args:
        network: with the heads of a label tree.
        texts: all prepared texts.
        positives: texts x labels, targets in (0, 1].
        filter_pairs: texts x labels, neither positives nor negatives.
        config: the recipe.
    """

    def __init__(
        self,
        network: Network,
        texts: Any,
        positives: sparse.csr_array,
        filter_pairs: sparse.csr_array,
        config: Config,
    ) -> None:
        assert network.tree is not None
        self.network, self.texts, self.config, self.tree = network, texts, config, network.tree
        shape = network.tree.shape
        # Of each level, and of the labels behind them.
        self._positives = [*cluster_positives(shape, positives), positives]
        self._filters = [*cluster_positives(shape, filter_pairs), filter_pairs]
        self._children = [torch.from_numpy(children).to(network.device) for children in shape.children]

    def __call__(self, rows: Ids, epoch: int, rng: np.random.Generator) -> tuple[Tensor, list[Touched]]:
        """The loss of a batch of texts, and the rows of tables that were used."""
        network, settings = self.network, self.config.tree
        touched: list[Touched] = []
        encoded, of_levels = network.with_levels(self.texts[rows], touched, rng)
        scale = network.log_scales[1].exp()
        value = torch.zeros((), device=network.device)
        ids_BK = torch.arange(self.tree.tables[0].num_rows, device=network.device).expand(len(rows), -1)
        above_BK: Tensor | None = None
        for level, (read, table) in enumerate(zip(of_levels, self.tree.tables, strict=True)):
            if self.tree.learns:
                scores_BK = _scores(read * scale, table, ids_BK, touched)
            else:
                with torch.no_grad():
                    scores_BK = candidate_scores(read * scale, table.weight, ids_BK.clamp(min=0))
            targets_BK, counts_BK = self._asked(level, rows, ids_BK)
            if self.tree.learns:
                loss = candidate_bce(scores_BK, targets_BK, counts_BK, self.config.loss.bce_reduction)
                value = value + settings.weight * loss
            own_BK = torch.sigmoid(scores_BK.detach())
            worth_BK = own_BK if above_BK is None else own_BK * above_BK
            beam = at_level(settings.beam, self.tree.shape.levels[level])
            ids_BW, own_BW = kept_clusters(ids_BK, own_BK, worth_BK, targets_BK > 0, beam)
            ids_BK, above_BK = opened(ids_BW, own_BW, self._children[level])
        if settings.losses != "clusters":
            value = value + self._of_labels(rows, ids_BK, encoded, scale, epoch, touched)
        return value, touched

    def _of_labels(
        self, rows: Ids, ids_BK: Tensor, encoded: Tensor, scale: Tensor, epoch: int, touched: list[Touched]
    ) -> Tensor:
        network, heads = self.network, self.config.heads
        assert network.classifier is not None
        text_vectors = network.classifier(encoded.detach() if epoch < self.config.tree.detached_epochs else encoded)
        ids_U, places_BK = _distinct(ids_BK, self.tree.shape.num_labels)
        label_vectors = nn.functional.dropout(network.gather_classifiers(ids_U, touched), heads.classifier_dropout)
        if heads.classifier_normalised:
            text_vectors = nn.functional.normalize(text_vectors, dim=1)
            label_vectors = nn.functional.normalize(label_vectors, dim=1)
        scores_BK = candidate_scores(text_vectors * scale, label_vectors, places_BK)
        targets_BK, counts_BK = self._asked(len(self._children), rows, ids_BK)
        return candidate_bce(scores_BK, targets_BK, counts_BK, self.config.loss.bce_reduction)

    def _asked(self, level: int, rows: Ids, ids_BK: Tensor) -> tuple[Tensor, Tensor]:
        """The targets of candidates, and which of them count."""
        targets_BK = values_at(self._positives[level], rows, ids_BK)
        counts_BK = ids_BK >= 0
        if self._filters[level].nnz:
            counts_BK &= (targets_BK > 0) | (values_at(self._filters[level], rows, ids_BK) == 0)
        return targets_BK, counts_BK


def kept_clusters(
    ids_BK: Tensor, own_BK: Tensor, worth_BK: Tensor, true_BK: Tensor, beam: int
) -> tuple[Tensor, Tensor]:
    """The clusters that each text opens, and their probabilities: all true ones, then the best others up to ``beam``.

    A text with more true clusters than the beam is wide opens them all. Where there is none the id is -1.

    >>> ids, own = torch.tensor([[0, 1, 2, 3]]), torch.tensor([[0.9, 0.1, 0.2, 0.8]])
    >>> kept_clusters(ids, own, own, torch.tensor([[False, True, False, False]]), 2)[0].tolist()
    [[1, 0]]
    """
    rank_BK = torch.where(true_BK, worth_BK + 2, worth_BK).masked_fill(ids_BK < 0, -1.0)
    num_true_B = true_BK.sum(dim=1)
    width = min(ids_BK.shape[1], max(beam, int(num_true_B.max()) if len(ids_BK) else 0))
    best_BW, kept_BW = rank_BK.topk(width, dim=1)
    places_W = torch.arange(width, device=ids_BK.device)
    there_BW = (best_BW >= 0) & (places_W < num_true_B.clamp(min=beam)[:, None])
    return ids_BK.gather(1, kept_BW).masked_fill(~there_BW, PADDING), own_BK.gather(1, kept_BW)


def candidate_bce(
    scores_BK: Tensor, targets_BK: Tensor, counts_BK: Tensor, reduction: Literal["mean", "sum"]
) -> Tensor:
    """Binary cross-entropy on the candidates that count: the mean over all, or the sum of a text's, mean over texts.

    Formula: b = y softplus(-s) + (1 - y) softplus(s).

    >>> scores, every = torch.tensor([[2.0, 0.0]]), torch.tensor([[True, True]])
    >>> candidate_bce(scores, torch.tensor([[0.5, 0.0]]), every, "mean")
    tensor(0.9100)
    """
    each_BK = targets_BK * softplus(-scores_BK) + (1 - targets_BK) * softplus(scores_BK)
    total = torch.where(counts_BK, each_BK, 0).sum()
    return total / (counts_BK.sum().clamp(min=1) if reduction == "mean" else max(1, len(scores_BK)))


def values_at(matrix: sparse.csr_array, rows: Ids, ids_BK: Tensor) -> Tensor:
    """What a sparse matrix holds at some rows, and columns of each of them; 0 where there is nothing, or for -1.

    >>> values_at(sparse.csr_array(np.array([[0, 3], [5, 0]])), np.array([1, 0]), torch.tensor([[0, -1], [1, 0]]))
    tensor([[5., 0.],
            [3., 0.]])
    """
    taken, num_columns = matrix[rows], matrix.shape[1]
    taken.sort_indices()
    owners = np.repeat(np.arange(len(rows), dtype=np.int64), np.diff(taken.indptr))
    keys_M = torch.from_numpy(owners * num_columns + taken.indices).to(ids_BK.device)
    values_M = torch.from_numpy(taken.data.astype(np.float32)).to(ids_BK.device)
    if len(rows) * num_columns <= _WHOLE_UP_TO:
        whole = torch.zeros(len(rows) * num_columns, device=ids_BK.device)
        whole[keys_M] = values_M
        return whole.view(len(rows), num_columns).gather(1, ids_BK.clamp(min=0)).masked_fill_(ids_BK < 0, 0)
    if len(keys_M) == 0:
        return torch.zeros(ids_BK.shape, device=ids_BK.device)
    wanted_BK = torch.arange(len(rows), device=ids_BK.device)[:, None] * num_columns + ids_BK.clamp(min=0)
    places_BK = torch.searchsorted(keys_M, wanted_BK).clamp(max=len(keys_M) - 1)
    return torch.where((keys_M[places_BK] == wanted_BK) & (ids_BK >= 0), values_M[places_BK], 0)


def _scores(texts_BD: Tensor, table: RowTable, ids_BK: Tensor, touched: list[Touched]) -> Tensor:
    ids_U, places_BK = _distinct(ids_BK, table.num_rows)
    rows_UD = table.gather(ids_U)
    touched.append(Touched(table, ids_U, rows_UD))
    return candidate_scores(texts_BD, rows_UD, places_BK)


def _distinct(ids_BK: Tensor, num_rows: int) -> tuple[Tensor, Tensor]:
    """The ids that any text has, ascending, and where each candidate stands among them; some place for -1."""
    # A mark for every row costs less than to sort all candidates.
    marks = torch.zeros(num_rows + 1, dtype=torch.bool, device=ids_BK.device)
    marks[ids_BK.flatten()] = True
    marks[-1] = False  # where -1 has made its mark
    ids_U = marks.nonzero().squeeze(1)
    places = torch.zeros(num_rows + 1, dtype=torch.int64, device=ids_BK.device)
    places[ids_U] = torch.arange(len(ids_U), device=ids_BK.device)
    return ids_U, places[ids_BK]
