"""Candidates of each text's own: the labels that its beam in a label tree leads to.

Level 0 scores all clusters. A text's true clusters and the best others, as many as the beam is wide, are opened, and
their children are the candidates of the next level; the labels of the last level's beam are the candidates of the
text. Clusters have a binary cross-entropy over the candidates of their level, labels the loss of the recipe::

    loss = loss(labels) + weight * sum over levels of BCE(clusters)

The target of a cluster is the sum of those of its labels, at most 1. A filter pair does not count, nor does a cluster
that a text has a filter pair in and no positive.

On several processes, each follows the beams of its own texts. Cluster vectors are the same on each; classifiers of all
candidates come from the processes that have them, and their gradients go back there.

Shapes: B texts of this process, K candidates per text, C clusters of a level, U rows of a step, D dimensions, W width
of the beam.

References: InceptionXML (arXiv 2109.07319), section 4; CascadeXML (arXiv 2211.00640), section 3.
"""

from __future__ import annotations

import torch
from torch import Tensor

from unidex.config import Loss as LossSettings
from unidex.config.tree import at_level
from unidex.distributed import ALONE, Processes
from unidex.index.tree import child_candidates
from unidex.losses import HeadLoss, Targets
from unidex.nn.candidate_scores import candidate_scores
from unidex.nn.row_table import Touched
from unidex.topk import PADDING
from unidex.training.backward_pass import backward
from unidex.training.batch_vectors import BatchVectors
from unidex.training.own_candidates import loss_of_candidates, same_width
from unidex.training.shared_pool import CLASSIFIER, head_loss
from unidex.training.towers import Towers

# Numbers of a batch's targets that are laid out as a whole, which is quicker than to look each candidate up.
_WHOLE_UP_TO = 1 << 24


class Beam:
    """The losses of clusters and labels over the candidates of each text.

    ``processes`` share the texts and the classifiers.
    """

    def __init__(self, towers: Towers, processes: Processes) -> None:
        network, config = towers.network, towers.config
        assert network.tree is not None
        self.towers, self.processes, self.tree = towers, processes, network.tree
        shape = network.tree.shape
        self._children = [torch.from_numpy(children).to(network.device) for children in shape.children]
        self._clusters_of_labels = [torch.from_numpy(part).to(network.device) for part in shape.clusters_of_labels()]
        self._label_loss = head_loss(config, CLASSIFIER, one_way=True)
        self._cluster_loss = HeadLoss.of("bce", LossSettings(bce_reduction=config.loss.bce_reduction))

    def __call__(
        self, vectors: BatchVectors, scales: Tensor, seed: int, touched: list[Touched]
    ) -> tuple[Tensor, list[Tensor], Tensor]:
        """The value over the texts of all processes, the gradients of this process's texts and of the scales."""
        settings, device = self.towers.config.tree, self.towers.network.device
        targets = vectors.targets.to(device)
        scale = scales[CLASSIFIER].detach().requires_grad_(scales.requires_grad)
        leaves = [part.detach().requires_grad_() for part in vectors.texts]
        of_levels = leaves[self.towers.has_classifier :]
        value = torch.zeros((), device=device)
        own = self.processes.part(targets.shape[0])
        num_texts = own.stop - own.start
        ids_BK = torch.arange(self.tree.tables[0].num_rows, device=device).expand(num_texts, -1)
        above_BK: Tensor | None = None
        for level, (read, table) in enumerate(zip(of_levels, self.tree.tables, strict=True)):
            in_clusters = targets_of_clusters(targets, self._clusters_of_labels[level], table.num_rows)
            asked, true_BK = candidate_targets(in_clusters, own.start, ids_BK)
            if self.tree.learns:
                ids_U, places_BK = _distinct(ids_BK, table.num_rows)
                rows_UD = table.gather(ids_U)
                touched.append(Touched(table, ids_U, rows_UD))
                scores_BK = candidate_scores(read * scale, rows_UD, places_BK)
            else:
                with torch.no_grad():
                    scores_BK = candidate_scores(read * scale, table.weight, ids_BK.clamp(min=0))
            chances_BK = torch.sigmoid(scores_BK.detach())
            if self.tree.learns:
                loss = self._backward(scores_BK, asked, self._cluster_loss, seed, settings.weight)
                value = value + settings.weight * loss
            worth_BK = chances_BK if above_BK is None else chances_BK * above_BK
            width = at_level(settings.beam, self.tree.shape.levels[level])
            ids_BW, chances_BW = kept_clusters(ids_BK, chances_BK, worth_BK, true_BK, width)
            ids_BK, above_BK = child_candidates(ids_BW, chances_BW, self._children[level])
            ids_BK, above_BK = same_width(ids_BK, self.processes), same_width(above_BK, self.processes, 0.0)
        if self.towers.has_classifier:
            asked, _ = candidate_targets(targets, own.start, ids_BK)
            value = value + self._labels(leaves[0] * scale, ids_BK, asked, seed, touched)
        of_scales = torch.zeros_like(scales)
        if scale.grad is not None:
            of_scales[CLASSIFIER] = scale.grad
        return value, [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in leaves], of_scales

    def _labels(self, texts_BD: Tensor, ids_BK: Tensor, asked: Targets, seed: int, touched: list[Touched]) -> Tensor:
        """The loss of labels on their candidates, whose classifiers may be on other processes."""
        num_labels = self.tree.shape.num_labels
        ids_U, places_BK = _distinct(ids_BK, num_labels, self.processes)
        shard = self.processes.shard(num_labels)
        held = slice(*torch.searchsorted(ids_U, torch.tensor([shard.start, shard.stop]).to(ids_U)).tolist())
        own_UD = self.towers.gather_classifiers(ids_U[held] - shard.start, touched)
        rows_UD = self.processes.gather(own_UD.detach()).requires_grad_()
        value = self._backward(candidate_scores(texts_BD, rows_UD, places_BK), asked, self._label_loss, seed)
        gradient_UD = torch.zeros_like(rows_UD) if rows_UD.grad is None else rows_UD.grad
        backward((own_UD,), (self.processes.sum_(gradient_UD)[held],))
        return value

    def _backward(self, scores_BK: Tensor, asked: Targets, loss: HeadLoss, seed: int, weight: float = 1.0) -> Tensor:
        """The value over all texts; the gradient of this process's scores goes back at once."""
        value, gradient_BK = loss_of_candidates(scores_BK.detach(), asked, loss, seed, self.processes)
        backward((scores_BK,), (gradient_BK if weight == 1 else gradient_BK * weight,))
        return value


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


