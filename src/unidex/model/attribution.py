"""Attribution: the contribution of each word of a text to a score.

A label's score by a head is the inner product of the text's vector with the label's. For the bag encoder this splits
exactly into contributions of features; for other encoders gradients approximate the contribution of each token.

Shapes: L labels, U features of the text, M tokens (words of the text), T tokens of an encoder, D dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from unidex.errors import ModelError
from unidex.features.word_places import merged
from unidex.features.word_strings import placed_words
from unidex.nn.encoder_protocol import HasExactAttribution, HasGradientAttribution
from unidex.nn.heads import ClassifierHead, DualHead
from unidex.nn.network import Network

_MIN_LENGTH = 1e-12  # as torch's normalize has it
# Labels whose gradients are computed together: each is one more copy of the text in the pass.
_LABELS_AT_ONCE = 16


@dataclass(frozen=True, eq=False)
class Attribution:
    """The contribution of each word of a text to the scores of labels."""

    starts: NDArray[np.int64]  # M, the first character of each word
    ends: NDArray[np.int64]  # M, the character after it
    scores: NDArray[np.float64]  # L x M, the contribution of each word to the score of each label
    rest: NDArray[np.float64]  # L, the share that belongs to no word. Scores and rest sum to the heads' scores.


def attribute(
    network: Network, text: str, dual_LD: NDArray[np.float32] | None, classifier_LD: NDArray[np.float32] | None
) -> Attribution:
    """Attribute the scores of labels to the words of one text.

    The vectors of labels are those of each head, with its weight; None where a head is not used.
    """
    if isinstance(network.encoder, HasExactAttribution):
        return _by_features(network, text, dual_LD, classifier_LD)
    if isinstance(network.encoder, HasGradientAttribution):
        return _by_gradients(network, text, dual_LD, classifier_LD)
    raise ModelError(
        "an explanation needs an encoder that attributes its vectors to words, but "
        f"{type(network.encoder).__name__} does not; predict without explaining"
    )


def feature_scores(
    encoder: HasExactAttribution,
    head: DualHead | ClassifierHead,
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
    encoded, attribute_features = encoder.linearised(ids_U, weights_U)
    out, slopes = encoded, None
    if head.linear is not None:
        out = _numbers(head.linear.weight) @ encoded + _numbers(head.linear.bias)
        if isinstance(head, DualHead):
            slopes = _tanh_slopes(out)
            out = out * slopes
    # From the label's side: the factor of each number, step by step back to the encoder's vector.
    counts_LD = labels_LD.astype(np.float64)
    rest_L = np.zeros(len(counts_LD))
    if isinstance(head, ClassifierHead) and head.bias:
        rest_L += counts_LD[:, -1]
        counts_LD = counts_LD[:, :-1]
    if head.normalised if isinstance(head, DualHead) else head.searched == "unit":
        counts_LD = counts_LD / max(float(np.linalg.norm(out)), _MIN_LENGTH)
    if head.linear is not None:
        if slopes is not None:
            counts_LD = counts_LD * slopes
        rest_L += counts_LD @ _numbers(head.linear.bias)
        counts_LD = counts_LD @ _numbers(head.linear.weight)
    scores_LU, of_none_L = attribute_features(counts_LD)
    return scores_LU, rest_L + of_none_L


def _by_features(
    network: Network, text: str, dual_LD: NDArray[np.float32] | None, classifier_LD: NDArray[np.float32] | None
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


def _by_gradients(
    network: Network, text: str, dual_LD: NDArray[np.float32] | None, classifier_LD: NDArray[np.float32] | None
) -> Attribution:
    """Gradient x input: to first order, how much the score would fall without a token's vector.

    The contributions are approximate, and the rest is what is left of the score.
    """
    parts = [part for part in (dual_LD, classifier_LD) if part is not None]
    scores_L: list[float] = []
    tokens_LT: list[NDArray[np.float64]] = []
    for start in range(0, len(parts[0]), _LABELS_AT_ONCE):
        block = slice(start, start + _LABELS_AT_ONCE)
        with torch.enable_grad():
            encoded_LD, inputs_LTD = network.encoder.from_embeddings(text, len(parts[0][block]))
            head_scores_L = torch.zeros(len(encoded_LD), device=encoded_LD.device)
            if network.dual is not None and dual_LD is not None:
                head_scores_L = head_scores_L + (network.dual(encoded_LD) * _tensor(dual_LD[block], encoded_LD)).sum(
                    dim=1
                )
            if network.classifier is not None and classifier_LD is not None:
                vectors = network.classifier.as_searched(network.classifier(encoded_LD))
                head_scores_L = head_scores_L + (vectors * _tensor(classifier_LD[block], encoded_LD)).sum(dim=1)
            (slopes_LTD,) = torch.autograd.grad(head_scores_L.sum(), inputs_LTD)
        scores_L += head_scores_L.tolist()
        tokens_LT.append(_numbers((slopes_LTD * inputs_LTD).sum(dim=2)))
    values_LT = np.concatenate(tokens_LT)
    starts, ends = np.array(network.encoder.token_places(text), dtype=np.int64).reshape(-1, 2).T
    column = np.arange(len(starts))
    rest_L = np.array(scores_L) - values_LT.sum(axis=1)
    return _laid_out(text, starts, ends, column, np.ones(len(starts)), values_LT, rest_L)


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


def _numbers(tensor: Tensor) -> NDArray[np.float64]:
    found: NDArray[np.float64] = tensor.detach().cpu().double().numpy()
    return found


def _tensor(array: NDArray[np.float32], like: Tensor) -> Tensor:
    return torch.from_numpy(array).to(like)
