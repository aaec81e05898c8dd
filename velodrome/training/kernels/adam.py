"""Adam with gradient clipping in one step. On the CPU a kernel updates the weights; elsewhere torch does.

The state has torch's own form and names.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from velodrome.training.kernels.compiled import kernel

Floats = NDArray[np.float32]

_NOTHING = np.float32(1e-30)  # changes no weight; smaller numbers become denormal, which processors are slow with


class Adam(torch.optim.Adam):
    """For one group of weights. `eps` as is usual for PPO."""

    def __init__(self, weights: Iterable[nn.Parameter], lr: float) -> None:
        super().__init__(weights, lr=lr, eps=1e-5, fused=True)
        self._moved: dict[nn.Parameter, tuple[Any, ...]] = {}  # weights and state as arrays, for the kernel
        self._steps = 0

    @torch.no_grad()
    def clipped_step(self, longest: float) -> Tensor:
        """Update the weights by a gradient clipped to `longest`; returns its length."""
        group = self.param_groups[0]
        if group["params"][0].device.type != "cpu":
            norm = nn.utils.clip_grad_norm_(group["params"], longest)
            self.step()
            return norm
        gradients = [(each, each.grad.reshape(-1)) for each in group["params"] if each.grad is not None]
        length = math.sqrt(sum(torch.dot(grad, grad).item() for _, grad in gradients))
        self._steps += 1
        slow, fast = group["betas"]
        rate, unbias = group["lr"] / (1 - slow**self._steps), 1 / math.sqrt(1 - fast**self._steps)
        scale = min(1.0, longest / (length + 1e-6))
        factors: list[Any] = [np.float32(each) for each in (scale, slow, fast, rate, unbias, group["eps"])]
        for weight, grad in gradients:
            arrays = self._moved.get(weight) or self._begun(weight)
            _move(grad.numpy(), *arrays, *factors)
        return torch.tensor(length)

    def _begun(self, weight: nn.Parameter) -> tuple[Any, ...]:
        state = self.state[weight]
        if not state:
            state["step"] = torch.zeros(())
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(weight), torch.zeros_like(weight)
        flat = (weight.detach().view(-1), state["exp_avg"].view(-1), state["exp_avg_sq"].view(-1))
        arrays = self._moved[weight] = tuple(each.numpy() for each in flat)
        return arrays

    def state_dict(self) -> dict[str, Any]:
        for weight in self._moved:
            self.state[weight]["step"].fill_(self._steps)
        return super().state_dict()

    def load_state_dict(self, state_dict: Any) -> None:
        super().load_state_dict(state_dict)
        self._moved.clear()
        self._steps = max((int(state["step"]) for state in self.state.values()), default=0)


@partial(kernel, fastmath={"contract"})
def _move(
    grad: Floats,
    weight: Floats,
    mean: Floats,
    square: Floats,
    scale: np.float32,
    slow: np.float32,
    fast: np.float32,
    rate: np.float32,
    unbias: np.float32,
    eps: np.float32,
) -> None:
    none, one = np.float32(0), np.float32(1)
    for k in range(len(weight)):
        g = grad[k] * scale
        m = slow * mean[k] + (one - slow) * g
        v = fast * square[k] + (one - fast) * g * g
        mean[k] = none if abs(m) < _NOTHING else m
        square[k] = none if v < _NOTHING else v
        weight[k] -= rate * m / (np.sqrt(v) * unbias + eps)
