"""The trained model: encode, predict, add and remove labels, save, load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from torch import Tensor, nn

from unidex import index as indexes
from unidex import model_folder, progress
from unidex.config import Config
from unidex.data.texts import Texts
from unidex.errors import DataError, ModelError, listed, quoted
from unidex.index.base import hidden_labels
from unidex.model_folder import LabelSet
from unidex.neighbours import Neighbours, join_scores
from unidex.network import Network, Vectors
from unidex.topk import TopK
from unidex.weighing import EVEN

Mode = Literal["both", "dual", "classifier"]
# A new label has no classifier of its own: it takes the mean of those of so many labels whose texts are nearest.
_NEIGHBOURS = 5
_BLOCK = 1024


class Model:
    """A network, its labels and the index over them; perhaps also the train texts, as neighbours of new ones."""

    def __init__(
        self,
        config: Config,
        network: Network,
        labels: LabelSet,
        index: indexes.Index,
        metrics: dict[str, Any],
        neighbours: Neighbours | None = None,
    ) -> None:
        self.config, self.network, self.labels, self.index, self.metrics = config, network, labels, index, metrics
        self.neighbours = neighbours
        self.log = ""  # train.jsonl: what training has said, a JSON object a line
        self.network.eval()

    @classmethod
    def build(
        cls,
        config: Config,
        network: Network,
        labels: LabelSet,
        prepared_labels: Any,
        metrics: dict[str, Any] | None = None,
        train: tuple[Any, sparse.csr_array] | None = None,
    ) -> Model:
        """A model from a trained network; ``train`` is prepared texts and their positives, where neighbours count."""
        network.eval()
        predict = config.predict
        vectors = network.label_vectors(prepared_labels).joined(predict.fusion, _bonus(predict.prior, labels))
        index = indexes.build(predict.index, vectors.cpu().numpy())
        neighbours = None
        if train is not None and predict.neighbours > 0:
            neighbours = Neighbours.of(
                network.text_vectors(train[0]).joined(EVEN).cpu().numpy(),
                train[1],
                num_neighbours=predict.num_neighbours,
                temperature=predict.neighbours_temperature,
            )
        return cls(config, network, labels, index, metrics or {}, neighbours)

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
        if self.config.predict.prior != 0:
            # The number beside a label's vectors counts once in a score of both heads.
            joined = np.pad(joined, ((0, 0), (0, 1)), constant_values=1.0 if mode == "both" else 0.0)
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
        parts = [search(texts[start : start + _BLOCK]) for start in range(0, len(texts), _BLOCK)]
        if not parts:
            return TopK(np.empty((0, k), dtype=np.int64), np.empty((0, k), dtype=np.float32))
        return TopK(np.concatenate([part.ids for part in parts]), np.concatenate([part.scores for part in parts]))

    def _search(
        self, texts: Sequence[str], *, k: int, mode: Mode, allowed: ArrayLike | None, forbidden: ArrayLike | None
    ) -> TopK:
        queries = self.encode(texts, mode)
        if self.neighbours is None or mode != "both":
            return self.index.search(queries, k, allowed=allowed, forbidden=forbidden)
        found = self.index.search(queries, k, allowed=allowed, forbidden=forbidden)
        removed = np.flatnonzero(self.labels.removed)
        said = self.neighbours.label_scores(
            queries[:, : self.neighbours.dim],
            hidden_L=hidden_labels(len(self.labels), removed, allowed, forbidden),
        )

        def score_of(of_texts: NDArray[np.int64], of_labels: NDArray[np.int64]) -> NDArray[np.float32]:
            scores: NDArray[np.float32] = np.einsum("nd,nd->n", queries[of_texts], self.index.vectors(of_labels))
            return scores

        # A label that neighbours lift above the k best is asked for. The last place bounds what the index has left out;
        # an index that is not exact may err there, seldom and by little.
        return join_scores(found, said, self.config.predict.neighbours, score_of, k=k, found_is_best=True)

    def remember(self, texts: Sequence[str], positives: sparse.csr_array) -> None:
        """Take texts with their labels among the neighbours: what they say counts at once, without training.

        Args:
            texts: new texts.
            positives: texts x labels, as many columns as the model has labels.
        """
        if self.neighbours is None:
            raise ModelError(
                "texts can only be remembered by a model with neighbours, but this one has none; train it with "
                "--set predict.neighbours=0.1 --set predict.choose_neighbours=false"
            )
        if positives.shape != (len(texts), len(self.labels)):
            raise DataError(
                f"positives must be {len(texts)} texts x {len(self.labels)} labels, but are "
                f"{positives.shape[0]} x {positives.shape[1]}"
            )
        parts = [np.empty((0, self.neighbours.dim), dtype=np.float32)]
        with progress.task("encoding", len(texts), unit="texts") as advance:
            for start in range(0, len(texts), _BLOCK):
                prepared = self.network.encoder.prepare(texts[start : start + _BLOCK])
                parts.append(self.network.text_vectors(prepared).joined(EVEN).cpu().numpy())
                advance(len(parts[-1]))
        # All at once: they may be so many that lists of texts are made, and those are chosen by all of them.
        self.neighbours.add(np.concatenate(parts), positives)

    def add_labels(self, texts: Sequence[str], uids: Sequence[str] | None = None) -> NDArray[np.int64]:
        """Add labels without training; the result is their ids.

        The dual encoder knows a label by its text. Its classifier begins as the mean of those of the labels whose texts
        are nearest, so that both heads can score it.
        """
        texts = list(texts)
        new_uids = list(texts if uids is None else uids)
        if len(new_uids) != len(texts):
            raise DataError(
                f"there must be one uid a label, but there are {len(texts)} labels and {len(new_uids)} uids"
            )
        known = set(self.labels.uids)
        again = [uid for number, uid in enumerate(new_uids) if uid in known or uid in new_uids[:number]]
        if again:
            raise DataError(f"uids of labels must differ, but there is already {listed(again)}")
        if self.network.dual is None:
            raise ModelError(
                "labels can only be added to a model with a dual encoder, but this one has a classifier alone"
            )
        if not texts:
            return np.empty(0, dtype=np.int64)
        prepared = self.network.encoder.prepare(texts)
        dual = self.network.text_vectors(prepared).dual
        assert dual is not None
        classifier = None
        if self.network.classifiers is not None and self.network.classifier is not None:
            rows = self._classifiers_near(texts)
            self.network.classifiers.grow(rows)
            classifier = self.network.classifier.as_searched(rows)
        count = len(texts)
        bonus = torch.zeros(count, device=dual.device) if self.config.predict.prior != 0 else None
        ids = self.index.add(Vectors(dual, classifier).joined(self.config.predict.fusion, bonus).cpu().numpy())
        self.labels = LabelSet(
            self.labels.texts + texts,
            self.labels.uids + new_uids,
            np.concatenate([self.labels.frequencies, np.zeros(count, dtype=np.int64)]),
            np.concatenate([self.labels.removed, np.zeros(count, dtype=bool)]),
        )
        if self.neighbours is not None:
            self.neighbours.grow(len(self.labels))
        return ids

    def _classifiers_near(self, texts: Sequence[str]) -> Tensor:
        assert self.network.classifiers is not None
        near = self.index.search(self.encode(texts, "dual"), _NEIGHBOURS).ids
        found = torch.from_numpy(np.where(near < 0, near[:, :1], near)).to(self.network.device)
        unit = nn.functional.normalize(self.network.classifiers.weight[found], dim=2)
        return unit.mean(dim=1)

    def remove_labels(self, ids: Sequence[int]) -> None:
        """Never predict these labels again. The ids of the others do not change."""
        chosen = np.unique(np.asarray(ids, dtype=np.int64))
        wrong = [int(label) for label in chosen if not 0 <= label < len(self.labels) or self.labels.removed[label]]
        if wrong:
            raise DataError(f"labels to remove must be among the model's, but it does not have {listed(wrong)}")
        self.index.remove(chosen)
        removed = self.labels.removed.copy()
        removed[chosen] = True
        self.labels = replace(self.labels, removed=removed)

    def save(self, folder: str | Path) -> None:
        """Write the model folder: complete, or not at all."""
        contents = model_folder.Contents(
            self.config, self.network, self.labels, self.index, self.neighbours, self.metrics, self.log
        )
        model_folder.save(Path(folder), contents)

    @classmethod
    def load(cls, folder: str | Path, device: str = "cpu") -> Model:
        """Read a model folder; every file is checked against the manifest first."""
        found = model_folder.load(Path(folder), device)
        model = cls(found.config, found.network, found.labels, found.index, found.metrics, found.neighbours)
        model.log = found.log
        return model


def _bonus(prior: float, labels: LabelSet) -> Tensor | None:
    """What a label's score gets for its frequency: prior ln(1 + n); 0 for one that was added."""
    return None if prior == 0 else torch.from_numpy((prior * np.log1p(labels.frequencies)).astype(np.float32))


def label_set(texts: Texts, uids: Texts | None, frequencies: NDArray[np.int64]) -> LabelSet:
    """The labels of a data set as those of a model; a label without a uid is named by its number."""
    names = [str(number) for number in range(len(texts))] if uids is None else list(uids)
    return LabelSet(list(texts), names, frequencies, np.zeros(len(texts), dtype=bool))
