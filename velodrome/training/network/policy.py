"""The student: an encoder of observations, a core, and two heads for actions and values.

Weights come from one generator and actions from another; nothing here uses a global one. The actor's outputs are the
logits of all options, or means and logs of deviations: `distribution` says what they mean.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from velodrome.errors import InputError
from velodrome.training.envs.interface import Spec
from velodrome.training.network.distributions import Categorical, Distribution, Gaussian
from velodrome.training.network.encoders import linear, make_encoder, make_lstm, make_normalizer
from velodrome.training.settings import PolicySettings


class Policy(nn.Module):
    """One step at a time for acting (`forward`), many at once for learning (`sequence`)."""

    def __init__(self, settings: PolicySettings, spec: Spec, generator: torch.Generator) -> None:
        super().__init__()
        self.hidden, self.actions = settings.hidden, spec.actions
        self.recurrent = settings.core == "lstm"
        self.normalizer = make_normalizer(settings, spec)
        self.encoder = make_encoder(settings, spec, generator)
        self._activation = torch.tanh_ if spec.layout == "vector" else torch.relu_
        self.core: nn.Module
        if self.recurrent:
            self.core = make_lstm(self.hidden, generator)
        else:
            self.core = linear(self.hidden, self.hidden, math.sqrt(2), generator)
        self.critic = Critic(settings, spec, generator) if _apart(settings, spec) else None
        width = spec.actions.width
        rows = width + (self.critic is None)  # the actor's and, if shared, the critic's: one product
        self.heads = nn.Linear(self.hidden, rows, device="meta").to_empty(device="cpu")
        with torch.no_grad():
            nn.init.orthogonal_(self.heads.weight[:width], 0.01, generator=generator)
            nn.init.zeros_(self.heads.bias)
            if self.critic is None:
                nn.init.orthogonal_(self.heads.weight[-1:], 1.0, generator=generator)
        deviations = torch.zeros(width)
        self.log_std = nn.Parameter(deviations) if spec.actions.continuous else None

    def distribution(self, outputs_BO: Tensor, mask_BA: Tensor | None = None) -> Distribution:
        """Over the actions, from the actor's outputs; `mask_BA` is True where an option is allowed."""
        if self.actions.continuous:
            return Gaussian(outputs_BO)
        return Categorical(outputs_BO, self.actions.sizes, mask_BA)

    def initial_state(self, n: int) -> Tensor | None:
        """The initial memory: 2 x n x hidden; None without one."""
        return torch.zeros(2, n, self.hidden, device=self.heads.weight.device) if self.recurrent else None

    def forward(
        self, obs_N: Tensor, state: Tensor | None = None, starts_N: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """One step: outputs, values, and the state after it. Where an episode has just begun, `state` is reset."""
        obs_N = obs_N if self.normalizer is None else self.normalizer(obs_N)
        x_NH = self._activation(self.encoder(obs_N))
        if isinstance(self.core, nn.LSTM):
            assert state is not None, "an lstm needs its state; initial_state makes one"
            h, c = state if starts_N is None else state * (~starts_N).unsqueeze(-1)
            h, c = self._remember(self.core, x_NH, h, c)
            x_NH, state = h, torch.stack((h, c))
        else:
            x_NH = self._activation(self.core(x_NH))
        return (*self._outputs(x_NH, obs_N), state)

    def sequence(self, obs_TN: Tensor, starts_TN: Tensor | None, state: Tensor | None) -> tuple[Tensor, Tensor]:
        """Outputs and values of whole sequences, from the state each began with; one row for each of T x N."""
        steps, columns = obs_TN.shape[:2]
        obs_B = obs_TN.flatten(0, 1)
        obs_B = obs_B if self.normalizer is None else self.normalizer(obs_B)
        x_BH = self._activation(self.encoder(obs_B))
        if isinstance(self.core, nn.LSTM):
            assert state is not None, "an lstm needs the state a sequence began with"
            assert starts_TN is not None, "an lstm needs to know where episodes began"
            x_TNH = x_BH.view(steps, columns, -1)
            x_BH = self._recall(self.core, x_TNH, starts_TN, state).flatten(0, 1)
        else:
            x_BH = self._activation(self.core(x_BH))
        return self._outputs(x_BH, obs_B)

    def _outputs(self, x_BH: Tensor, obs_B: Tensor) -> tuple[Tensor, Tensor]:
        outputs_BO = self.heads(x_BH).float()
        if self.critic is not None:
            values_B = self.critic(obs_B)
        else:
            outputs_BO, value_B1 = outputs_BO.split((self.actions.width, 1), 1)
            values_B = value_B1.squeeze(1)
        if self.log_std is not None:
            outputs_BO = torch.cat((outputs_BO, self.log_std.expand_as(outputs_BO)), 1)
        return outputs_BO, values_B

    @staticmethod
    def _remember(lstm: nn.LSTM, x_NH: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """The LSTM for one step: a cell takes half the time of `nn.LSTM`."""
        weights: tuple[Tensor, ...] = tuple(lstm.parameters())
        return torch.lstm_cell(x_NH, (h, c), *weights)

    @staticmethod
    def _recall(lstm: nn.LSTM, x_TNH: Tensor, starts_TN: Tensor, state: Tensor) -> Tensor:
        """The LSTM over time, cut wherever an episode began: whole pieces take a third of the time of single steps."""
        steps = len(x_TNH)
        cuts = [t for t, start in enumerate(starts_TN.any(1).tolist()) if start and t]
        h, c = state.unsqueeze(1)
        seen_TNH = []
        for start, end in zip([0, *cuts], [*cuts, steps], strict=True):
            keep_N1 = (~starts_TN[start]).unsqueeze(-1)
            out, (h, c) = lstm(x_TNH[start:end], (h * keep_N1, c * keep_N1))
            seen_TNH.append(out)
        return torch.cat(seen_TNH) if cuts else seen_TNH[0]


class Critic(nn.Module):
    """A critic that shares nothing with the actor, so large returns cannot drown what the actor learns."""

    def __init__(self, settings: PolicySettings, spec: Spec, generator: torch.Generator) -> None:
        super().__init__()
        self.encoder = make_encoder(settings, spec, generator)
        self.core = linear(settings.hidden, settings.hidden, math.sqrt(2), generator)
        self.head = linear(settings.hidden, 1, 1.0, generator)
        self._activation = torch.tanh_ if spec.layout == "vector" else torch.relu_

    def forward(self, obs_B: Tensor) -> Tensor:
        values_B: Tensor = (
            self.head(self._activation(self.core(self._activation(self.encoder(obs_B))))).float().squeeze(1)
        )
        return values_B


def _apart(settings: PolicySettings, spec: Spec) -> bool:
    if settings.critic == "apart" and settings.core == "lstm":
        raise InputError("policy.critic=apart: would have no memory beside policy.core=lstm; use policy.critic=shared")
    return settings.critic == "apart" or (settings.critic, settings.core, spec.layout) == ("auto", "mlp", "vector")
