"""Methods of a model that build on others: predictions with names, explanations, similar labels, pickling."""

from __future__ import annotations

import io
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from unidex.data.concepts import language_tag
from unidex.data.given_texts import given_texts
from unidex.errors import ModelError
from unidex.features.known_words import KnownWords, Shares
from unidex.model.label_rules import hidden_by_rules, ids_of_rules, matching_labels
from unidex.model.predicted_labels import Predictions
from unidex.scoring.layout import Mode
from unidex.topk import PADDING, TopK

if TYPE_CHECKING:
    from unidex.model.explanation import Reason
    from unidex.model.label_set import LabelSet
    from unidex.model.model import Model
    from unidex.model.similar_labels import SimilarLabel

# Methods whose work is done in higher layers, which register themselves here.
REGISTERED: dict[str, Callable[..., Any]] = {}


class ModelMethods:
    """What a user does with a model, beside changing and saving it."""

    def predict(
        self: Any,
        texts: Sequence[str],
        k: int = 5,
        *,
        mode: Mode | None = None,
        allowed: ArrayLike | None = None,
        forbidden: ArrayLike | None = None,
        most_specific: bool | None = None,
        language: str = "",
    ) -> Predictions:
        """Predict the k best labels of each text.

        Args:
            texts: the texts: a list, a column of a data frame, an array or a generator.
            k: labels per text; a text has fewer if the model has fewer.
            mode: heads that count, "both", "dual" or "classifier"; default: the mode of the model.
            allowed: the only labels that may be predicted: ids, uids or rules such as "group=Descriptor".
            forbidden: labels that are not predicted, given likewise.
            most_specific: drop a label if a narrower one is predicted too; default: as the model's rules say.
            language: language of the label texts, such as "de"; a label without such a text has its own.
        """
        texts = given_texts(texts)
        topk = self.topk(texts, k, mode=mode, allowed=allowed, forbidden=forbidden)
        if self.config.predict.most_specific if most_specific is None else most_specific:
            topk = _without_broader(topk, self.labels)
        shares = self.known_shares(texts)
        probabilities = self.probabilities(topk, mode, shares)
        known = None if shares is None else shares.known_N
        return Predictions(texts, topk.ids, topk.scores, probabilities, known, self.labels, language_tag(language))

    def choose_labels(
        self: Any, allowed: ArrayLike | None = None, forbidden: ArrayLike | None = None
    ) -> tuple[ArrayLike | None, ArrayLike | None]:
        """Ids of the only labels that may be predicted (None: all) and of those that may not, with stored rules.

        What is given are ids, uids or rules (`unidex.model.label_rules`).
        """
        rules, labels = self.config.predict, self.labels
        allowed, forbidden = ids_of_rules(labels, allowed, "allowed"), ids_of_rules(labels, forbidden, "forbidden")
        if rules.allowed or rules.forbidden:
            # Found once for the labels as they are; a change of labels makes a new set of them.
            known, hidden = self.__dict__.get("_hidden", (None, None))
            if known is not labels:
                hidden = hidden_by_rules(labels, rules.allowed, rules.forbidden)
                self._hidden = labels, hidden
            assert hidden is not None
            forbidden = hidden if forbidden is None else np.union1d(np.asarray(forbidden, dtype=np.int64), hidden)
        return allowed, forbidden

    def set_rules(
        self: Any,
        allowed: Sequence[str] | None = None,
        forbidden: Sequence[str] | None = None,
        most_specific: bool | None = None,
    ) -> None:
        """Store rules that hold for every prediction; what is None stays as it is. ``save`` writes them.

        Args:
            allowed: rules for the only labels that are predicted; an empty list allows all.
            forbidden: rules for labels that are never predicted.
            most_specific: drop a predicted label if a narrower one is predicted for the same text.
        """
        changes: dict[str, Any] = {} if most_specific is None else {"most_specific": most_specific}
        for name, rules in (("allowed", allowed), ("forbidden", forbidden)):
            if rules is not None:
                matching_labels(self.labels, rules, name)
                changes[name] = list(rules)
        predict = self.config.predict.model_copy(update=changes)
        self.config = self.config.model_copy(update={"predict": predict})
        self.__dict__.pop("_hidden", None)

    def known_shares(self: Any, texts: Sequence[str]) -> Shares | None:
        """How much of each text the model knows; None for an encoder without a vocabulary of words."""
        return None if self.known_words is None else self.known_words.shares(texts)

    @cached_property
    def known_words(self: Any) -> KnownWords | None:
        """The words that the model knows; None for an encoder without a vocabulary of words."""
        return KnownWords.of(self.encoder, self.labels.unread_texts(), self.labels.word_keys)

    def _know(self: Any, label_texts: Sequence[str]) -> None:
        """The words of changed labels are known from now on."""
        if (words := self.__dict__.get("known_words")) is not None:
            words.add(label_texts)

    def explain(
        self: Any,
        text: str,
        k: int = 5,
        *,
        labels: Sequence[str | int] | None = None,
        mode: Mode | None = None,
        num_texts: int = 3,
    ) -> list[Reason]:
        """Explain why a text has its k best labels, or how near other labels come (`unidex.model.explanation`)."""
        from unidex.model.explanation import explain

        return explain(self, text, k=k, labels=labels, mode=mode, num_texts=num_texts)

    def similar_labels(self: Any, label: str | int, k: int = 10) -> list[SimilarLabel]:
        """Find the k labels whose vectors are nearest to those of a label, given by uid, text or id."""
        from unidex.model.similar_labels import find_label, nearest_labels, similar_rows

        number = find_label(label, self.labels) if isinstance(label, str) else label
        return similar_rows(self.labels, nearest_labels(self, number, k))

    def evaluate(self, data: Any, **options: Any) -> Any:
        """Score the model on a data set, a file or a data frame; see `unidex.evaluate` for options and result."""
        return _registered("evaluate")(self, data, **options)

    def export(self, to: str, out: str | Path, **options: Any) -> dict[str, Any]:
        """Write the model in the format of another tool to a new folder, such as "parquet".

        Args:
            to: the format, as ``unidex export --help`` lists them.
            out: the folder to write: new or empty.
            options: of the format, by the names of the command line's options.

        Returns:
            The files, their size, and notes on what the export does not hold.
        """
        done: dict[str, Any] = _registered("export")(self, to, out, **options)
        return done

    def __reduce__(self: Any) -> tuple[Callable[[bytes], Model], tuple[bytes]]:
        # A pickle holds a model folder: everything that a folder keeps, and nothing else.
        with tempfile.TemporaryDirectory() as place:
            self.__class__.save(self, Path(place) / "model")
            packed = io.BytesIO()
            with tarfile.open(fileobj=packed, mode="w") as archive:
                archive.add(Path(place) / "model", "model")
        return _unpacked, (packed.getvalue(),)


def _without_broader(topk: TopK, labels: LabelSet) -> TopK:
    """The labels of each text without those that have a narrower one beside them; the others move up."""
    kept = np.array([labels.most_specific(row) for row in topk.ids.tolist()], dtype=bool).reshape(topk.ids.shape)
    return TopK.rank(np.where(kept, topk.ids, PADDING), np.where(kept, topk.scores, -np.inf))


def _registered(name: str) -> Callable[..., Any]:
    if name not in REGISTERED:
        raise ModelError(f"{name} needs the package unidex, but only a part of it is imported: import unidex.verbs")
    return REGISTERED[name]


def _unpacked(packed: bytes) -> Model:
    """The model of a pickle, in memory alone."""
    from unidex.model.model import Model

    with tempfile.TemporaryDirectory() as place:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(place, filter="data")
        model = Model.load(Path(place) / "model")
        model.journal = None
    return model
