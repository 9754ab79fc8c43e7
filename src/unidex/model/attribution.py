"""Attribution: the contribution of each word of a text to a score.

A label's score by a head is the inner product of the text's vector with the label's. For the bag encoder this splits
exactly into contributions of features; for other encoders gradients approximate the contribution of each token.

Shapes: L labels, U features of the text, M tokens (words of the text), T tokens of an encoder, D dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex.errors import ModelError
from unidex.features.word_places import merged
from unidex.features.word_strings import placed_words
from unidex.nn.array_network import ArrayHead

_MIN_LENGTH = 1e-12  # as torch's normalize has it


@dataclass(frozen=True, eq=False)
class Attribution:
    """The contribution of each word of a text to the scores of labels."""

    starts: NDArray[np.int64]  # M, the first character of each word
    ends: NDArray[np.int64]  # M, the character after it
    scores: NDArray[np.float64]  # L x M, the contribution of each word to the score of each label
    rest: NDArray[np.float64]  # L, the share that belongs to no word. Scores and rest sum to the heads' scores.


def attribute(
    network: Any, text: str, dual_LD: NDArray[np.float32] | None, classifier_LD: NDArray[np.float32] | None
) -> Attribution:
    """Attribute the scores of labels to the words of one text.

    The vectors of labels are those of each head, with its weight; None where a head is not used.
    """
    # Protocols of `unidex.nn.encoder_protocol`, by their methods: a check of types would load torch.
    if hasattr(network.encoder, "linearised"):
        return _by_features(network, text, dual_LD, classifier_LD)
    if hasattr(network.encoder, "from_embeddings"):
        from unidex.model.gradient_attribution import token_scores

        starts, ends, values_LT, rest_L = token_scores(network, text, dual_LD, classifier_LD)
        return _laid_out(text, starts, ends, np.arange(len(starts)), np.ones(len(starts)), values_LT, rest_L)
    raise ModelError(
        "an explanation needs an encoder that attributes its vectors to words, but "
        f"{type(network.encoder).__name__} does not; predict without explaining"
    )


def feature_scores(
    encoder: Any,
    head: Any,
    ids_U: NDArray[np.integer[Any]],
    weights_U: NDArray[np.floating[Any]],
    labels_LD: NDArray[np.floating[Any]],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The contribution of each feature of a text to the scores of labels by one head, and the rest.

    The head is a division by a length, which is one number; a linear layer; and a bend, f(y) = g y with
    g = f(y) / y, number by number (for tanh, at most 1). At this very text each is a matrix and perhaps a bias, as the
    steps of the encoder are. So the score is exactly the sum of the features' contributions and the rest.

    Shapes: ids_U and weights_U [U], labels_LD [L, D], results [L, U] and [L].

    References: the rescale rule of DeepLIFT (Shrikumar et al., arXiv 1704.02685), with 0 as its reference.
    """
    head = head if isinstance(head, ArrayHead) else head.arrays()
    encoded, attribute_features = encoder.linearised(ids_U, weights_U)
    out, slopes = encoded, None
    if head.linear is not None:
        out = head.linear.weight.astype(np.float64) @ encoded + head.linear.bias.astype(np.float64)
        if head.is_bent:
            slopes = _tanh_slopes(out)
            out = out * slopes
    # From the label's side: the factor of each number, step by step back to the encoder's vector.
    counts_LD = labels_LD.astype(np.float64)
    rest_L = np.zeros(len(counts_LD))
    if head.bias:
        rest_L += counts_LD[:, -1]
        counts_LD = counts_LD[:, :-1]
    if head.is_unit:
        counts_LD = counts_LD / max(float(np.linalg.norm(out)), _MIN_LENGTH)
    if head.linear is not None:
        if slopes is not None:
            counts_LD = counts_LD * slopes
        rest_L += counts_LD @ head.linear.bias.astype(np.float64)
        counts_LD = counts_LD @ head.linear.weight.astype(np.float64)
    scores_LU, of_none_L = attribute_features(counts_LD)
    return scores_LU, rest_L + of_none_L


def _by_features(
    network: Any, text: str, dual_LD: NDArray[np.float32] | None, classifier_LD: NDArray[np.float32] | None
) -> Attribution:
    encoder = network.encoder
    ids_U, weights_U = encoder.features.transform_one(text)
    own = encoder if network.classifier_encoder is None else network.classifier_encoder
    scores_LU, rest_L = np.zeros((1, len(ids_U))), np.zeros(1)
    for one, head, labels_LD in ((encoder, network.dual, dual_LD), (own, network.classifier, classifier_LD)):
        if head is not None and labels_LD is not None:
            of_features_LU, of_none_L = feature_scores(one, head, ids_U, weights_U, labels_LD)
            scores_LU, rest_L = scores_LU + of_features_LU, rest_L + of_none_L
    placed = encoder.features.placed(text)
    column_O = np.searchsorted(ids_U, placed.features)
    totals_U = np.bincount(column_O, weights=placed.shares, minlength=len(ids_U))
    return _laid_out(text, placed.starts, placed.ends, column_O, placed.shares / totals_U[column_O], scores_LU, rest_L)


def _laid_out(
    text: str,
    starts_O: NDArray[np.int64],
    ends_O: NDArray[np.int64],
    column_O: NDArray[np.int64],
    shares_O: NDArray[np.float64],
    scores_LU: NDArray[np.float64],
    rest_L: NDArray[np.float64],
) -> Attribution:
    """Scores of features at the words where they occur; features without a place are added to the rest."""
    has_place = starts_O >= 0
    starts_O, ends_O, column_O = starts_O[has_place], ends_O[has_place], column_O[has_place]
    shares_O = shares_O[has_place]
    words = placed_words(text)
    all_starts = np.concatenate([starts_O, np.array([start for _, start, _ in words], dtype=np.int64)])
    all_ends = np.concatenate([ends_O, np.array([end for _, _, end in words], dtype=np.int64)])
    starts_M, ends_M = merged(all_starts, all_ends)
    token_O = np.searchsorted(starts_M, starts_O, side="right") - 1
    shape = (scores_LU.shape[1], len(starts_M))
    shares_UM = sparse.coo_array((shares_O, (column_O, token_O)), shape=shape).tocsr()
    placed_U = np.bincount(column_O, weights=shares_O, minlength=shape[0])
    # Words without a feature are left out.
    used = np.unique(token_O)
    scores_LM = np.asarray(scores_LU @ shares_UM)[:, used]
    return Attribution(starts_M[used], ends_M[used], scores_LM, rest_L + scores_LU @ (1 - placed_U))


def _tanh_slopes(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """tanh(y) / y, and 1 for y = 0.

    >>> _tanh_slopes(np.array([0.0, 1.0])).round(4).tolist()
    [1.0, 0.7616]
    """
    is_zero = values == 0
    slopes: NDArray[np.float64] = np.where(is_zero, 1.0, np.tanh(values) / np.where(is_zero, 1.0, values))
    return slopes
