"""Teach a model new pairs of texts and labels: the vectors of those labels turn, and nothing else moves.

The encoders stay as they are, and so do the vectors of all other labels: what they were scored stays. Each head of a
taught label learns by itself, from the new texts, from texts the model knows that stand near, and from the texts of
near labels, which are texts of those labels (as in Gandalf, arXiv 2405.04545).

Shapes: N texts, U taught labels, L labels, P pairs of a text and a taught label, F pairs of a text and a label that
stays, J numbers of both heads side by side, D of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from unidex import progress
from unidex.data.dataset import canonical
from unidex.errors import DataError, ModelError, listed
from unidex.index.exact import search_exact
from unidex.model.model import Model
from unidex.model.rotation import Lesson, pair_scores, turned
from unidex.scoring.fusion import EVEN
from unidex.sparse_rows import contains

NEAR_TEXTS = 100  # texts a taught label that it is held against, and as many known ones that are looked up for it
NEAR_LABELS = 16  # labels a taught label whose own texts it is held against
RIVALS = 64  # labels a text that a taught label is measured against
TEMPERATURE = 0.07  # of a head that is not searched as it was trained
_BLOCK = 1024
_SAME = 0.999  # cosine from which on a text and a known one are the same


def teach(model: Model, texts: Sequence[str], positives: sparse.csr_array) -> dict[str, int]:
    """Let a model learn that texts have labels, in place; the result counts what was learned from.

    The labels' vectors turn (`turned`), their frequencies rise, and where the model has neighbours the texts are among
    them from now on: a text that is there already gets the labels it did not have.

    Args:
        model: one with a dual encoder, a classifier or both.
        texts: new texts, or some it was trained on.
        positives: texts x labels, as many columns as the model has labels; the labels of each text.
    """
    taught = _checked(model, texts, positives)
    texts, positives = _distinct(texts, positives)
    vectors_NJ = _encoded(model, texts, "encoding")
    parts = list(_parts(model))
    known = _Known.of(model, vectors_NJ)
    material = _material(model, vectors_NJ, positives, taught, parts, known)
    rows_UJ = model.index.vectors(taught)
    for part in parts:
        old_UD = rows_UJ[:, part.columns] / part.weight
        new_UD = turned(old_UD, _lesson(model, material, taught, part))
        rows_UJ[:, part.columns] = part.weight * new_UD
        if part.name == "classifier":
            _turn_classifiers(model, taught, new_UD)
    counts_L = np.bincount(positives.indices, minlength=len(model.labels))
    frequencies = model.labels.frequencies + counts_L
    if model.config.predict.label_prior != 0:
        rows_UJ[:, -1] = model.config.predict.label_prior * np.log1p(frequencies[taught])
    model.index.replace(taught, rows_UJ)
    model.labels = replace(model.labels, frequencies=frequencies)
    known.remember(model, texts, vectors_NJ, positives)
    return {
        "num_texts": len(texts),
        "num_pairs": int(positives.nnz),
        "num_labels": len(taught),
        "num_replayed": len(material.vectors_NJ) - len(texts),
        "num_remembered": 0 if model.neighbours is None else len(texts),
    }


def _checked(model: Model, texts: Sequence[str], positives: sparse.csr_array) -> NDArray[np.int64]:
    """The taught labels, in ascending order."""
    if isinstance(texts, str):
        raise DataError("texts must be a list of texts, but is one text; write [text]")
    if model.network.tree is not None:
        raise ModelError(
            "labels can be taught where their scores are inner products, but this model has a label tree, whose "
            "clusters would have to learn too; train it anew with the texts"
        )
    if positives.shape != (len(texts), len(model.labels)):
        raise DataError(
            f"positives must be {len(texts)} texts x {len(model.labels)} labels, but are "
            f"{positives.shape[0]} x {positives.shape[1]}"
        )
    taught: NDArray[np.int64] = np.unique(positives.indices).astype(np.int64)
    if len(taught) == 0:
        raise DataError("there must be at least one pair of a text and a label to teach, but there is none")
    removed = taught[model.labels.removed[taught]]
    if len(removed):
        raise DataError(
            f"labels to teach must be among the model's, but these were removed: {listed(removed.tolist())}"
        )
    return taught


def _distinct(texts: Sequence[str], positives: sparse.csr_array) -> tuple[list[str], sparse.csr_array]:
    """Each text once, with all the labels that it is given anywhere."""
    number: dict[str, int] = {}
    rows = [number.setdefault(text, len(number)) for text in texts]
    shape = (len(number), len(texts))
    merging = sparse.csr_array((np.ones(len(rows), dtype=np.float32), (rows, np.arange(len(rows)))), shape=shape)
    return list(number), _ones(merging @ canonical(positives, np.float32))


def _encoded(model: Model, texts: Sequence[str], what: str) -> NDArray[np.float32]:
    """Vectors of both heads side by side, each as it is searched."""
    blocks = [np.empty((0, model.index.dim - (model.config.predict.label_prior != 0)), dtype=np.float32)]
    with progress.task(what, len(texts), unit="texts") as advance:
        for start in range(0, len(texts), _BLOCK):
            prepared = model.network.encoder.prepare(texts[start : start + _BLOCK])
            blocks.append(model.network.text_vectors(prepared).joined().cpu().numpy())
            advance(len(blocks[-1]))
    return np.concatenate(blocks)


@dataclass(frozen=True)
class _Part:
    """A head in the vectors that are searched.

    Attributes:
        name: dual or classifier.
        columns: where it stands.
        weight: what it counts.
        temperature: what its scores were divided by in training.
    """

    name: str
    columns: slice
    weight: float
    temperature: float


def _parts(model: Model) -> Iterator[_Part]:
    """The heads that count in a search."""
    network, heads, fusion = model.network, model.config.heads, model.config.predict.fusion
    both = network.dual is not None and network.classifier is not None
    width = model.index.dim - (model.config.predict.label_prior != 0)
    dual = (width - network.classifiers.dim if network.classifiers is not None else width) if network.dual else 0
    temperatures = (-network.log_scales).exp().tolist()
    if network.dual is not None and (fusion > 0 or not both):
        yield _Part("dual", slice(0, dual), fusion if both else 1.0, temperatures[0])
    if network.classifier is not None and (fusion < 1 or not both):
        as_trained = heads.classifier_normalised == (heads.classifier_search_vectors == "unit")
        temperature = temperatures[1] if as_trained else TEMPERATURE
        yield _Part("classifier", slice(dual, width), 1 - fusion if both else 1.0, temperature)


@dataclass(frozen=True, eq=False)
class _Known:
    """Which of the new texts are among the model's neighbours already: their ids there, -1 for a text that is not."""

    ids_N: NDArray[np.int64]

    @classmethod
    def of(cls, model: Model, vectors_NJ: NDArray[np.float32]) -> _Known:
        if model.neighbours is None or model.neighbours.num_texts == 0:
            return cls(np.full(len(vectors_NJ), -1))
        near_N = model.neighbours.search(vectors_NJ, 1).ids[:, 0]
        # By the cosine: what 8 bits a number make of a vector differs from it more in length than in direction.
        stored_NJ = model.neighbours.vectors(near_N)
        lengths_N = np.linalg.norm(vectors_NJ, axis=1) * np.linalg.norm(stored_NJ, axis=1)
        products_N = np.einsum("nj,nj->n", vectors_NJ, stored_NJ)
        return cls(np.where((products_N >= _SAME * lengths_N) & (lengths_N > 0), near_N, -1))

    def remember(
        self, model: Model, texts: list[str], vectors_NJ: NDArray[np.float32], positives: sparse.csr_array
    ) -> None:
        """Let the texts and their labels count among the neighbours, where the model has them."""
        if model.neighbours is None:
            return
        old, new = np.flatnonzero(self.ids_N >= 0), np.flatnonzero(self.ids_N < 0)
        model.neighbours.join(self.ids_N[old], positives[old])
        stored = vectors_NJ[new] * np.float32(_stored_scale(model))
        model.neighbours.add(stored, positives[new], [texts[row] for row in new])


