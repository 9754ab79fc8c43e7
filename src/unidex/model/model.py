"""The trained model: it predicts labels of texts, its labels change, and it is saved and loaded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from unidex import progress
from unidex.config import Config
from unidex.data.given_texts import given_texts
from unidex.data.read_options import TableForm
from unidex.data.text_hashes import TextHashes
from unidex.errors import DataError, ModelError, UnidexError
from unidex.features.known_words import Shares
from unidex.model import folder as model_folder
from unidex.model.journal import Journal
from unidex.model.label_set import LabelSet
from unidex.model.model_changes import ModelChanges
from unidex.model.model_methods import ModelMethods
from unidex.nn.array_network import ArrayNetwork
from unidex.nn.vectors import Vectors
from unidex.scoring.knn import KnnPart
from unidex.scoring.layout import Layout, Mode, Weights
from unidex.scoring.queries import Queries
from unidex.scoring.scorer import Scorer
from unidex.scoring.snippets import Snippets
from unidex.storage.locks import locked
from unidex.topk import TopK

if TYPE_CHECKING:
    from unidex.nn.network import Network

BLOCK = 1024
_READINGS = 3


class Model(ModelMethods, ModelChanges):
    """A trained network, its labels and the scorer over them.

    Attributes:
        config: the recipe.
        vectoriser: from texts to vectors: the network by array operations where its encoder allows it, which needs no
            torch; else the network.
        scorer: ranks labels by the queries of texts.
        metrics: measured values and choices.
        log: train.jsonl, one JSON object per line.
        train_texts: hashes of the texts it was trained on; None for models that were made before they were kept.
        journal: of the folder that the model was loaded from; None for a model in memory.
    """

    def __init__(
        self,
        config: Config,
        network: Network | ArrayNetwork,
        labels: LabelSet,
        scorer: Scorer,
        metrics: dict[str, Any],
        log: str = "",
        train_texts: TextHashes | None = None,
    ) -> None:
        self.config: Config = config
        self.vectoriser: Network | ArrayNetwork = network
        self._network: Network | None = None
        self._is_network_old = False  # whether labels have changed since its classifiers were made
        if not isinstance(network, ArrayNetwork):
            network.eval()
            self.vectoriser = network.arrays(config.predict.precision) or network
            # Rounded vectors are those of the model: a network that has others is made anew when it is asked for.
            is_rounded = self.vectoriser is not network and config.predict.precision != "float32"
            self._network = None if is_rounded else network
        self.metrics, self.log, self.train_texts = metrics, log, train_texts
        self.scorer: Scorer = scorer
        # A copy: labels that are added here must not appear elsewhere.
        self.labels = replace(labels)
        self.journal: Journal | None = None

    @property
    def network(self) -> Network:
        """Encoders, heads and classifiers for torch.

        Of a loaded model it is built when it is asked for. Classifiers change in the index alone; those of the network
        are made from it when they have changed.
        """
        if self._network is None:
            from unidex.model.restored_network import restored_network

            assert isinstance(self.vectoriser, ArrayNetwork)
            self._network = restored_network(self.config, self.vectoriser, self.scorer)
        elif self._is_network_old:
            from unidex.model.restored_network import restore_classifiers

            restore_classifiers(self._network, self.scorer)
        self._is_network_old = False
        return self._network

    def replace_rows(self, ids: NDArray[np.int64], rows_UD: NDArray[np.float32]) -> None:
        """Give labels other rows in the index."""
        self.scorer.index.replace(ids, rows_UD)
        self._is_network_old = True

    @property
    def labels(self) -> LabelSet:
        """The labels; the scorer reads their frequencies and which are removed."""
        return self._labels

    @labels.setter
    def labels(self, labels: LabelSet) -> None:
        self._labels = self.scorer.labels = labels

    @property
    def version(self) -> str:
        """12 digits of the hash of the manifest that the model was loaded with; "" if it was not loaded."""
        return "" if self.journal is None else self.journal.version

    @property
    def table_form(self) -> TableForm:
        """How the training data was read, if from a table."""
        data = self.metrics.get("data", {})
        return TableForm(data.get("columns") or {}, data.get("separator"))

    @classmethod
    def build(
        cls,
        config: Config,
        network: Network,
        labels: LabelSet,
        prepared_labels: Any,
        metrics: dict[str, Any] | None = None,
        train: tuple[Any, sparse.csr_array] | None = None,
        train_texts: Sequence[str] | None = None,
        scratch: Path | None = None,
    ) -> Model:
        """A model from a trained network.

        ``train`` is the prepared training texts and their positives, for the kNN part; ``train_texts`` are the texts
        themselves, for snippets. A model with snippets has a kNN part even where that has weight 0. Large files of
        the build are in ``scratch``, a folder, where an interrupted build is continued.
        """
        from unidex.scoring.computed_rows import TextRows
        from unidex.scoring.label_index import build_index

        network.eval()
        predict = config.predict
        layout = Layout.of(network, Weights.of(predict), predict.precision)
        # Label texts and train texts get the vectors that texts will have: those of the stored precision.
        arrays = network.arrays(predict.precision)
        index = build_index(
            network, layout, prepared_labels, labels.frequencies, predict.index, scratch=scratch, arrays=arrays
        )
        knn = snippets = None
        if train_texts is not None and predict.snippet_length > 0:
            snippets = Snippets.of(train_texts, predict.snippet_length)
        if train is not None and (predict.knn > 0 or predict.rank == "learned" or snippets is not None):
            with TextRows(network, layout, train[0], arrays).stored(scratch) as text_vectors:
                knn = KnnPart.of(
                    text_vectors,
                    train[1],
                    num_nearest=predict.knn_texts,
                    temperature=predict.knn_temperature,
                    snippets=snippets,
                )
        # Rounded vectors are those of the model: the network that has others is not needed any more.
        kept = network if arrays is None or predict.precision == "float32" else arrays
        return cls(config, kept, labels, Scorer(layout, index, labels, knn), metrics or {})

    @property
    def encoder(self) -> Any:
        """What prepares texts, and knows their words if it has a vocabulary."""
        return self.vectoriser.encoder

    def vectors(self, texts: Sequence[str]) -> Vectors:
        """The vectors of texts by each head, as arrays."""
        return self.vectoriser.text_vectors(self._prepared(texts)).arrays()

    def _prepared(self, texts: Sequence[str]) -> Any:
        if isinstance(texts, str):
            raise DataError("texts must be a list of texts, but is one text; write [text]")
        return self.encoder.prepare(texts)

    def vector_blocks(self, texts: Sequence[str], what: str = "encoding") -> Iterator[Vectors]:
        """The vectors of many texts, block by block."""
        with progress.task(what, len(texts), unit="texts") as advance:
            for start in range(0, len(texts), BLOCK):
                block = texts[start : start + BLOCK]
                yield self.vectors(block)
                advance(len(block))

    def encode(self, texts: Sequence[str], mode: Mode | None = None) -> NDArray[np.float32]:
        """The queries of texts in a mode, as `unidex.scoring.layout` lays them out."""
        mode = mode or self.config.predict.mode
        queries: NDArray[np.float32] = self.scorer.layout.queries(self.vectors(texts), mode)
        return queries

    def queries(self, texts: Sequence[str], mode: Mode = "both") -> Queries:
        """Texts as the scorer reads them."""
        prepared = self._prepared(texts)
        return self.scorer.queries(self.vectoriser.text_vectors(prepared).arrays(), texts, mode, prepared)

    def topk(
        self,
        texts: Sequence[str],
        k: int = 5,
        *,
        mode: Mode | None = None,
        allowed: ArrayLike | None = None,
        forbidden: ArrayLike | None = None,
    ) -> TopK:
        """The k best labels of each text: ids and scores alone, for metrics; ``predict`` gives names."""
        if k < 1:
            raise DataError(f"k must be at least 1, but is {k}")
        texts = given_texts(texts)
        allowed, forbidden = self.choose_labels(allowed, forbidden)
        mode = mode or self.config.predict.mode
        blocks = [
            self.scorer.search(
                self.queries(texts[start : start + BLOCK], mode), k, mode=mode, allowed=allowed, forbidden=forbidden
            )
            for start in range(0, len(texts), BLOCK)
        ]
        if not blocks:
            return TopK(np.empty((0, k), dtype=np.int64), np.empty((0, k), dtype=np.float32))
        if len(blocks) == 1:
            return blocks[0]
        return TopK.concatenate(blocks)

    def probabilities(
        self, topk: TopK, mode: Mode | None = None, known: Shares | None = None
    ) -> NDArray[np.float32] | None:
        """How likely each predicted label is right, N x K, 0 for none; None without a calibration for the mode.

        Args:
            topk: the result of ``topk``.
            mode: the mode of the prediction; the recipe's unless given.
            known: how much of each text is known; without it, scores are trusted as if all were.
        """
        familiarity_N = None if known is None else known.familiarity_N
        return self.scorer.probabilities(topk, mode or self.config.predict.mode, familiarity_N)

    def min_probability(self, asked: str | float, mode: Mode | None = None) -> float:
        """A minimum probability by number, or by name of one of the model's thresholds, such as "best-f1"."""
        return self.scorer.min_probability(asked, mode or self.config.predict.mode)

    def save(self, folder: str | Path) -> None:
        """Write the model folder: complete, or not at all; changes of labels are in it, and no journal."""
        if self.journal is None or Path(folder).resolve() != self.journal.folder.resolve():
            model_folder.save(Path(folder), self)
            return
        # Over itself: changes that other processes have appended meanwhile would be lost with the folder.
        with self.journal.locked():
            self.catch_up()
            model_folder.save(Path(folder), self)
            self.journal = Journal(folder)

    @classmethod
    def load(cls, folder: str | Path, device: str = "cpu") -> Model:
        """Read a model folder and its journal; every file is checked against the manifest first."""
        for reading in range(_READINGS):
            # Another process may replace the folder meanwhile. Then it is read again, the last time under the lock.
            last = reading + 1 == _READINGS
            with locked(folder) if last else nullcontext():
                model_folder.restore(Path(folder))
                journal = Journal(folder)
                try:
                    model = cls(*model_folder.load(Path(folder), device))
                    # The classifiers are in the index; a network gets them when it is asked for.
                    model._is_network_old = True
                    model.journal = journal
                    model.catch_up()
                except (UnidexError, OSError, LookupError, ValueError):
                    if last or journal.is_current():
                        raise
                else:
                    if journal.is_current():
                        return model
        raise ModelError(f"{folder}: a model must not change while it is read, but it was replaced; load it again")
