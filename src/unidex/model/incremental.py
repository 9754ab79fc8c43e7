"""Incremental learning (`labels teach`): fine-tune the vectors of labels on new pairs of texts and labels.

The encoders and the vectors of all other labels are fixed, so that their scores do not change. Each head of a
fine-tuned label learns on its own, from the new texts, from known texts near the label, and from the texts of near
labels, which are texts of those labels (as in Gandalf, arXiv 2405.04545). With a label tree, labels are fine-tuned
within their clusters, which are fixed too.

Shapes: N texts, U fine-tuned labels, L labels, P pairs of a text and a fine-tuned label, F pairs of a text and a fixed
label, J numbers of both heads side by side, D of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex.data.dataset import canonical, positives_of
from unidex.data.given_texts import given_texts
from unidex.errors import DataError, listed
from unidex.index.exact import search_exact
from unidex.model.model import Model
from unidex.model.rotation import Pairs, pair_scores, rotate
from unidex.nn.vectors import as_array
from unidex.scoring.knn import KnnPart
from unidex.scoring.layout import Head
from unidex.sparse_rows import contains

NEAR_TEXTS = 100  # texts per fine-tuned label that it is scored on, and maximum number of known texts per label
NEAR_LABELS = 16  # near labels per fine-tuned label, whose own texts it is scored on
RIVALS = 64  # labels per text that a fine-tuned label competes with
TEMPERATURE = 0.07  # of a head that is not searched as it was trained
_COMPARED = 64  # nearest known texts per new text among which the same text is looked up
_TEXTS_AT_ONCE = 256
_SAME = 0.999  # minimum cosine of a new text and the known text that it is the same as


def teach(model: Model, texts: Sequence[str], positives: sparse.csr_array) -> dict[str, int]:
    """Teach a model in place that texts have labels; the result counts what it learned from.

    The labels' vectors rotate (`unidex.model.rotation`), their frequencies rise, and a model with a kNN part adds the
    texts to it: a text that is there already gets the labels it did not have.
    """
    texts = given_texts(texts)
    labels = _checked_labels(model, texts, positives)
    texts, positives = _distinct(texts, positives)
    vectors_NJ = _encode(model, texts, "encoding")
    scorer, layout = model.scorer, model.scorer.layout
    heads = _trained_heads(model)
    known = _KnownTexts.of(model, vectors_NJ)
    material = _gather_material(model, vectors_NJ, positives, labels, heads, known)
    rows_UD = scorer.index.vectors(labels)
    for head, temperature in heads.items():
        old_UD = layout.vectors_of(rows_UD, head)
        new_UD = rotate(old_UD, _pairs(model, material, labels, head, temperature))
        rows_UD = layout.with_head(rows_UD, head, new_UD)
    frequencies = model.labels.frequencies + np.bincount(positives.indices, minlength=len(model.labels))
    model.replace_rows(labels, layout.with_frequencies(rows_UD, frequencies[labels]))
    model.labels = replace(model.labels, frequencies=frequencies)
    known.remember(model, texts, vectors_NJ, positives)
    model.know_texts(texts)
    return {
        "num_texts": len(texts),
        "num_pairs": int(positives.nnz),
        "num_labels": len(labels),
        "num_replayed": len(material.vectors_NJ) - len(texts),
        "num_remembered": 0 if scorer.knn is None else len(texts),
    }


def _checked_labels(model: Model, texts: Sequence[str], positives: sparse.csr_array) -> NDArray[np.int64]:
    """The labels to fine-tune, in ascending order."""
    if positives.shape != (len(texts), len(model.labels)):
        raise DataError(
            f"positives must be {len(texts)} texts x {len(model.labels)} labels, but are "
            f"{positives.shape[0]} x {positives.shape[1]}"
        )
    labels: NDArray[np.int64] = np.unique(positives.indices).astype(np.int64)
    if len(labels) == 0:
        raise DataError("there must be at least one pair of a text and a label to teach, but there is none")
    removed = labels[model.labels.removed[labels]]
    if len(removed):
        raise DataError(
            f"labels to teach must be among the model's, but these were removed: {listed(removed.tolist())}"
        )
    return labels


def _distinct(texts: Sequence[str], positives: sparse.csr_array) -> tuple[list[str], sparse.csr_array]:
    """Each text once, with all its labels."""
    number: dict[str, int] = {}
    rows = [number.setdefault(text, len(number)) for text in texts]
    shape = (len(number), len(texts))
    merging = sparse.csr_array((np.ones(len(rows), dtype=np.float32), (rows, np.arange(len(rows)))), shape=shape)
    return list(number), _ones(merging @ canonical(positives, np.float32))


def _encode(model: Model, texts: Sequence[str], what: str) -> NDArray[np.float32]:
    """Vectors of both heads side by side."""
    layout = model.scorer.layout
    blocks = [np.empty((0, layout.num_head_columns), dtype=np.float32)]
    blocks += [layout.side_by_side(vectors) for vectors in model.vector_blocks(texts, what)]
    return np.concatenate(blocks)


def _trained_heads(model: Model) -> dict[Head, float]:
    """The heads with a weight above 0, each with the divisor of its scores in training."""
    heads, layout = model.config.heads, model.scorer.layout
    dual, classifier = np.exp(-as_array(model.vectoriser.log_scales)).tolist()
    as_trained = heads.classifier_normalised == (heads.classifier_search_vectors == "unit")
    temperatures = {"dual": dual, "classifier": classifier if as_trained else TEMPERATURE}
    return {name: temperatures[name] for name in layout.heads if layout.weight(name) > 0}


@dataclass(frozen=True, eq=False)
class _KnownTexts:
    """Which of the new texts the kNN part has already: their ids there, -1 for a text that it does not have."""

    ids_N: NDArray[np.int64]

    @classmethod
    def of(cls, model: Model, vectors_NJ: NDArray[np.float32]) -> _KnownTexts:
        knn = model.scorer.knn
        if knn is None or knn.num_texts == 0:
            return cls(np.full(len(vectors_NJ), -1))
        blocks = [vectors_NJ[start : start + _TEXTS_AT_ONCE] for start in range(0, len(vectors_NJ), _TEXTS_AT_ONCE)]
        return cls(np.concatenate([_same_texts(knn, block_NJ) for block_NJ in blocks]))

    def remember(
        self, model: Model, texts: list[str], vectors_NJ: NDArray[np.float32], positives: sparse.csr_array
    ) -> None:
        """Add the texts and their labels to the kNN part, if the model has one."""
        knn = model.scorer.knn
        if knn is None:
            return
        old, new = np.flatnonzero(self.ids_N >= 0), np.flatnonzero(self.ids_N < 0)
        # A pair that is known has its links already.
        known = knn.positives[self.ids_N[old]].astype(bool)
        model.scorer.learn_links([texts[row] for row in old], sparse.csr_array(positives[old] > positives[old] * known))
        model.scorer.learn_links([texts[row] for row in new], positives[new])
        knn.join(self.ids_N[old], positives[old])
        stored = vectors_NJ[new] * np.float32(model.scorer.layout.knn_scale)
        knn.add(stored, positives[new], [texts[row] for row in new])
        if model.scorer.pretrained is not None:
            # Its texts are those of the kNN part, in the same order.
            model.scorer.pretrained.texts.join(self.ids_N[old], positives[old])
            model.scorer.pretrained.remember([texts[row] for row in new], positives[new])


def _same_texts(knn: KnnPart, vectors_NJ: NDArray[np.float32]) -> NDArray[np.int64]:
    """The id of the known text with the same direction as each vector, -1 where there is none.

    A longer vector may have a higher inner product than the text itself where vectors are not unit vectors, and
    rounding to 8 bits per number changes the length of a vector more than its direction. So the cosine decides.
    """
    near_NK = knn.search(vectors_NJ, min(_COMPARED, knn.num_texts)).ids
    stored_NKJ = knn.vectors(near_NK.ravel()).reshape(*near_NK.shape, -1)
    lengths_NK = np.linalg.norm(vectors_NJ, axis=1)[:, None] * np.linalg.norm(stored_NKJ, axis=2)
    cosines_NK = np.einsum("nj,nkj->nk", vectors_NJ, stored_NKJ) / np.where(lengths_NK > 0, lengths_NK, np.inf)
    rows, best = np.arange(len(near_NK)), cosines_NK.argmax(axis=1)
    return np.where(cosines_NK[rows, best] >= _SAME, near_NK[rows, best], -1)


@dataclass(frozen=True, eq=False)
class _Material:
    """Texts to learn from, new ones first: vectors of both heads, their labels, and the scored pairs."""

    vectors_NJ: NDArray[np.float32]  # N x J, both heads side by side
    positives_NL: sparse.csr_array  # the labels of each text
    text_P: NDArray[np.int64]  # the text of each pair with a fine-tuned label
    label_P: NDArray[np.int64]  # its label, by its place among the fine-tuned labels
    positive_P: NDArray[np.bool_]  # whether the text has it
    num_new: int  # number of new texts


def _gather_material(
    model: Model,
    vectors_NJ: NDArray[np.float32],
    positives_NL: sparse.csr_array,
    chosen: NDArray[np.int64],
    heads: Iterable[Head],
    known: _KnownTexts,
) -> _Material:
    scorer, layout = model.scorer, model.scorer.layout
    # The centre of a label and its new texts, by both heads alike.
    centres_UJ = np.zeros((len(chosen), vectors_NJ.shape[1]), dtype=np.float32)
    rows_UD = scorer.index.vectors(chosen)
    for head in heads:
        centres_UJ += layout.one_head(layout.vectors_of(rows_UD, head), head)
    own_UN = sparse.csr_array(positives_NL[:, chosen].T)
    centres_UJ += (own_UN @ vectors_NJ) / np.diff(own_UN.indptr)[:, None].astype(np.float32)

    vectors, positives = [vectors_NJ], [positives_NL]
    if scorer.knn is not None and scorer.knn.num_texts:
        near = np.unique(scorer.knn.search(centres_UJ, NEAR_TEXTS).ids)
        replayed = np.setdiff1d(near[near >= 0], known.ids_N)
        vectors.append(scorer.knn.vectors(replayed) / np.float32(layout.knn_scale))
        positives.append(_ones(scorer.knn.positives[replayed]))
        there = np.flatnonzero(known.ids_N >= 0)
        spread = sparse.csr_array(
            (np.ones(len(there), dtype=np.float32), (there, known.ids_N[there])),
            shape=(len(vectors_NJ), scorer.knn.num_texts),
        )
        positives[0] = _ones(positives_NL + spread @ scorer.knn.positives)
    near_labels = np.unique(scorer.nearest(centres_UJ, NEAR_LABELS).ids).tolist()
    labels = [label for label in near_labels if label >= 0 and model.labels.texts[label]]
    vectors.append(_encode(model, [model.labels.encoder_text(label) for label in labels], "encoding near labels"))
    positives.append(positives_of([[label] for label in labels], len(model.labels)))
    all_vectors, all_positives = np.concatenate(vectors), canonical(sparse.vstack(positives, format="csr"), np.float32)

    near_UK = search_exact(centres_UJ, all_vectors, min(NEAR_TEXTS, len(all_vectors))).ids
    own_NU = sparse.coo_array(all_positives[:, chosen])
    own = own_NU.coords[0].astype(np.int64) * len(chosen) + own_NU.coords[1]
    near = near_UK.astype(np.int64) * len(chosen) + np.arange(len(chosen))[:, None]
    keys = np.union1d(own, near)
    return _Material(
        all_vectors, all_positives, keys // len(chosen), keys % len(chosen), np.isin(keys, own), len(vectors_NJ)
    )


def _pairs(model: Model, material: _Material, chosen: NDArray[np.int64], head: Head, temperature: float) -> Pairs:
    """The pairs that a head learns from; fixed labels compete as a search by this head finds them."""
    scorer, layout = model.scorer, model.scorer.layout
    texts_ND = layout.head_part(material.vectors_NJ, head)
    rivals = scorer.nearest_by_head(texts_ND, head, RIVALS, forbidden=chosen)
    counted_NK = (rivals.ids >= 0) & ~contains(material.positives_NL, rivals.ids)
    scores_NK = np.where(counted_NK, rivals.scores.astype(np.float64) / temperature, -np.inf)
    held = sparse.coo_array(material.positives_NL)
    stays = ~np.isin(held.coords[1], chosen)
    text_F, label_F = (numbers[stays].astype(np.int64) for numbers in held.coords)
    score_F = pair_scores(
        texts_ND, text_F, lambda labels: layout.vectors_of(scorer.index.vectors(labels), head), label_F
    )
    return Pairs(
        texts_ND,
        material.text_P,
        material.label_P,
        material.positive_P,
        material.positive_P & (material.text_P < material.num_new),
        np.logaddexp.reduce(scores_NK, axis=1),
        text_F,
        score_F / temperature,
        temperature,
    )


def _ones(pairs: Any) -> sparse.csr_array:
    """The same pairs, each with a target of 1."""
    found = canonical(sparse.csr_array(pairs), np.float32)
    return sparse.csr_array((np.ones_like(found.data), found.indices, found.indptr), shape=found.shape)
