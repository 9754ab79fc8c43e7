"""Linear layers by either library are the same, forward and backward, and nothing else is answered."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn

from helpers.tiny_transformer import TEXTS, loaded, write_tiny
from unidex.encoders import transformer
from unidex.losses import products
from unidex.nn import linear_layers
from unidex.nn.linear_layers import LinearLayers, faster_linear_layers

one_dnn = pytest.mark.skipif(products._by_one_dnn() is None, reason="this torch was built without oneDNN")


@pytest.fixture
def answered(monkeypatch):
    """The shapes of the products that the faster library was asked for, however small they are."""
    monkeypatch.setattr(linear_layers, "_MIN_TERMS", 0)
    shapes, compiled = [], products._by_one_dnn()

    def counted(x, w, bias=None):
        shapes.append((*x.shape, len(w)))
        return compiled(x, w, bias)

    counted.shapes = shapes
    return counted


def stack(*, bias):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 20, bias=bias), nn.GELU(), nn.Linear(20, 8, bias=bias))


def gradients(layers, x):
    x = x.clone().requires_grad_()
    layers.zero_grad()
    found = layers(x)
    (found * torch.arange(found.numel()).view_as(found)).sum().backward()
    return [found.detach(), x.grad, *(weight.grad.clone() for weight in layers.parameters() if weight.requires_grad)]


@one_dnn
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(7, 12), (3, 5, 12)])
def test_gradients_are_those_of_torch(shape, bias, answered):
    layers, x = stack(bias=bias), torch.randn(*shape, generator=torch.Generator().manual_seed(1))
    expected = gradients(layers, x)
    assert not answered.shapes
    with LinearLayers(answered):
        found = gradients(layers, x)
    assert len(answered.shapes) == 6
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@one_dnn
def test_gradients_agree_with_finite_differences(answered):
    torch.manual_seed(0)
    layer, x = nn.Linear(4, 3), torch.randn(5, 4, requires_grad=True)
    with LinearLayers(answered):
        layer(x).pow(2).sum().backward()

    def value(moved):
        with torch.no_grad():
            return float((layer.double()(moved.double())).pow(2).sum())

    for row, column in ((0, 0), (2, 3), (4, 1)):
        step = torch.zeros(5, 4)
        step[row, column] = 1e-3
        slope = (value(x.detach() + step) - value(x.detach() - step)) / 2e-3
        assert float(x.grad[row, column]) == pytest.approx(slope, rel=1e-3, abs=1e-3)


@one_dnn
def test_weights_that_do_not_learn_have_no_product(answered):
    layers, x = stack(bias=True), torch.randn(7, 12)
    layers[0].requires_grad_(False)
    with LinearLayers(answered):
        layers(x).sum().backward()
    # Two products forward, and back the one of the only weights that learn: nothing before them does.
    assert len(answered.shapes) == 3
    assert layers[0].weight.grad is None
    assert layers[2].weight.grad is not None


@one_dnn
def test_small_products_and_other_types_are_those_of_torch(answered, monkeypatch):
    layer = nn.Linear(12, 20)
    with torch.no_grad(), LinearLayers(answered):
        assert torch.equal(layer.double()(torch.ones(3, 12).double()), layer(torch.ones(3, 12).double()))
        assert not answered.shapes
        monkeypatch.setattr(linear_layers, "_MIN_TERMS", 3 * 12 * 20 + 1)
        layer.float()(torch.ones(3, 12))
        assert not answered.shapes
        layer(torch.ones(4, 12))
        assert answered.shapes == [(4, 12, 20)]


def test_nothing_is_answered_where_torch_is_as_fast(monkeypatch):
    monkeypatch.setattr(linear_layers, "rows_with_rows", lambda: None)
    with faster_linear_layers(torch.device("cpu")) as mode:
        assert mode is None
    monkeypatch.setattr(linear_layers, "rows_with_rows", lambda: pytest.fail("not for this device"))
    with faster_linear_layers(torch.device("meta")) as mode:
        assert mode is None


@one_dnn
@pytest.mark.parametrize("setting", [{}, {"gradient_checkpointing": True}, {"autocast": "bfloat16"}])
def test_a_transformer_has_the_same_vectors_and_gradients(setting, answered, monkeypatch, tmp_path):
    folder = write_tiny(tmp_path)

    def trained(mode):
        monkeypatch.setattr(transformer, "faster_linear_layers", mode)
        encoder = loaded(folder, max_length=8, own_dropout=False, **setting).train()
        vectors = encoder(encoder.prepare(TEXTS))
        vectors.square().sum().backward()
        return [vectors.detach(), *(weight.grad for weight in encoder.parameters() if weight.grad is not None)]

    expected = trained(lambda device: nullcontext())
    assert not answered.shapes
    found = trained(lambda device: LinearLayers(answered))
    # Recomputed layers must save what they saved before, and half precision has products of its own.
    assert bool(answered.shapes) == (not setting)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
