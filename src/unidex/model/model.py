"""The trained model: it encodes and predicts as a searcher does; its labels change, and it is saved and loaded."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from unidex import index as indexes
from unidex import progress
from unidex.config import Config
from unidex.data.texts import Texts
from unidex.errors import DataError, ModelError, UnidexError, listed
from unidex.model import folder as model_folder
from unidex.model import journal as changes
from unidex.model.label_set import LabelSet
from unidex.model.new_labels import first_classifiers
from unidex.model.searcher import BLOCK, Searcher
from unidex.nn.network import Network, Vectors
from unidex.scoring.fusion import EVEN
from unidex.scoring.knn import Neighbours
from unidex.scoring.snippets import KeptTexts
from unidex.storage.locks import locked

_READINGS = 3


class Model(Searcher):
    """What is searched, and how it changes, is saved and is loaded."""

    def __init__(
        self,
        config: Config,
        network: Network,
        labels: LabelSet,
        index: indexes.Index,
        metrics: dict[str, Any],
        neighbours: Neighbours | None = None,
    ) -> None:
        # The labels are its own: those that are added here are not added elsewhere.
        super().__init__(config, network, replace(labels), index, neighbours)
        self.metrics = metrics
        self.log = ""  # train.jsonl: what training has said, a JSON object a line
        self.journal: changes.Journal | None = None  # of the folder that the model was loaded from

    @property
    def version(self) -> str:
        """Which model this is: 12 digits of the hash of the manifest it was loaded with; "" if it was not loaded."""
        return "" if self.journal is None else self.journal.version

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
    ) -> Model:
        """A model from a trained network.

        ``train`` is prepared texts and their positives, where neighbours count; ``train_texts`` are the texts
        themselves, where some of each is kept. Then neighbours are there even where they count for nothing.
        """
        network.eval()
        predict = config.predict
        index: indexes.Index
        if network.tree is not None:
            index = network.tree_index(prepared_labels)
        else:
            vectors = network.label_vectors(prepared_labels).joined(predict.fusion, _bonus(predict.label_prior, labels))
            index = indexes.build(predict.index, vectors.cpu().numpy())
        neighbours = None
        keeps = train_texts is not None and predict.snippet_length > 0
        if train is not None and (predict.knn > 0 or keeps):
            neighbours = Neighbours.of(
                network.text_vectors(train[0]).joined(EVEN).cpu().numpy(),
                train[1],
                num_neighbours=predict.knn_texts,
                temperature=predict.knn_temperature,
                kept=KeptTexts.of(train_texts, predict.snippet_length) if train_texts is not None and keeps else None,
            )
        return cls(config, network, labels, index, metrics or {}, neighbours)

    def remember(self, texts: Sequence[str], positives: sparse.csr_array) -> None:
        """Take texts with their labels among the neighbours: what they say counts at once, without training.

        Args:
            texts: new texts.
            positives: texts x labels, as many columns as the model has labels.
        """
        if self.neighbours is None or self.config.predict.knn == 0:
            found = "this one has none" if self.neighbours is None else "in this one they count for nothing"
            raise ModelError(
                f"texts can only be remembered by a model with neighbours, but {found}; train it with "
                "--set predict.knn=0.1 --set predict.choose_knn=false"
            )
        if positives.shape != (len(texts), len(self.labels)):
            raise DataError(
                f"positives must be {len(texts)} texts x {len(self.labels)} labels, but are "
                f"{positives.shape[0]} x {positives.shape[1]}"
            )
        parts = [np.empty((0, self.neighbours.dim), dtype=np.float32)]
        with progress.task("encoding", len(texts), unit="texts") as advance:
            for start in range(0, len(texts), BLOCK):
                prepared = self.network.encoder.prepare(texts[start : start + BLOCK])
                parts.append(self.network.text_vectors(prepared).joined(EVEN).cpu().numpy())
                advance(len(parts[-1]))
        # All at once: they may be so many that lists of texts are made, and those are chosen by all of them.
        self.neighbours.add(np.concatenate(parts), positives, texts)

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
        for uid, text in zip(new_uids, texts, strict=True):
            changes.check_label(uid, text)
        changes.check_new(new_uids, self.labels)
        self._check_grows()
        if not texts:
            return np.empty(0, dtype=np.int64)
        dual = self.network.text_vectors(self.network.encoder.prepare(texts)).dual
        assert dual is not None
        classifier = None
        if self.network.classifiers is not None and self.network.classifier is not None:
            rows = first_classifiers(dual, self.network.classifiers.weight, self.labels.frequencies, self.index)
            self.network.classifiers.grow(rows)
            classifier = self.network.classifier.as_searched(rows)
        bonus = torch.zeros(len(texts), device=dual.device) if self.config.predict.label_prior != 0 else None
        ids = self.index.add(Vectors(dual, classifier).joined(self.config.predict.fusion, bonus).cpu().numpy())
        self.labels = self.labels.added(texts, new_uids)
        if self.neighbours is not None:
            self.neighbours.grow(len(self.labels))
        return ids

    def _check_grows(self) -> None:
        if self.network.dual is None:
            raise ModelError(
                "labels can only be added to a model with a dual encoder, but this one has a classifier alone"
            )

    def remove_labels(self, ids: Sequence[int]) -> None:
        """Never predict these labels again. The ids of the others do not change."""
        chosen = np.unique(np.asarray(ids, dtype=np.int64))
        wrong = [int(label) for label in chosen if not 0 <= label < len(self.labels) or self.labels.removed[label]]
        if wrong:
            raise DataError(f"labels to remove must be among the model's, but it does not have {listed(wrong)}")
        self.index.remove(chosen)
        self.labels = self.labels.without(chosen.tolist())

    def rename_label(self, label: int, text: str) -> None:
        """Give a label another text: the dual encoder knows it by that; its id, uid and classifier stay."""
        if not 0 <= label < len(self.labels) or self.labels.removed[label]:
            raise DataError(f"a label to rename must be among the model's, but it does not have {label}")
        changes.check_label(self.labels.uids[label], text)
        dual = self.network.text_vectors(self.network.encoder.prepare([text])).dual
        if dual is not None:
            vector = self.index.vectors(np.array([label]))
            both = self.network.classifier is not None
            vector[:, : dual.shape[1]] = (dual * (self.config.predict.fusion if both else 1.0)).cpu().numpy()
            self.index.replace([label], vector)
        self.labels = self.labels.renamed(label, text)

    def apply(self, change: changes.Change) -> list[int]:
        """Do a change of labels as the journal has them, or refuse it as a whole; the result is the labels' ids."""
        added, removed, renamed = changes.parsed(change)
        if renamed is not None:
            label = self.labels.id_of(renamed.uid)
            self.rename_label(label, renamed.text)
            return [label]
        if removed:
            ids = sorted({self.labels.id_of(uid) for uid in removed})
            self.remove_labels(ids)
            return ids
        ids_added = self.add_labels([label.text for label in added], [label.uid for label in added])
        return [int(label) for label in ids_added]

    def change(self, change: changes.Change) -> list[int]:
        """As `apply`, and keep the change in the folder that the model was loaded from: it is on the disk afterwards.

        Changes by other processes come first, so that a label has the same id everywhere. A model that was not loaded
        is changed in memory alone.
        """
        if self.journal is None:
            return self.apply(change)
        with self.journal.locked():
            self.catch_up()
            if changes.check(change, self.labels):
                self._check_grows()
            self.journal.append(change)
            return self.catch_up()

    def catch_up(self) -> list[int]:
        """Do what was appended to the journal since the model was loaded, or since the last call; the result is ids."""
        ids: list[int] = []
        if self.journal is None:
            return ids
        for change in self.journal.together(lambda: self.labels):
            ids += self.apply(change)
        return ids

    def save(self, folder: str | Path) -> None:
        """Write the model folder: complete, or not at all; changes of labels are in it, and no journal."""
        if self.journal is None or Path(folder).resolve() != self.journal.folder.resolve():
            self._save(Path(folder))
            return
        # Over itself: what others have appended meanwhile would be lost with the folder.
        with self.journal.locked():
            self.catch_up()
            self._save(Path(folder))
            self.journal = changes.Journal(folder)

    def _save(self, folder: Path) -> None:
        contents = model_folder.Contents(
            self.config,
            self.network,
            self.labels,
            self.index,
            self.neighbours,
            self.metrics,
            self.log,
            self.calibration,
            self.fusing,
        )
        model_folder.save(folder, contents)

    @classmethod
    def load(cls, folder: str | Path, device: str = "cpu") -> Model:
        """Read a model folder and the changes of labels since; every file is checked against the manifest first."""
        for reading in range(_READINGS):
            # A folder may be replaced while it is read. Then it is read again, at last while others wait to replace it.
            last = reading + 1 == _READINGS
            with locked(folder) if last else nullcontext():
                model_folder.restore(Path(folder))
                journal = changes.Journal(folder)
                try:
                    model = cls._read(Path(folder), device)
                    model.journal = journal
                    model.catch_up()
                except (UnidexError, OSError, LookupError, ValueError):
                    if last or journal.is_current():
                        raise
                else:
                    if journal.is_current():
                        return model
        raise ModelError(f"{folder}: a model must stay as it is while it is read, but it was replaced; load it again")

    @classmethod
    def _read(cls, folder: Path, device: str) -> Model:
        found = model_folder.load(folder, device)
        model = cls(found.config, found.network, found.labels, found.index, found.metrics, found.neighbours)
        model.log, model.calibration, model.fusing = found.log, found.calibration, found.fusing
        return model


def _bonus(prior: float, labels: LabelSet) -> Tensor | None:
    """What a label's score gets for its frequency: prior ln(1 + n); 0 for one that was added."""
    return None if prior == 0 else torch.from_numpy((prior * np.log1p(labels.frequencies)).astype(np.float32))


def label_set(texts: Texts, uids: Texts | None, frequencies: NDArray[np.int64]) -> LabelSet:
    """The labels of a data set as those of a model; a label without a uid is named by its number."""
    names = [str(number) for number in range(len(texts))] if uids is None else list(uids)
    return LabelSet(list(texts), names, frequencies, np.zeros(len(texts), dtype=bool))
