"""Searching a trained network: texts in, their best labels out, and how likely each is right.

Shapes: N texts, K places, L labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from unidex import index as indexes
from unidex.config import Config
from unidex.errors import DataError, ModelError, quoted
from unidex.index.base import hidden_labels
from unidex.model.label_set import LabelSet
from unidex.nn.network import Network
from unidex.scoring.calibration import Calibration
from unidex.scoring.decision_tree import CANDIDATES, Fusing
from unidex.scoring.knn import Neighbours
from unidex.scoring.knn_join import join_scores
from unidex.topk import TopK

Mode = Literal["both", "dual", "classifier"]
BLOCK = 1024


class Searcher:
    """A network, its labels and the index over them; perhaps also the train texts, as neighbours of new ones."""

    def __init__(
        self,
        config: Config,
        network: Network,
        labels: LabelSet,
        index: indexes.Index,
        neighbours: Neighbours | None = None,
    ) -> None:
        self.config, self.network, self.labels, self.index = config, network, labels, index
        self.neighbours = neighbours
        self.calibration: Calibration | None = None  # how likely a predicted label is right
        self.fusing: Fusing | None = None  # how the scores of both heads become one, where that is not their sum
        self.network.eval()

    def encode(self, texts: Sequence[str], mode: Mode | None = None) -> NDArray[np.float32]:
        """The vectors of texts as they are searched: dual and classifier side by side, 0 for a head left out."""
        mode = mode or self.config.predict.mode
        if isinstance(texts, str):
            raise DataError("texts must be a list of texts, but is one text; write [text]")
        vectors = self.network.text_vectors(self.network.encoder.prepare(texts))
        if mode != "both" and getattr(vectors, mode) is None:
            raise DataError(f"mode must be one of the model's heads, but it was trained without {quoted(mode)}")
        if mode != "both":
            other = "classifier" if mode == "dual" else "dual"
            rest = getattr(vectors, other)
            vectors = replace(vectors, **{other: None if rest is None else torch.zeros_like(rest)})
        joined: NDArray[np.float32] = vectors.joined().cpu().numpy()
        if self.config.predict.label_prior != 0:
            # The number beside a label's vectors counts once in a score of both heads.
            counted = np.full((len(joined), 1), 1.0 if mode == "both" else 0.0, dtype=np.float32)
            joined = np.concatenate([joined, counted], axis=1)
        return joined

    def predict(
        self,
        texts: Sequence[str],
        k: int = 5,
        *,
        mode: Mode | None = None,
        allowed: ArrayLike | None = None,
        forbidden: ArrayLike | None = None,
    ) -> TopK:
        """The k best labels of each text."""
        if k < 1:
            raise DataError(f"k must be at least 1, but is {k}")
        search = partial(self._search, k=k, mode=mode or self.config.predict.mode, allowed=allowed, forbidden=forbidden)
        parts = [search(texts[start : start + BLOCK]) for start in range(0, len(texts), BLOCK)]
        if not parts:
            return TopK(np.empty((0, k), dtype=np.int64), np.empty((0, k), dtype=np.float32))
        if len(parts) == 1:
            return parts[0]
        return TopK.concatenate(parts)

    def probabilities(self, topk: TopK, mode: Mode | None = None) -> NDArray[np.float32] | None:
        """How likely each predicted label is right, N x K, 0 for none; None without a calibration for the mode.

        Args:
            topk: what ``predict`` gave.
            mode: the mode it was predicted with; the recipe's unless given.
        """
        if self.calibration is None or self.calibration.mode != (mode or self.config.predict.mode):
            return None
        return self.calibration.probabilities(topk, self.labels.frequencies)

    def min_probability(self, asked: str | float, mode: Mode | None = None) -> float:
        """A least probability by number, or by name of one of the model's thresholds, such as "best-f1"."""
        mode = mode or self.config.predict.mode
        if self.calibration is None:
            raise ModelError(
                "a least probability needs a model with a calibration, but this one has none; make one on texts that "
                "it was not trained on: unidex calibrate MODEL DATA"
            )
        if self.calibration.mode != mode:
            raise ModelError(
                f"a least probability needs the mode that probabilities were fitted for, {self.calibration.mode}, but "
                f"the mode is {mode}; leave one of the two out"
            )
        return self.calibration.min_probability(asked)

    def _search(
        self, texts: Sequence[str], *, k: int, mode: Mode, allowed: ArrayLike | None, forbidden: ArrayLike | None
    ) -> TopK:
        queries = self.encode(texts, mode)
        said = self.neighbour_scores(queries, mode, allowed=allowed, forbidden=forbidden)
        return self.search(queries, said, k, mode=mode, allowed=allowed, forbidden=forbidden)

    def neighbour_scores(
        self,
        queries: NDArray[np.float32],
        mode: Mode,
        *,
        allowed: ArrayLike | None = None,
        forbidden: ArrayLike | None = None,
    ) -> sparse.csr_array | None:
        """What the nearest train texts say of labels, before it is weighed; None where they do not count."""
        if self.neighbours is None or mode != "both" or self.config.predict.knn == 0:
            return None
        removed = np.flatnonzero(self.labels.removed)
        hidden_L = hidden_labels(len(self.labels), removed, allowed, forbidden)
        return self.neighbours.label_scores(queries[:, : self.neighbours.dim], hidden_L=hidden_L)

    def search(
        self,
        queries: NDArray[np.float32],
        said: sparse.csr_array | None,
        k: int,
        *,
        mode: Mode = "both",
        allowed: ArrayLike | None = None,
        forbidden: ArrayLike | None = None,
    ) -> TopK:
        """The k best labels of texts as ``encode`` gives them in a mode, with what neighbours say of them."""
        if self.fusing is not None and mode == "both":
            candidates = self.index.search(queries, max(k, CANDIDATES), allowed=allowed, forbidden=forbidden)
            return self._fused(queries, candidates.ids).first(k)
        found = self.index.search(queries, k, allowed=allowed, forbidden=forbidden)
        if said is None:
            return found

        def score_of(of_texts: NDArray[np.int64], of_labels: NDArray[np.int64]) -> NDArray[np.float32]:
            scores: NDArray[np.float32] = np.einsum("nd,nd->n", queries[of_texts], self.index.vectors(of_labels))
            return scores

        # A label that neighbours lift above the k best is asked for. The last place bounds what the index has left out;
        # an index that is not exact may err there, seldom and by little.
        return join_scores(found, said, self.config.predict.knn, score_of, k=k, found_is_best=True)

    def _fused(self, queries: NDArray[np.float32], ids_NK: NDArray[np.int64]) -> TopK:
        """Candidates ranked by what a tree makes of both heads' scores."""
        assert self.fusing is not None
        assert self.network.classifiers is not None
        middle, fusion = self.index.dim - self.network.classifiers.dim, self.config.predict.fusion
        classifier_NK, dual_NK = np.zeros(ids_NK.shape, dtype=np.float32), np.zeros(ids_NK.shape, dtype=np.float32)
        for row, ids in enumerate(ids_NK):
            # Label vectors are searched with the weights of the sum.
            vectors = self.index.vectors(np.maximum(ids, 0))
            classifier_NK[row] = vectors[:, middle:] @ queries[row, middle:] / (1 - fusion)
            dual_NK[row] = vectors[:, :middle] @ queries[row, :middle] / fusion
        return self.fusing.ranked(ids_NK, classifier_NK, dual_NK, self.labels.frequencies)
