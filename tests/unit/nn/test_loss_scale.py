"""Loss scaling: gradients that float16 cannot hold, steps that are left out, and a scale that follows."""

import torch
from torch import nn

from unidex.nn import loss_scale
from unidex.nn.loss_scale import FIRST_SCALE, LossScale


def half_layer(scaled):
    """A linear layer whose gradients pass through float16, as under autocast."""
    torch.manual_seed(0)
    layer = nn.Linear(4, 4, bias=False)
    scale = LossScale(layer.parameters()) if scaled else None

    def run(x):
        y = (x.half() @ layer.weight.half().T).float()
        return y if scale is None else scale(y)

    return layer, run, scale


def test_small_gradients_survive_only_with_a_scale():
    x = torch.ones(2, 4)
    plain, plain_run, _ = half_layer(scaled=False)
    plain_run(x).mul(1e-9).sum().backward()
    assert plain.weight.grad.abs().max() == 0
    layer, run, _ = half_layer(scaled=True)
    run(x).mul(1e-9).sum().backward()
    torch.testing.assert_close(layer.weight.grad, torch.full((4, 4), 2e-9), rtol=1e-2, atol=0)


def test_weights_that_do_not_learn_stay_out_of_it():
    layers = nn.Sequential(nn.Linear(2, 2).requires_grad_(False), nn.Linear(2, 1, bias=False))
    scale = LossScale(layers.parameters())
    inputs = torch.ones(1, 2)
    scale(layers(inputs)).sum().backward()
    torch.testing.assert_close(layers[1].weight.grad, layers[0](inputs))


def test_the_scale_halves_on_an_infinite_gradient_and_doubles_after_good_steps(monkeypatch):
    layer, run, scale = half_layer(scaled=True)
    run(torch.ones(1, 4)).mul(1e3).sum().backward()
    assert not scale.judge(layer.parameters())
    assert scale.scale == FIRST_SCALE / 2
    monkeypatch.setattr(loss_scale, "_GROW_AFTER", 2)
    for _ in range(2):
        layer.zero_grad()
        run(torch.ones(1, 4)).sum().backward()
        assert scale.judge(layer.parameters())
    assert scale.scale == FIRST_SCALE
    assert scale.good_steps == 0
    assert set(scale.state_dict()) == {"scale", "good_steps"}