def _stored_scale(model: Model) -> float:
    """What neighbours' vectors are multiplied by: `Vectors.joined` of two heads weighs each."""
    return EVEN if model.network.dual is not None and model.network.classifier is not None else 1.0


@dataclass(frozen=True, eq=False)
class _Material:
    """Texts to learn from, new ones first: vectors of both heads, their labels, and the pairs that are looked at.

    Attributes:
        vectors_NJ: N x J, both heads side by side.
        positives_NL: the labels of each text.
        text_P: the text of each pair with a taught label.
        label_P: its label, by its place among the taught.
        positive_P: whether the text has it.
        num_new: how many texts are new.
    """

    vectors_NJ: NDArray[np.float32]
    positives_NL: sparse.csr_array
    text_P: NDArray[np.int64]
    label_P: NDArray[np.int64]
    positive_P: NDArray[np.bool_]
    num_new: int


def _material(
    model: Model,
    vectors_NJ: NDArray[np.float32],
    positives_NL: sparse.csr_array,
    taught: NDArray[np.int64],
    parts: Sequence[_Part],
    known: _Known,
) -> _Material:
    # Where a taught label and its texts stand, in both heads alike.
    centres_UJ = np.zeros((len(taught), vectors_NJ.shape[1]), dtype=np.float32)
    rows_UJ = model.index.vectors(taught)
    for part in parts:
        centres_UJ[:, part.columns] = rows_UJ[:, part.columns] / part.weight
    own_UN = sparse.csr_array(positives_NL[:, taught].T)
    centres_UJ += (own_UN @ vectors_NJ) / np.diff(own_UN.indptr)[:, None].astype(np.float32)

    vectors, positives = [vectors_NJ], [positives_NL]
    if model.neighbours is not None and model.neighbours.num_texts:
        near = np.unique(model.neighbours.search(centres_UJ, NEAR_TEXTS).ids)
        replayed = np.setdiff1d(near[near >= 0], known.ids_N)
        vectors.append(model.neighbours.vectors(replayed) / np.float32(_stored_scale(model)))
        positives.append(_ones(model.neighbours.positives[replayed]))
        there = np.flatnonzero(known.ids_N >= 0)
        spread = sparse.csr_array(
            (np.ones(len(there), dtype=np.float32), (there, known.ids_N[there])),
            shape=(len(vectors_NJ), model.neighbours.num_texts),
        )
        positives[0] = _ones(positives_NL + spread @ model.neighbours.positives)
    queries_UJ = np.zeros((len(taught), model.index.dim), dtype=np.float32)
    queries_UJ[:, : centres_UJ.shape[1]] = centres_UJ
    labels = np.unique(model.index.search(queries_UJ, NEAR_LABELS).ids)
    labels = np.array([label for label in labels.tolist() if label >= 0 and model.labels.texts[label]], dtype=np.int64)
    vectors.append(_encoded(model, [model.labels.texts[label] for label in labels], "encoding near labels"))
    ones = np.ones(len(labels), dtype=np.float32)
    positives.append(
        sparse.csr_array((ones, labels, np.arange(len(labels) + 1)), shape=(len(labels), len(model.labels)))
    )
    all_vectors, all_positives = np.concatenate(vectors), canonical(sparse.vstack(positives, format="csr"), np.float32)

    near_UK = search_exact(centres_UJ, all_vectors, min(NEAR_TEXTS, len(all_vectors))).ids
    own_NU = sparse.coo_array(all_positives[:, taught])
    own = own_NU.coords[0].astype(np.int64) * len(taught) + own_NU.coords[1]
    near = near_UK.astype(np.int64) * len(taught) + np.arange(len(taught))[:, None]
    keys = np.union1d(own, near)
    pairs = keys // len(taught), keys % len(taught)
    return _Material(all_vectors, all_positives, *pairs, np.isin(keys, own), len(vectors_NJ))


