"""The loss on inner products of texts and labels."""

import numpy as np
import torch

from unidex.losses import decoupled_softmax
from unidex.losses.gradient import inner_product_loss


def test_filter_pairs_are_not_pushed_down():
    # Label 1's text is a filter pair of the text: its score must get no gradient, neither up nor down.
    from scipy import sparse

    from unidex.pools.pool import make_targets

    positives = sparse.csr_array(np.array([[1, 0, 0]], dtype=np.float32))
    filters = sparse.csr_array(np.array([[False, True, False]]))
    targets = make_targets(positives, filters, np.array([0]), np.array([0, 1, 2]))
    text = torch.tensor([[0.3, 0.9, 0.1]])
    gradient = inner_product_loss(text, torch.eye(3), torch.tensor(5.0), targets, decoupled_softmax).labels_LD
    assert gradient[1].abs().max() == 0
    assert gradient[2].abs().max() > 0


def test_inner_product_loss_equals_autograd_through_the_scores():
    torch.manual_seed(0)
    texts = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    labels = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    scale = torch.tensor(2.5, dtype=torch.float64, requires_grad=True)
    from unidex.losses import Targets, differentiable

    targets = Targets.of([0, 1, 1, 3], [0, 2, 4, 1], shape=(4, 5))
    plain = differentiable(decoupled_softmax)(scale * texts @ labels.T, targets)
    plain.backward()
    found = inner_product_loss(texts, labels, scale, targets, decoupled_softmax)
    torch.testing.assert_close(found.value, plain.detach())
    for gradient, leaf in zip(found[1:], (texts, labels, scale), strict=True):
        torch.testing.assert_close(gradient, leaf.grad)
