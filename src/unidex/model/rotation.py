"""Rotation of label vectors: fine-tune the vectors of a few labels on texts, while all others are fixed.

Shapes: N texts, U fine-tuned labels, P pairs of a text and a fine-tuned label, F pairs of a text and a fixed label,
D dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

STRENGTH = 0.2  # length of the step for a text that the label misses wholly, relative to the label's vector
ROUNDS = 16
_PAIRS_AT_ONCE = 1 << 16


@dataclass(frozen=True, eq=False)
class Pairs:
    """The pairs of texts and labels that one head learns from. Scores are divided by the temperature."""

    texts_ND: NDArray[np.float32]  # vectors of texts
    text_P: NDArray[np.int64]  # the text of each pair with a fine-tuned label
    label_P: NDArray[np.int64]  # its label, as a row of the fine-tuned vectors
    positive_P: NDArray[np.bool_]  # whether the text has the label
    new_P: NDArray[np.bool_]  # whether the pair is to be learned; the other pairs only resist changes
    # the logarithm of the sum of exp(score) over fixed labels that the text does not have
    log_rest_N: NDArray[np.float64]
    text_F: NDArray[np.int64]  # the text of each pair with a fixed label that the text has
    score_F: NDArray[np.float64]  # its score
    temperature: float  # the divisor of scores


def rotate(
    vectors_UD: NDArray[np.float32], pairs: Pairs, *, strength: float = STRENGTH, rounds: int = ROUNDS
) -> NDArray[np.float32]:
    """Rotate vectors of labels until the pull of their new texts balances that of the initial vectors.

    Formula, with s the scores, N_i the labels that text i does not have and P_i those that it has::

        Z_i  = sum_{l in N_i} exp(s_il)
        q_ip = exp(s_ip) / (exp(s_ip) + Z_i)
        m_i  = mean over p in P_i of (1 - q_ip)
        g_il = 1 - q_il                       text i has label l
        g_il = -m_i exp(s_il) / Z_i           it does not
        h_il = g_il(v)                        a pair to be learned
        h_il = g_il(v) - g_il(u)              any other
        v_l  = |u_l| unit(unit(u_l) + strength sum_i h_il unit(x_i))        u_l is the vector before

    g is the gradient of decoupled softmax (`unidex.losses.decoupled_softmax`). A text that the label wins already has
    no effect. Pairs that are not to be learned have no pull at the start: an unlabelled pair may still be a true
    positive. They resist changes: a label keeps its known texts, and wins no more texts of other labels than before.
    Each round moves half of the way. A label that would be farther from the balance behind that step than before it
    stays, and halves its steps: where scores are steep (long vectors, a low temperature), whole steps swing ever wider.

    Shapes: vectors_UD [U, D], result [U, D]; lengths of rows do not change.

    References: DEXML (arXiv 2310.10636).

    >>> texts = np.array([[0.6, 0.8]], dtype=np.float32)
    >>> one = np.zeros(1, dtype=np.int64)
    >>> rest = np.array([0.7 / 0.07])  # the best other label has a score of 0.7
    >>> pairs = Pairs(texts, one, one, np.array([True]), np.array([True]), rest, one[:0], np.empty(0), 0.07)
    >>> rotate(np.array([[1.0, 0.0]], dtype=np.float32), pairs, strength=0.3).round(2).tolist()
    [[0.9900000095367432, 0.11999999731779099]]
    """
    lengths_U1 = _lengths(vectors_UD)
    # A label of length 0 gets a direction of length 1.
    lengths_U1 = np.where(lengths_U1 == 0, 1, lengths_U1).astype(np.float32)
    unit_UD, units_ND = vectors_UD / lengths_U1, _unit(pairs.texts_ND)
    shape = (len(vectors_UD), len(pairs.texts_ND))
    before_P = np.where(pairs.new_P, 0, _pull(vectors_UD, pairs))

    def wanted(directions_UD: NDArray[np.float32]) -> NDArray[np.float32]:
        pull_P = (_pull(directions_UD * lengths_U1, pairs) - before_P).astype(np.float32)
        pull_UN = sparse.coo_array((pull_P, (pairs.label_P, pairs.text_P)), shape=shape).tocsr()
        return _unit(unit_UD + np.float32(strength) * (pull_UN @ units_ND))

    rotated_UD, steps_U1 = unit_UD, np.full_like(lengths_U1, 0.5)
    wanted_UD = wanted(rotated_UD)
    for _ in range(rounds):
        tried_UD = _unit((1 - steps_U1) * rotated_UD + steps_U1 * wanted_UD)
        next_UD = wanted(tried_UD)
        is_nearer_U1 = _lengths(next_UD - tried_UD) <= _lengths(wanted_UD - rotated_UD)
        rotated_UD = np.where(is_nearer_U1, tried_UD, rotated_UD)
        wanted_UD = np.where(is_nearer_U1, next_UD, wanted_UD)
        steps_U1 = np.where(is_nearer_U1, steps_U1, steps_U1 / 2)
    result_UD: NDArray[np.float32] = (rotated_UD * lengths_U1).astype(np.float32)
    return result_UD


def _pull(vectors_UD: NDArray[np.float32], pairs: Pairs) -> NDArray[np.float64]:
    """The pull g of `rotate`, one per pair."""
    num_texts, positive_P = len(pairs.texts_ND), pairs.positive_P
    score_P = pair_scores(pairs.texts_ND, pairs.text_P, vectors_UD.__getitem__, pairs.label_P) / pairs.temperature
    negative_P = ~positive_P
    # Powers are taken against the highest negative of the text, so that none overflows.
    highest_N = pairs.log_rest_N.copy()
    np.maximum.at(highest_N, pairs.text_P[negative_P], score_P[negative_P])
    alone_N = np.isneginf(highest_N)
    highest_N[alone_N] = 0
    rest_N = np.exp(pairs.log_rest_N - highest_N)
    power_P = np.exp(np.minimum(score_P - highest_N[pairs.text_P], 50))
    rest_N += np.bincount(pairs.text_P, power_P * negative_P, minlength=num_texts)
    share_P = rest_N[pairs.text_P] / (power_P + rest_N[pairs.text_P])  # 1 - q
    power_F = np.exp(np.minimum(pairs.score_F - highest_N[pairs.text_F], 50))
    share_F = rest_N[pairs.text_F] / (power_F + rest_N[pairs.text_F])
    missed_N = np.bincount(pairs.text_P, share_P * positive_P, minlength=num_texts)
    missed_N += np.bincount(pairs.text_F, share_F, minlength=num_texts)
    count_N = np.bincount(pairs.text_P, positive_P, minlength=num_texts)
    count_N += np.bincount(pairs.text_F, minlength=num_texts)
    mean_N = missed_N / np.maximum(count_N, 1)
    pushed_P = mean_N[pairs.text_P] * power_P / np.maximum(rest_N[pairs.text_P], 1e-300)
    pull_P: NDArray[np.float64] = np.where(positive_P, share_P, -pushed_P)
    return pull_P


def pair_scores(
    texts_ND: NDArray[np.float32],
    text_P: NDArray[np.int64],
    vectors_of: Callable[[NDArray[np.int64]], NDArray[np.float32]],
    label_P: NDArray[np.int64],
) -> NDArray[np.float64]:
    """The inner product of each pair of a text and a label, whose vectors are read block by block.

    >>> table = np.array([[1.0, 2.0], [3.0, 4.0]], dtype=np.float32)
    >>> pair_scores(table, np.array([0, 1, 1]), table.__getitem__, np.array([0, 0, 1])).tolist()
    [5.0, 11.0, 25.0]
    """
    scores_P = np.empty(len(text_P))
    for start in range(0, len(scores_P), _PAIRS_AT_ONCE):
        part = slice(start, start + _PAIRS_AT_ONCE)
        scores_P[part] = np.einsum("pd,pd->p", texts_ND[text_P[part]], vectors_of(label_P[part]))
    return scores_P


def _unit(vectors_ND: NDArray[np.float32]) -> NDArray[np.float32]:
    """Vectors of length 1; a vector of length 0 does not change."""
    lengths_N1 = _lengths(vectors_ND)
    unit_ND: NDArray[np.float32] = (vectors_ND / np.where(lengths_N1 == 0, 1, lengths_N1)).astype(np.float32)
    return unit_ND


def _lengths(vectors_ND: NDArray[np.float32]) -> NDArray[np.float32]:
    """N x 1."""
    found: NDArray[np.float32] = np.linalg.norm(vectors_ND, axis=1, keepdims=True)
    return found
