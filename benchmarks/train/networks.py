"""The student's network for other trainers, in two ways.

`same`: our own module, compiled kernels and all. `written`: the same layers and sizes as one writes them in plain
torch, with a one-hot of the cells before a linear layer.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.train.cases import Case, settings_of
from velodrome.training.envs.interface import Spec
from velodrome.training.network.policy import Policy


class OneHot(nn.Module):
    """Bytes of a view as one long vector: which code each cell shows, then the numbers from 0 to 1."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.cells = spec.window * spec.window
        self.size = self.cells * (spec.codes - 1) + spec.features
        self.codes: Tensor
        self.register_buffer("codes", torch.arange(1, spec.codes, dtype=torch.uint8))

    def forward(self, obs: Tensor) -> Tensor:
        seen = obs[:, : self.cells, None].eq(self.codes).flatten(1)
        return torch.cat((seen.float(), obs[:, self.cells :].float() / 255), 1)


class Written(nn.Module):
    """Logits and values."""

    def __init__(self, case: Case, spec: Spec) -> None:
        super().__init__()
        hidden = settings_of(case).policy.hidden
        self.apart = case.env == "cartpole"
        first: list[nn.Module] = [] if self.apart else [OneHot(spec)]
        width = spec.obs_shape[0] if self.apart else OneHot(spec).size
        bend = nn.Tanh if self.apart else nn.ReLU

        def trunk() -> nn.Sequential:
            return nn.Sequential(*first, nn.Linear(width, hidden), bend(), nn.Linear(hidden, hidden), bend())

        self.body = trunk()
        self.values_body = trunk() if self.apart else None
        self.actor = nn.Linear(hidden, spec.actions.width)
        self.critic = nn.Linear(hidden, 1)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        x = self.body(obs)
        return self.actor(x), self.critic(x if self.values_body is None else self.values_body(obs)).squeeze(1)


class Same(nn.Module):
    """Ours, without the memory it does not have here."""

    def __init__(self, case: Case, spec: Spec) -> None:
        super().__init__()
        self.policy = Policy(settings_of(case).policy, spec, torch.Generator().manual_seed(1))

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        logits, values, _ = self.policy(obs)
        return logits, values


def network(variant: str, case: Case, spec: Spec) -> nn.Module:
    return Same(case, spec) if variant == "same" else Written(case, spec)
