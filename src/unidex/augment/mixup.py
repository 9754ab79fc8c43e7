"""MixUp on what the encoder gives: points between two texts, or between a text and one of its labels.

Shapes: B texts, P labels in the pool, D dimensions, M positive pairs, I ignored pairs.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from unidex.losses import Targets, one_positive


def mix_texts(encoded_BD: Tensor, targets: Targets, alpha: float, rng: np.random.Generator) -> tuple[Tensor, Targets]:
    """Mix each text with another text of the batch, and their targets in the same proportion.

    Formula, with pi a random order of the texts and one lam a batch::

        lam ~ Beta(alpha, alpha)
        x'_i = lam x_i + (1 - lam) x_pi(i)
        y'_i = lam y_i + (1 - lam) y_pi(i)

    A pair is positive where it is one of either text; it is ignored where it is ignored for either and positive for
    neither. The sum of all targets of the batch stays as it was.

    Args:
        encoded_BD: vectors of the texts, before the heads.
        targets: their positive and ignored pairs.
        alpha: near 0 nearly all of a point comes from one of the two texts; at 1 every proportion is as likely.
        rng: of the proportion and the order.

    Returns:
        The mixed vectors, differentiable in ``encoded_BD``, and their targets; pairs are in order of text and label.

    References: MixUp (arXiv 1710.09412), whose listing draws one lam a batch too, and whose authors mix a batch with
    itself in another order; Gandalf (arXiv 2405.04545) compares with it.

    >>> targets = Targets.of([0, 1, 1], [0, 0, 2], shape=(2, 3))
    >>> mixed, new = mix_texts(torch.eye(2), targets, 1.0, np.random.default_rng(1))
    >>> mixed
    tensor([[0.4242, 0.5758],
            [0.5758, 0.4242]])
    >>> new.rows.tolist(), new.columns.tolist(), new.weights
    ([0, 0, 1, 1], [0, 2, 0, 2], tensor([1.0000, 0.5758, 1.0000, 0.4242]))
    """
    lam = _proportion(alpha, rng)
    num_texts, num_labels = targets.shape
    order = rng.permutation(num_texts)
    # Text r is the partner of the text whose place in the order holds r: its pairs go there.
    owner = torch.from_numpy(np.argsort(order)).to(targets.rows.device)
    partner_B = torch.from_numpy(order).to(encoded_BD.device)
    mixed_BD = torch.lerp(encoded_BD[partner_B], encoded_BD, lam)

    rows = torch.cat([targets.rows, owner[targets.rows]])
    pairs, places = torch.unique(rows * num_labels + targets.columns.repeat(2), return_inverse=True)
    # A pair of both texts has two targets, one here and one there; a pair of one has 0 in the other's place.
    own, partners = torch.zeros(2, len(pairs), dtype=targets.weights.dtype, device=pairs.device)
    own[places[: targets.num_positives]] = targets.weights
    partners[places[targets.num_positives :]] = targets.weights
    weights = torch.lerp(partners, own, lam)
    ignored_rows = torch.cat([targets.ignored_rows, owner[targets.ignored_rows]])
    ignored = torch.unique(ignored_rows * num_labels + targets.ignored_columns.repeat(2))
    ignored = ignored[~torch.isin(ignored, pairs, assume_unique=True)]
    return mixed_BD, Targets(
        pairs // num_labels, pairs % num_labels, weights, ignored // num_labels, ignored % num_labels, targets.shape
    )


def mix_labels(
    encoded_BD: Tensor, labels_PD: Tensor, targets: Targets, alpha: float, rng: np.random.Generator
) -> tuple[Tensor, Targets]:
    """Mix each text with the vector of one of its positive labels, drawn in proportion to the targets (Label-MixUp).

    Formula, with l(i) the drawn label of text i and one lam a batch::

        lam ~ Beta(alpha, alpha)
        x'_i  = lam x_i + (1 - lam) z_l(i)
        y'_il = lam y_il + (1 - lam) [l = l(i)]

    A text without a positive in the pool stays as it is. Ignored pairs do not change.

    Args:
        encoded_BD: vectors of the texts, before the heads.
        labels_PD: vectors of the labels of the pool, from the same encoder.
        targets: positive and ignored pairs of texts and pool.
        alpha: near 0 nearly all of a point comes from the text or from the label; at 1 every proportion is as likely.
        rng: of the proportion and the labels.

    Returns:
        The mixed vectors, differentiable in ``encoded_BD`` and ``labels_PD``, and their targets.

    References: Gandalf (arXiv 2405.04545), table of data augmentations; MixUp (arXiv 1710.09412).

    >>> texts, labels = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0], [0.0, 3.0]])
    >>> targets = Targets.of([0], [1], [0.5], shape=(1, 2))
    >>> mixed, new = mix_labels(texts, labels, targets, 1.0, np.random.default_rng(1))
    >>> mixed, new.weights
    (tensor([[0.4242, 1.7275]]), tensor([0.7879]))
    """
    lam = _proportion(alpha, rng)
    num_texts = targets.shape[0]
    generator = torch.Generator(targets.rows.device).manual_seed(int(rng.integers(2**62)))
    drawn_M = one_positive(targets, generator).weights
    # A text has at most one drawn pair, so that a sum over its pairs picks that one without waiting for the device.
    columns_B = torch.zeros(num_texts, dtype=torch.int64, device=drawn_M.device)
    columns_B = columns_B.index_add_(0, targets.rows, targets.columns * drawn_M.to(torch.int64)).to(labels_PD.device)
    from_label_B = (1 - lam) * torch.zeros(num_texts, dtype=drawn_M.dtype, device=drawn_M.device).index_add_(
        0, targets.rows, drawn_M
    )
    mixed_BD = torch.lerp(encoded_BD, labels_PD[columns_B], from_label_B.to(encoded_BD)[:, None])
    return mixed_BD, replace(targets, weights=torch.lerp(drawn_M, targets.weights, lam))


def _proportion(alpha: float, rng: np.random.Generator) -> float:
    if not alpha > 0:
        raise ValueError(f"alpha must be > 0, but is {alpha}; MixUp's paper takes 0.1 to 0.4")
    return float(rng.beta(alpha, alpha))
