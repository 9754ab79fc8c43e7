"""The products of a step are the same bits whenever they are computed: the same seed gives the same model."""

import torch

from unidex.losses import Targets, decoupled_softmax, products
from unidex.losses.gradient import inner_product_loss

NUM_TEXTS, NUM_LABELS, DIM = 160, 700, 64


def step():
    generator = torch.Generator().manual_seed(0)
    texts, labels = (torch.randn(number, DIM, generator=generator) for number in (NUM_TEXTS, NUM_LABELS))
    targets = Targets.of(range(NUM_TEXTS), range(NUM_TEXTS), shape=(NUM_TEXTS, NUM_LABELS))
    return inner_product_loss(texts, labels, torch.tensor(0.3), targets, decoupled_softmax)


def test_a_step_gives_the_same_bits_again():
    # As large as the steps of a real training: smaller products take another way.
    assert NUM_TEXTS * NUM_LABELS * DIM >= products._MIN_TERMS
    first = step()
    for _ in range(3):
        assert all(torch.equal(one, other) for one, other in zip(first, step(), strict=True))