def _lesson(model: Model, material: _Material, taught: NDArray[np.int64], part: _Part) -> Lesson:
    """What a head learns from the texts: they meet the labels that stay as a search by this head finds them."""
    texts_ND = np.ascontiguousarray(material.vectors_NJ[:, part.columns])
    queries = np.zeros((len(texts_ND), model.index.dim), dtype=np.float32)
    queries[:, part.columns] = texts_ND
    rivals = model.index.search(queries, RIVALS, forbidden=taught)
    scale = 1 / (part.weight * part.temperature)
    counted_NK = (rivals.ids >= 0) & ~contains(material.positives_NL, rivals.ids)
    scores_NK = np.where(counted_NK, rivals.scores.astype(np.float64) * scale, -np.inf)
    held = sparse.coo_array(material.positives_NL)
    stays = ~np.isin(held.coords[1], taught)
    text_F, label_F = (numbers[stays].astype(np.int64) for numbers in held.coords)
    score_F = (
        pair_scores(texts_ND, text_F, lambda labels: model.index.vectors(labels)[:, part.columns], label_F) * scale
    )
    return Lesson(
        texts_ND,
        material.text_P,
        material.label_P,
        material.positive_P,
        material.positive_P & (material.text_P < material.num_new),
        np.logaddexp.reduce(scores_NK, axis=1),
        text_F,
        score_F,
        part.temperature,
    )


def _turn_classifiers(model: Model, taught: NDArray[np.int64], vectors_UD: NDArray[np.float32]) -> None:
    """Write classifiers back; where they are searched as unit vectors, each is as long as it was."""
    table = model.network.classifiers
    assert table is not None
    ids = torch.from_numpy(taught).to(table.weight.device)
    rows = torch.from_numpy(vectors_UD).to(table.weight)
    if model.config.heads.classifier_search_vectors == "unit":
        lengths = table.weight[ids].norm(dim=1, keepdim=True)
        rows = rows * torch.where(lengths == 0, torch.ones_like(lengths), lengths)
    table.weight = table.weight.index_copy(0, ids, rows)


def _ones(pairs: Any) -> sparse.csr_array:
    """The same pairs, each with a target of 1."""
    found = canonical(sparse.csr_array(pairs), np.float32)
    return sparse.csr_array((np.ones_like(found.data), found.indices, found.indptr), shape=found.shape)
