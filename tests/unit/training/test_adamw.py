import pytest
import torch

from unidex.training.adamw import AdamW, Group


def parameters(seed=0):
    rng = torch.Generator().manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(shape, generator=rng)) for shape in ((3, 5), (7,), (2, 2, 2), (4,))]


def give_gradients(own, step):
    """A parameter without a gradient at every second step, and one that never has one."""
    rng = torch.Generator().manual_seed(100 + step)
    for number, parameter in enumerate(own[:3]):
        has_gradient = number != 1 or step % 2
        gradient = torch.randn(parameter.shape, generator=rng)
        parameter.grad = gradient if has_gradient else None


def steps(own, optimiser, first, last):
    for step in range(first, last):
        give_gradients(own, step)
        factor = 1 / (step + 1)
        if isinstance(optimiser, AdamW):
            optimiser.step(factor)
        else:
            for group in optimiser.param_groups:
                group["lr"] = group["full_lr"] * factor
            optimiser.step()
        optimiser.zero_grad()
        assert all(parameter.grad is None for parameter in own)


@pytest.mark.parametrize("is_resumed", [False, True])
def test_adamw_is_that_of_torch_bit_for_bit(is_resumed):
    own, expected = parameters(), parameters()
    groups = [Group([own[0], own[2]], 0.1, 0.01), Group([own[1], own[3]], 0.02, 0.0)]
    options = [
        {"params": [expected[0], expected[2]], "lr": 0.1, "full_lr": 0.1, "weight_decay": 0.01},
        {"params": [expected[1], expected[3]], "lr": 0.02, "full_lr": 0.02, "weight_decay": 0.0},
    ]
    reference = torch.optim.AdamW(options, fused=True)
    optimiser = AdamW(groups)
    steps(own, optimiser, 0, 4)
    if is_resumed:
        state = {name: value.clone() for name, value in optimiser.state().items()}
        optimiser = AdamW(groups)
        optimiser.load(state)
        # What was saved is copied, not used.
        for value in state.values():
            value.fill_(float("nan"))
    steps(own, optimiser, 4, 8)
    steps(expected, reference, 0, 8)
    assert [one.tolist() for one in own] == [one.tolist() for one in expected]
    names = {f"{number}.{key}" for number in (0, 1, 2) for key in ("step", "exp_avg", "exp_avg_sq")}
    assert set(optimiser.state()) == names


def test_states_of_torch_can_be_taken_over():
    """Checkpoints of former versions hold them under the same names."""
    own, expected = parameters(), parameters()
    reference = torch.optim.AdamW([{"params": expected, "full_lr": 0.1}], fused=True)
    steps(expected, reference, 0, 3)
    saved = reference.state_dict()["state"]
    optimiser = AdamW([Group(own, 0.1, 0.01)])
    for parameter, value in zip(own, expected, strict=True):
        parameter.data.copy_(value)
    optimiser.load({f"{number}.{key}": value for number, one in saved.items() for key, value in one.items()})
    steps(own, optimiser, 3, 5)
    steps(expected, reference, 3, 5)
    assert [one.tolist() for one in own] == [one.tolist() for one in expected]
