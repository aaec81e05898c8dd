"""Adam over all weights as one vector, with the gradient clipped to a length.

Weights and gradients become views of two flat tensors, so clipping and the step are a few operations however many
layers there are: a third less time than by layer for 64 agents' student of 128.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim.adam import adam


class FlatAdam:
    """torch's Adam. `eps` as is usual for PPO."""

    def __init__(self, weights: Iterable[nn.Parameter], lr: float) -> None:
        layers = list(weights)
        self.lr = lr
        self._flat = torch.cat([each.detach().flatten() for each in layers])
        self._grad, self._mean, self._square = (torch.zeros_like(self._flat) for _ in range(3))
        self._steps = torch.zeros((), device=self._flat.device)
        start = 0
        for each in layers:
            end = start + each.numel()
            each.data = self._flat[start:end].view_as(each)
            each.grad = self._grad[start:end].view_as(each)
            start = end

    def zero_grad(self) -> None:
        self._grad.zero_()

    @torch.no_grad()
    def clipped_step(self, max_norm: float) -> Tensor:
        """Update the weights by a gradient of at most this length; returns the length it had."""
        norm: Tensor = torch.linalg.vector_norm(self._grad)
        scale = ((norm + 1e-6) / max_norm).clamp(min=1.0)  # it divides the gradient
        unclipped = norm.device.type == "cpu" and bool(scale <= 1)  # dividing by one would write the gradient again
        adam(
            [self._flat],
            [self._grad],
            [self._mean],
            [self._square],
            [],
            [self._steps],
            grad_scale=None if unclipped else scale,
            fused=True,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=self.lr,
            weight_decay=0.0,
            eps=1e-5,
            maximize=False,
        )
        return norm

    def state_dict(self) -> dict[str, Tensor]:
        return {"exp_avg": self._mean, "exp_avg_sq": self._square, "step": self._steps}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """A state of other weights is a RuntimeError."""
        self._mean.copy_(state["exp_avg"])
        self._square.copy_(state["exp_avg_sq"])
        self._steps.copy_(state["step"])