def candidate_targets(targets: Targets, first: int, ids_BK: Tensor) -> tuple[Targets, Tensor]:
    """The pairs of texts and their own candidates, and where a candidate is positive.

    ``targets`` are the pairs of all texts of the batch; a pair named several times has the sum of its targets, at most
    1. The texts with candidates, -1 for none, start at place ``first`` of the batch.

    >>> targets = Targets.of([0, 1], [2, 0], ignored_rows=[1], ignored_columns=[1], shape=(2, 3))
    >>> found, _ = candidate_targets(targets, 1, torch.tensor([[1, 0, -1]]))
    >>> found.columns.tolist(), found.ignored_columns.tolist()
    ([1], [0, 2])
    """
    targets_BK = _values_at(targets.rows - first, targets.columns, targets.weights, targets.shape[1], ids_BK).clamp_(
        max=1
    )
    true_BK = targets_BK > 0
    passed_BK = ids_BK < 0
    if len(targets.ignored_rows):
        ones = torch.ones_like(targets.ignored_rows, dtype=targets.weights.dtype)
        filters_BK = _values_at(targets.ignored_rows - first, targets.ignored_columns, ones, targets.shape[1], ids_BK)
        passed_BK = passed_BK | ((filters_BK > 0) & ~true_BK)
    rows, columns = true_BK.nonzero(as_tuple=True)
    ignored_rows, ignored_columns = passed_BK.nonzero(as_tuple=True)
    weights, shape = targets_BK[rows, columns], (len(ids_BK), ids_BK.shape[1])
    return Targets(rows, columns, weights, ignored_rows, ignored_columns, shape), true_BK


def targets_of_clusters(targets: Targets, clusters_L: Tensor, num_clusters: int) -> Targets:
    """The pairs of texts and clusters; one of several labels of a text is named several times."""
    columns, ignored = clusters_L[targets.columns], clusters_L[targets.ignored_columns]
    shape = (targets.shape[0], num_clusters)
    return Targets(targets.rows, columns, targets.weights, targets.ignored_rows, ignored, shape)


def _values_at(rows_M: Tensor, columns_M: Tensor, values_M: Tensor, num_columns: int, ids_BK: Tensor) -> Tensor:
    """The sum of the values at each text's candidates; 0 where there is nothing, or for -1. Other rows are left out."""
    num_rows = len(ids_BK)
    is_here_M = (rows_M >= 0) & (rows_M < num_rows)
    if not bool(is_here_M.all()):
        rows_M, columns_M, values_M = rows_M[is_here_M], columns_M[is_here_M], values_M[is_here_M]
    keys_M = rows_M * num_columns + columns_M
    if num_rows * num_columns <= _WHOLE_UP_TO:
        whole = torch.zeros(num_rows * num_columns, device=ids_BK.device).index_add_(0, keys_M, values_M)
        return whole.view(num_rows, num_columns).gather(1, ids_BK.clamp(min=0)).masked_fill_(ids_BK < 0, 0)
    keys_M, places_M = torch.unique(keys_M, return_inverse=True)
    if len(keys_M) == 0:
        return torch.zeros(ids_BK.shape, device=ids_BK.device)
    sums_M = torch.zeros(len(keys_M), device=ids_BK.device).index_add_(0, places_M, values_M)
    wanted_BK = torch.arange(num_rows, device=ids_BK.device)[:, None] * num_columns + ids_BK.clamp(min=0)
    found_BK = torch.searchsorted(keys_M, wanted_BK).clamp(max=len(keys_M) - 1)
    return torch.where((keys_M[found_BK] == wanted_BK) & (ids_BK >= 0), sums_M[found_BK], 0)


def _distinct(ids_BK: Tensor, num_rows: int, processes: Processes = ALONE) -> tuple[Tensor, Tensor]:
    """The ids that any text of any process has, ascending, and where each candidate stands among them."""
    # A mark for every row costs less than to sort all candidates.
    marks = torch.zeros(num_rows + 1, dtype=torch.uint8, device=ids_BK.device)
    marks[ids_BK.flatten()] = 1
    marks[-1] = 0  # where -1 has made its mark
    ids_U = processes.max_(marks).nonzero().squeeze(1)
    places = torch.zeros(num_rows + 1, dtype=torch.int64, device=ids_BK.device)
    places[ids_U] = torch.arange(len(ids_U), device=ids_BK.device)
    return ids_U, places[ids_BK]
