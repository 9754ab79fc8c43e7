"""Search by a label tree: clusters first, then the labels of the best of them. Scores are products of probabilities.

A text is [its vector for labels | for clusters of level 0 | of level 1 | ...]. With s the score of a cluster or a
label, an inner product times a scale, and p its parent::

    level 0: sigmoid(s),   below and for labels: sigmoid(s) sigmoid(s_p)

On each level the best clusters by that value are kept (the beam), and only their children are scored. With a beam of
all clusters every label is.

Shapes: B texts, L labels, D dimensions, C clusters of a level, K candidates of a text, M children of a cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unidex.errors import ModelError
from unidex.index.base import Index
from unidex.index.best_places import WIDTH_MULTIPLE
from unidex.index.checks import Vectors, check_ids, check_vectors
from unidex.index.exact import as_rows
from unidex.index.stored_rows import read_rows, write_rows
from unidex.index.tensor_search import as_tensor
from unidex.nn.candidate_scores import NUMBERS_AT_ONCE, candidate_scores, is_dense
from unidex.nn.label_tree import LabelTree
from unidex.storage.mapped import load_array
from unidex.topk import PADDING, TopK


class TreeIndex(Index):
    """Label vectors under a tree of clusters; a search finds the best among the labels that a text's beam leads to.

    Clusters without a label that may be returned are passed over. Where a beam has too few of them, the text is
    searched with a beam of all clusters, so that places stay empty only for want of labels.

    >>> tree = LabelTree((np.array([0, 0, 1]),), (0,))
    >>> labels, clusters = np.array([[1.0], [2.0], [9.0]]), [torch.tensor([[3.0], [-3.0]])]
    >>> index = TreeIndex.build(labels, tree=tree, clusters=clusters, beam=[1])
    >>> index.search(np.array([[1.0, 1.0]]), k=2).ids.tolist()
    [[1, 0]]
    """

    kind = "tree"

    def __init__(
        self, vectors_LD: Tensor, tree: LabelTree, clusters: Sequence[Tensor], beam: Sequence[int], scale: float
    ) -> None:
        super().__init__()
        self.tree, self.clusters, self.beam, self.scale = tree, list(clusters), list(beam), scale
        self.label_scale = scale
        self._vectors = vectors_LD
        self._children = [torch.from_numpy(children).to(vectors_LD.device) for children in tree.children]

    @classmethod
    def build(  # type: ignore[override]
        cls,
        vectors_LD: Vectors,
        *,
        tree: LabelTree,
        clusters: Sequence[Tensor],
        beam: Sequence[int],
        scale: float = 1.0,
    ) -> Self:
        """An index over these label vectors.

        Each level has one vector per cluster in ``clusters``, and in ``beam`` the number of clusters that a text keeps.
        Inner products are multiplied by ``scale`` before they become probabilities.
        """
        check_vectors(vectors_LD, "label vectors")
        if len(vectors_LD) != tree.num_labels:
            raise ValueError(f"a tree of {tree.num_labels} labels must have as many vectors, but has {len(vectors_LD)}")
        return cls(as_tensor(vectors_LD), tree, clusters, beam, scale)

    @classmethod
    def _read(cls, folder: Path, manifest: dict[str, Any]) -> Self:
        settings, num_ids = manifest["settings"], manifest["num_ids"]
        try:
            levels, beam, scale = tuple(settings["levels"]), list(settings["beam"]), float(settings["scale"])
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(f"{folder}: the manifest must name the tree's settings, but: {error!r}") from None
        clusters = [
            torch.from_numpy(load_array(folder / f"clusters_{level}.npy", (None, None))) for level in range(len(levels))
        ]
        below = [*(len(part) for part in clusters[1:]), num_ids]
        parents = [load_array(folder / f"parents_{level}.npy", (count,)) for level, count in enumerate(below)]
        for level, (part, above) in enumerate(zip(parents, clusters, strict=True)):
            check_ids(part, len(above), f"{folder}: clusters of level {level}")
        tree = LabelTree(tuple(parents), levels)
        if tree.num_clusters != tuple(len(part) for part in clusters):
            raise ModelError(f"{folder}: a tree must have one vector per cluster, but has not; build it again")
        vectors = read_rows(folder, (num_ids, manifest["dim"]))
        return cls(as_tensor(vectors), tree, clusters, beam, scale)

    def _about(self) -> dict[str, Any]:
        return {"settings": {"levels": list(self.tree.levels), "beam": self.beam, "scale": self.scale}}

    def _write(self, folder: Path) -> None:
        write_rows(folder, (self.num_ids, self.dim), [as_rows(self._vectors)])
        for level, (parents, clusters) in enumerate(zip(self.tree.parents, self.clusters, strict=True)):
            np.save(folder / f"parents_{level}.npy", parents)
            np.save(folder / f"clusters_{level}.npy", clusters.cpu().numpy())

    @property
    def num_ids(self) -> int:
        """One per label vector."""
        return len(self._vectors)

    @property
    def dim(self) -> int:
        """Numbers per label vector."""
        return self._vectors.shape[1]

    @property
    def query_dim(self) -> int:
        """Numbers for labels, and for each level."""
        return self.dim + sum(part.shape[1] for part in self.clusters)

    def vectors(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """The vectors of labels, one per row."""
        return self._vectors[torch.from_numpy(ids)].cpu().numpy()

    @torch.no_grad()
    def _search(self, queries_BD: Vectors, k: int, hidden: NDArray[np.bool_] | None, num_visible: int) -> TopK:
        queries = as_tensor(queries_BD).to(self._vectors.device)
        best = self._search_beam(queries, k, hidden, self.beam)
        short = np.flatnonzero(np.count_nonzero(best.ids >= 0, axis=1) < min(k, num_visible))
        if short.size:
            every = self._search_beam(queries[torch.from_numpy(short)], k, hidden, self.tree.num_clusters)
            best.ids[short], best.scores[short] = every.ids, every.scores
        return best

    @torch.no_grad()
    def scores(self, queries_BD: Vectors, ids_BK: NDArray[np.int64]) -> NDArray[np.float32]:
        """The scores of given labels, B x K, also of labels that the beam does not lead to."""
        of_labels, *of_levels = self._split(as_tensor(queries_BD).to(self._vectors.device))
        labels_BK = torch.from_numpy(ids_BK).to(self._vectors.device)
        parents_BK = torch.from_numpy(self.tree.parents[-1][ids_BK]).to(labels_BK.device)
        own_BK = torch.sigmoid(candidate_scores(of_labels, self._vectors, labels_BK) * self.scale)
        above_BK = torch.sigmoid(candidate_scores(of_levels[-1], self.clusters[-1], parents_BK) * self.scale)
        return (own_BK * above_BK).cpu().numpy()

    def _append(self, vectors: Vectors) -> None:
        """Each label goes to the cluster whose labels' mean direction is nearest."""
        new = as_tensor(vectors).to(self._vectors.device)
        unit = torch.nn.functional.normalize
        last = torch.from_numpy(self.tree.parents[-1]).to(new.device)
        centres = new.new_zeros(len(self.clusters[-1]), self.dim).index_add_(0, last, unit(self._vectors, dim=1))
        chosen = (new @ unit(centres, dim=1).T).argmax(dim=1).cpu().numpy()
        *above, labels = self.tree.parents
        self.tree = LabelTree((*above, np.concatenate([labels, chosen])), self.tree.levels)
        self._children[-1] = torch.from_numpy(self.tree.children[-1]).to(new.device)
        self._vectors = torch.cat([self._vectors, new])

    def _move(self, ids: NDArray[np.int64], vectors: Vectors) -> None:
        """Labels stay in their clusters."""
        chosen = torch.from_numpy(ids).to(self._vectors.device)
        # A copy: the vectors that ``build`` was given, or a saved file, stay as they are.
        self._vectors = self._vectors.index_copy(0, chosen, as_tensor(vectors).to(self._vectors.device))

    def _search_beam(self, queries_BD: Tensor, k: int, hidden: NDArray[np.bool_] | None, beam: Sequence[int]) -> TopK:
        dead = None if hidden is None else [torch.from_numpy(part).to(queries_BD.device) for part in self._dead(hidden)]
        at_once = max(1, NUMBERS_AT_ONCE // self._numbers_per_text(beam))
        blocks = [
            self._search_block(queries_BD[start : start + at_once], k, dead, beam)
            for start in range(0, max(1, len(queries_BD)), at_once)
        ]
        return TopK.concatenate(blocks)

    def _search_block(self, queries_BD: Tensor, k: int, dead: list[Tensor] | None, beam: Sequence[int]) -> TopK:
        of_labels, *of_levels = self._split(queries_BD)
        num_texts = len(queries_BD)
        ids_BK = torch.arange(len(self.clusters[0]), device=queries_BD.device).expand(num_texts, -1)
        above_BK: Tensor | None = None
        for level, (read, table) in enumerate(zip(of_levels, self.clusters, strict=True)):
            own_BK, value_BK = self._valued(read, table, ids_BK, above_BK, None if dead is None else dead[level])
            width = min(beam[level], ids_BK.shape[1])
            if width < ids_BK.shape[1]:
                value_BK, kept_BK = value_BK.topk(width, dim=1, sorted=False)
                ids_BK, own_BK = ids_BK.gather(1, kept_BK), own_BK.gather(1, kept_BK)
            ids_BK = ids_BK.where(value_BK >= 0, PADDING)
            ids_BK, above_BK = child_candidates(ids_BK, own_BK, self._children[level])
        _, value_BK = self._valued(of_labels, self._vectors, ids_BK, above_BK, None if dead is None else dead[-1])
        found, scores = ids_BK.cpu().numpy(), value_BK.cpu().numpy()
        return TopK.rank(np.where(scores < 0, PADDING, found), scores, k)

    def _split(self, queries_BD: Tensor) -> tuple[Tensor, ...]:
        """The columns of queries for labels, and those for each level."""
        widths = [self.dim, *(part.shape[1] for part in self.clusters)]
        return queries_BD.split(widths, dim=1)  # type: ignore[no-untyped-call,no-any-return]

    def _valued(
        self, texts_BD: Tensor, table: Tensor, ids_BK: Tensor, above_BK: Tensor | None, dead: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The probabilities of candidates, and their values: times the parent's, and -1 where there is none."""
        places_BK = ids_BK.clamp(min=0)
        if is_dense(ids_BK.shape[1], len(table)):
            scores_BK = _all_scores(texts_BD, table).gather(1, places_BK)
        else:
            scores_BK = candidate_scores(texts_BD, table, places_BK)
        own_BK = torch.sigmoid(scores_BK * self.scale)
        value_BK = own_BK if above_BK is None else own_BK * above_BK
        none_BK = ids_BK < 0 if dead is None else (ids_BK < 0) | dead[places_BK]
        return own_BK, value_BK.masked_fill(none_BK, -1.0)

    def _dead(self, hidden: NDArray[np.bool_]) -> list[NDArray[np.bool_]]:
        """Of each level, which clusters have no label that may be returned; behind them, which labels may not."""
        found = [hidden]
        for parents, count in zip(reversed(self.tree.parents), reversed(self.tree.num_clusters), strict=True):
            found.insert(0, np.bincount(parents[~found[0]], minlength=count) == 0)
        return found

    def _numbers_per_text(self, beam: Sequence[int]) -> int:
        """The maximum of numbers in memory per text during a search."""
        width, maximum = len(self.clusters[0]), 1
        tables = [*self.clusters, self._vectors]
        for level, table in enumerate(tables):
            maximum = max(maximum, len(table) if is_dense(width, len(table)) else width * table.shape[1])
            if level < len(self._children):
                width = min(beam[level], width) * self._children[level].shape[1]
        return maximum


def child_candidates(ids_BK: Tensor, own_BK: Tensor, children_CM: Tensor) -> tuple[Tensor, Tensor]:
    """The children of clusters, B x K M, and the value of the cluster beside each child; -1 where there is none.

    >>> ids, values, children = torch.tensor([[1, -1]]), torch.tensor([[0.5, 0.1]]), torch.tensor([[0, 1], [2, -1]])
    >>> child_candidates(ids, values, children)[0].tolist()
    [[2, -1, -1, -1]]
    """
    children_BKM = children_CM[ids_BK.clamp(min=0)].masked_fill(ids_BK[..., None] < 0, PADDING)
    return children_BKM.flatten(1), own_BK[..., None].expand_as(children_BKM).flatten(1)


def _all_scores(texts_BD: Tensor, table_CD: Tensor) -> Tensor:
    whole = len(table_CD) // WIDTH_MULTIPLE * WIDTH_MULTIPLE
    rest = torch.nn.functional.pad(table_CD[whole:], (0, 0, 0, WIDTH_MULTIPLE - (len(table_CD) - whole)))
    return torch.cat([texts_BD @ table_CD[:whole].T, (texts_BD @ rest.T)[:, : len(table_CD) - whole]], dim=1)
