"""MixUp on what the encoder gives: points between two texts, or between a text and one of its labels.

Shapes: B texts, P labels in the pool, D dimensions, M positive pairs, I ignored pairs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from unidex.config import Augment
from unidex.losses import Targets, one_positive


@dataclass(frozen=True, eq=False)
class Mixture:
    """How the texts of a batch are mixed, each with a partner."""

    partners_B: Tensor  # the place of each text's partner, among the texts or in the pool
    is_with_labels: bool  # whether partners are labels
    share: float | Tensor  # how much of a text is its own, or, with labels, how much is its label's, B
    targets: Targets  # the mixed targets

    def mix(self, texts_BD: Tensor, partners_BD: Tensor) -> Tensor:
        """The mixed vectors, differentiable in both."""
        if isinstance(self.share, Tensor):
            return torch.lerp(texts_BD, partners_BD, self.share.to(texts_BD)[:, None])
        return torch.lerp(partners_BD, texts_BD, self.share)


def draw_mixture(settings: Augment, targets: Targets, rng: np.random.Generator) -> Mixture | None:
    """The mixture of a step, or None where a recipe asks for none."""
    if settings.mixup == "none":
        return None
    draw = mixture_of_texts if settings.mixup == "texts" else mixture_with_labels
    return draw(targets, settings.mixup_alpha, rng)


def mixture_of_texts(targets: Targets, alpha: float, rng: np.random.Generator) -> Mixture:
    """Mix each text with another text of the batch, and their targets in the same proportion.

    Formula, with pi a random order of the texts and one lam per batch::

        lam ~ Beta(alpha, alpha)
        x'_i = lam x_i + (1 - lam) x_pi(i)
        y'_i = lam y_i + (1 - lam) y_pi(i)

    A pair is positive where it is one of either text; it is ignored where it is ignored for either and positive for
    neither. The sum of all targets of the batch stays as it was.

    Near 0, ``alpha`` gives nearly all of a point to one of the two texts; at 1 every proportion is as likely.

    The pairs of the mixture are in order of text and label.

    References: MixUp (arXiv 1710.09412), whose listing draws one lam per batch too, and whose authors mix a batch with
    itself in another order; Gandalf (arXiv 2405.04545) compares with it.

    >>> targets = Targets.of([0, 1, 1], [0, 0, 2], shape=(2, 3))
    >>> mixture = mixture_of_texts(targets, 1.0, np.random.default_rng(1))
    >>> mixture.mix(torch.eye(2), torch.eye(2)[mixture.partners_B])
    tensor([[0.4242, 0.5758],
            [0.5758, 0.4242]])
    >>> new = mixture.targets
    >>> new.rows.tolist(), new.columns.tolist(), new.weights
    ([0, 0, 1, 1], [0, 2, 0, 2], tensor([1.0000, 0.5758, 1.0000, 0.4242]))
    """
    lam = _proportion(alpha, rng)
    num_texts, num_labels = targets.shape
    order = rng.permutation(num_texts)
    # Text r is the partner of the text whose place in the order holds r: its pairs go there.
    owner = torch.from_numpy(np.argsort(order)).to(targets.rows.device)
    rows = torch.cat([targets.rows, owner[targets.rows]])
    pairs, places = torch.unique(rows * num_labels + targets.columns.repeat(2), return_inverse=True)
    # A pair of both texts has two targets, one here and one there; a pair of one has 0 in the other's place.
    own, partners = torch.zeros(2, len(pairs), dtype=targets.weights.dtype, device=pairs.device)
    own[places[: targets.num_positives]] = targets.weights
    partners[places[targets.num_positives :]] = targets.weights
    ignored_rows = torch.cat([targets.ignored_rows, owner[targets.ignored_rows]])
    ignored = torch.unique(ignored_rows * num_labels + targets.ignored_columns.repeat(2))
    ignored = ignored[~torch.isin(ignored, pairs, assume_unique=True)]
    mixed = Targets(
        pairs // num_labels,
        pairs % num_labels,
        torch.lerp(partners, own, lam),
        ignored // num_labels,
        ignored % num_labels,
        targets.shape,
    )
    return Mixture(torch.from_numpy(order), False, lam, mixed)


def mixture_with_labels(targets: Targets, alpha: float, rng: np.random.Generator) -> Mixture:
    """Mix each text with the vector of one of its positive labels, drawn in proportion to the targets (Label-MixUp).

    Formula, with l(i) the drawn label of text i and one lam per batch::

        lam ~ Beta(alpha, alpha)
        x'_i  = lam x_i + (1 - lam) z_l(i)
        y'_il = lam y_il + (1 - lam) [l = l(i)]

    A text without a positive in the pool stays as it is. Ignored pairs do not change.

    References: Gandalf (arXiv 2405.04545), table of data augmentations; MixUp (arXiv 1710.09412).

    >>> texts, labels = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0], [0.0, 3.0]])
    >>> targets = Targets.of([0], [1], [0.5], shape=(1, 2))
    >>> mixture = mixture_with_labels(targets, 1.0, np.random.default_rng(1))
    >>> mixture.mix(texts, labels[mixture.partners_B]), mixture.targets.weights
    (tensor([[0.4242, 1.7275]]), tensor([0.7879]))
    """
    lam = _proportion(alpha, rng)
    num_texts = targets.shape[0]
    generator = torch.Generator(targets.rows.device).manual_seed(int(rng.integers(2**62)))
    drawn_M = one_positive(targets, generator).weights
    # A text has at most one drawn pair, so that a sum over its pairs picks that one without waiting for the device.
    columns_B = torch.zeros(num_texts, dtype=torch.int64, device=drawn_M.device)
    columns_B = columns_B.index_add_(0, targets.rows, targets.columns * drawn_M.to(torch.int64))
    from_label_B = (1 - lam) * torch.zeros(num_texts, dtype=drawn_M.dtype, device=drawn_M.device).index_add_(
        0, targets.rows, drawn_M
    )
    mixed = replace(targets, weights=torch.lerp(drawn_M, targets.weights, lam))
    return Mixture(columns_B, True, from_label_B, mixed)


def _proportion(alpha: float, rng: np.random.Generator) -> float:
    if not alpha > 0:
        raise ValueError(f"alpha must be > 0, but is {alpha}; MixUp's paper takes 0.1 to 0.4")
    return float(rng.beta(alpha, alpha))
