"""AdamW for dense parameters, as torch.optim.AdamW with fused=True, bit for bit.

The first optimiser of torch.optim imports torch's compiler, which nothing here uses: 2 CPU seconds and 70 MB of every
training.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_BETAS, _EPSILON = (0.9, 0.999), 1e-8


@dataclass(frozen=True)
class Group:
    """Parameters with the same learning rate and weight decay."""

    parameters: list[torch.nn.Parameter]
    lr: float
    decay: float


class AdamW:
    """Decoupled weight decay (Loshchilov and Hutter, arXiv 1711.05101) with one pass over each tensor.

    For the 22 million weights of a small transformer on a CPU a step takes 20 ms; an operation after the other, 130.
    """

    def __init__(self, groups: list[Group]) -> None:
        self._groups = groups
        self.parameters = [parameter for group in groups for parameter in group.parameters]
        self._state: dict[int, dict[str, Tensor]] = {}  # by the place of a parameter; none before its first gradient

    def step(self, factor: float) -> None:
        """Move the parameters that have gradients; learning rates are multiplied by the factor."""
        number = 0
        for group in self._groups:
            for parameter in group.parameters:
                if parameter.grad is not None:
                    self._move(number, parameter, parameter.grad, group.lr * factor, group.decay)
                number += 1

    @torch.no_grad()
    def _move(self, number: int, parameter: Tensor, gradient: Tensor, lr: float, decay: float) -> None:
        if number not in self._state:
            self._state[number] = {
                "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
        state = self._state[number]
        state["step"] += 1
        torch._fused_adamw_(
            [parameter],
            [gradient],
            [state["exp_avg"]],
            [state["exp_avg_sq"]],
            [],
            [state["step"]],
            lr=lr,
            beta1=_BETAS[0],
            beta2=_BETAS[1],
            weight_decay=decay,
            eps=_EPSILON,
            amsgrad=False,
            maximize=False,
        )

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    def state(self) -> dict[str, Tensor]:
        """Steps and moments as tensors by name."""
        return {f"{number}.{key}": value for number, own in self._state.items() for key, value in own.items()}

    def load(self, state: dict[str, Tensor]) -> None:
        """Take a saved state."""
        self._state = {}
        for name, value in state.items():
            number, key = name.split(".")
            # The number of steps is float32 whatever the parameters are.
            dtype = torch.float32 if key == "step" else self.parameters[int(number)].dtype
            own = self._state.setdefault(int(number), {})
            own[key] = value.to(device=self.parameters[int(number)].device, dtype=dtype, copy=True)
