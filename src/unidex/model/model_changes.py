"""How a model changes without training: texts that it remembers, labels that are added, removed and renamed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex.data.concepts import NOTHING, Concept, concept_of, joined_text
from unidex.data.given_texts import given_texts
from unidex.errors import DataError
from unidex.model.journal import Change, check_change, check_label, check_uids, parse_change
from unidex.model.new_labels import initial_classifiers
from unidex.model.refusals import check_verb
from unidex.nn.vectors import Vectors, as_array


class ModelChanges:
    """What changes a model; `unidex.model.model.Model` has the parts that are changed."""

    def remember(self: Any, texts: Sequence[str], positives: sparse.csr_array) -> None:
        """Add texts with their labels to the kNN part: they change predictions at once, without training.

        Args:
            texts: new texts.
            positives: texts x labels, with one column per label of the model.
        """
        check_verb("remember", self)
        texts = given_texts(texts)
        knn, layout = self.scorer.knn, self.scorer.layout
        assert knn is not None
        if positives.shape != (len(texts), len(self.labels)):
            raise DataError(
                f"positives must be {len(texts)} texts x {len(self.labels)} labels, but are "
                f"{positives.shape[0]} x {positives.shape[1]}"
            )
        blocks = [np.empty((0, knn.dim), dtype=np.float32)]
        blocks += [layout.knn_vectors(vectors) for vectors in self.vector_blocks(texts)]
        # All at once: if they are so many that lists are made, k-means must see all of them.
        knn.add(np.concatenate(blocks), positives, texts)
        if self.scorer.pretrained is not None:
            self.scorer.pretrained.remember(texts, positives)
        self.scorer.learn_links(texts, positives)
        self.know_texts(texts)

    def know_texts(self: Any, texts: Sequence[str]) -> None:
        """Count texts among those that the model was trained on."""
        if self.train_texts is not None:
            self.train_texts = self.train_texts.with_texts(texts)

    def add_labels(
        self: Any,
        texts: Sequence[str],
        uids: Sequence[str] | None = None,
        concepts: Sequence[Concept] | None = None,
    ) -> NDArray[np.int64]:
        """Add labels without training; the result is their ids.

        The dual encoder knows a label by its texts. Its classifier is initialised with the mean classifier of the
        labels with the nearest texts, so that both heads can score it.

        Args:
            texts: the text of each label.
            uids: the user's own names; default: the texts.
            concepts: what else is known of each, such as further texts.
        """
        texts = list(texts)
        new_uids = list(texts if uids is None else uids)
        if len(new_uids) != len(texts):
            raise DataError(
                f"there must be one uid per label, but there are {len(texts)} labels and {len(new_uids)} uids"
            )
        for uid, text in zip(new_uids, texts, strict=True):
            check_label(uid, text)
        check_uids(new_uids, self.labels)
        concepts = [NOTHING] * len(texts) if concepts is None else list(concepts)
        if len(concepts) != len(texts):
            raise DataError(f"there must be one concept per label, but there are {len(texts)} and {len(concepts)}")
        check_verb("add_labels", self)
        if not texts:
            return np.empty(0, dtype=np.int64)
        scorer = self.scorer
        all_texts = [joined_text(text, concept) for text, concept in zip(texts, concepts, strict=True)]
        dual, classifier = self.vectors(all_texts).dual, None
        assert dual is not None
        if "classifier" in scorer.layout.heads:
            classifier = initial_classifiers(dual, self.labels.frequencies, scorer, self.config.heads)
        no_texts = np.zeros(len(texts), dtype=np.int64)
        ids: NDArray[np.int64] = scorer.index.add(as_array(scorer.layout.rows(Vectors(dual, classifier), no_texts)))
        self._is_network_old = True
        self.labels = self.labels.with_labels(texts, new_uids, concepts)
        if scorer.knn is not None:
            scorer.knn.grow(len(self.labels))
        if scorer.lexical is not None:
            scorer.lexical.add(texts, dict(enumerate(concepts)))
        if scorer.pretrained is not None:
            scorer.pretrained.add_labels(texts)
        if scorer.links is not None:
            scorer.links = scorer.links.grown(len(self.labels))
        self._know(all_texts)
        return ids

    def remove_labels(self: Any, labels: Sequence[str | int]) -> None:
        """Never predict these labels again: a string is a uid, a number an id. The ids of the others do not change."""
        chosen = np.unique(np.asarray(self.labels.ids_of(labels, "labels to remove"), dtype=np.int64))
        self.scorer.index.remove(chosen)
        self.labels = self.labels.without(chosen.tolist())

    def rename_label(self: Any, label: str | int, text: str) -> None:
        """Give a label, by uid or id, another text, by which the dual encoder knows it; id, uid and classifier stay."""
        (label,) = self.labels.ids_of([label], "a label to rename")
        check_label(self.labels.uids[label], text)
        dual = self.vectors([joined_text(text, self.labels.concepts.get(label))]).dual
        if dual is not None:
            index, ids = self.scorer.index, np.array([label])
            self.replace_rows(ids, self.scorer.layout.with_head(index.vectors(ids), "dual", dual))
        if self.scorer.lexical is not None:
            self.scorer.lexical.rename(label, text)
        if self.scorer.pretrained is not None:
            self.scorer.pretrained.rename(label, text)
        self._know([text])
        self.labels = self.labels.with_text(label, text)

    def apply(self: Any, change: Change) -> list[int]:
        """Apply a change of labels from a journal, or refuse it as a whole; the result is the labels' ids."""
        added, removed, renamed = parse_change(change)
        if renamed is not None:
            label = self.labels.id_of(renamed.uid)
            self.rename_label(label, renamed.text)
            return [label]
        if removed:
            ids = sorted({self.labels.id_of(uid) for uid in removed})
            self.remove_labels(ids)
            return ids
        texts, uids = [label.text for label in added], [label.uid for label in added]
        return [int(label) for label in self.add_labels(texts, uids, [concept_of(label) for label in added])]

    def change(self: Any, change: Change) -> list[int]:
        """Apply a change and write it to the folder that the model was loaded from; it is on the disk afterwards.

        Changes by other processes are applied first, so that a label has the same id everywhere. A model that was not
        loaded is changed in memory only.
        """
        ids: list[int]
        if self.journal is None:
            ids = self.apply(change)
            return ids
        with self.journal.locked():
            self.catch_up()
            if check_change(change, self.labels):
                check_verb("add_labels", self)
            self.journal.append(change)
            ids = self.catch_up()
            return ids

    def catch_up(self: Any) -> list[int]:
        """Apply what was appended to the journal since the last call; the result is the ids of the changed labels."""
        ids: list[int] = []
        if self.journal is None:
            return ids
        for change in self.journal.batches(lambda: self.labels):
            ids += self.apply(change)
        return ids
