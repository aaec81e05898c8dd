"""The student: an encoder of observations, a core, and two heads for actions and values.

Weights come from one generator and actions from another; nothing here uses a global one.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from velodrome.errors import InputError
from velodrome.training.envs.interface import Spec
from velodrome.training.kernels.cells import add_cells, seen
from velodrome.training.kernels.chain import Chain, fits, through
from velodrome.training.kernels.compiled import kernel
from velodrome.training.machine import lstm_in_half
from velodrome.training.settings import PolicySettings

_ENCODERS = {"tokens": ("tokens", "cnn"), "planes": ("cnn",), "vector": ("vector",)}  # the first is what auto takes
_LARGE_IMAGE = 36  # pixels; below this an image is a small grid, in which every cell counts


class Policy(nn.Module):
    """One step at a time for acting (`forward`), many at once for learning (`sequence`)."""

    def __init__(self, settings: PolicySettings, spec: Spec, generator: torch.Generator) -> None:
        super().__init__()
        self.hidden = settings.hidden
        self.num_actions = spec.actions.width
        self.recurrent = settings.core == "lstm"
        self._half_lstm = self.recurrent and lstm_in_half()
        self.encoder = make_encoder(settings, spec, generator)
        self._activation = torch.tanh if spec.layout == "vector" else torch.relu
        self.core: nn.Module
        if self.recurrent:
            self.core = _lstm(self.hidden, generator)
        else:
            self.core = _linear(self.hidden, self.hidden, math.sqrt(2), generator)
        self.critic = Critic(settings, spec, generator) if _apart(settings, spec) else None
        rows = self.num_actions + (self.critic is None)  # the actor's and, if shared, the critic's: one product
        self.heads = nn.Linear(self.hidden, rows, device="meta").to_empty(device="cpu")
        with torch.no_grad():
            nn.init.orthogonal_(self.heads.weight[: self.num_actions], 0.01, generator=generator)
            nn.init.zeros_(self.heads.bias)
            if self.critic is None:
                nn.init.orthogonal_(self.heads.weight[-1:], 1.0, generator=generator)

    def initial_state(self, n: int) -> Tensor | None:
        """The initial memory: 2 x n x hidden; None without one."""
        return torch.zeros(2, n, self.hidden, device=self.heads.weight.device) if self.recurrent else None

    def forward(
        self, obs_N: Tensor, state: Tensor | None = None, begun_N: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """One step: logits, values, and the state after it. Where an episode has just begun, `state` is reset."""
        outputs = self._by_kernels(obs_N)
        if outputs is not None:
            return (*outputs, state)
        x_NH = self._activation(self.encoder(obs_N))
        if isinstance(self.core, nn.LSTM):
            assert state is not None, "an lstm needs its state; initial_state makes one"
            h, c = state if begun_N is None else state * (~begun_N).unsqueeze(-1)
            if self._widens(x_NH):
                with torch.autocast("cpu", enabled=False):
                    h, c = self._remember(self.core, x_NH.float(), h, c)
            else:
                h, c = self._remember(self.core, x_NH, h, c)
            x_NH, state = h, torch.stack((h, c)).float()
        else:
            x_NH = self._activation(self.core(x_NH))
        return (*self._outputs(x_NH, obs_N), state)

    def sequence(self, obs_TN: Tensor, begun_TN: Tensor | None, state: Tensor | None) -> tuple[Tensor, Tensor]:
        """Logits and values of whole stretches, from the state each began with; T x N x A and T x N."""
        steps, columns = obs_TN.shape[:2]
        obs_B = obs_TN.flatten(0, 1)
        outputs = self._by_kernels(obs_B)
        if outputs is not None:
            return outputs[0].view(steps, columns, -1), outputs[1].view(steps, columns)
        x_BH = self._activation(self.encoder(obs_B))
        if isinstance(self.core, nn.LSTM):
            assert state is not None, "an lstm needs the state a stretch began with"
            assert begun_TN is not None, "an lstm needs to know where episodes began"
            x_TNH = x_BH.view(steps, columns, -1)
            if self._widens(x_TNH):
                with torch.autocast("cpu", enabled=False):
                    x_BH = self._recall(self.core, x_TNH.float(), begun_TN, state).flatten(0, 1)
            else:
                x_BH = self._recall(self.core, x_TNH, begun_TN, state).flatten(0, 1)
        else:
            x_BH = self._activation(self.core(x_BH))
        logits_BA, values_B = self._outputs(x_BH, obs_B)
        return logits_BA.view(steps, columns, -1), values_B.view(steps, columns)

    def lstm_precision(self, device: torch.device) -> torch.dtype | None:
        """The precision of the LSTM under mixed precision; None without an LSTM."""
        if not self.recurrent:
            return None
        return torch.bfloat16 if self._half_lstm or device.type != "cpu" else torch.float32

    def _widens(self, x: Tensor) -> bool:
        """Whether autocast asks for bfloat16 and this CPU has no such LSTM."""
        return x.device.type == "cpu" and not self._half_lstm and torch.is_autocast_enabled("cpu")

    def _by_kernels(self, obs_B: Tensor) -> tuple[Tensor, Tensor] | None:
        """Logits and values by the kernels for chains of layers; None if those cannot be used."""
        chain = _chain(self.encoder, self.core, self.heads) if fits(obs_B) else None
        if chain is None:
            return None
        if self.critic is None:
            logits_BA, value_B1 = torch.split(through(chain, obs_B), [self.num_actions, 1], 1)
            return logits_BA, value_B1.squeeze(1)
        critic = _chain(self.critic.encoder, self.critic.core, self.critic.head)
        assert critic is not None
        return through(chain, obs_B), through(critic, obs_B).squeeze(1)

    def _outputs(self, x_BH: Tensor, obs_B: Tensor) -> tuple[Tensor, Tensor]:
        if self.critic is not None:
            return self.heads(x_BH).float(), self.critic(obs_B)
        logits_BA, value_B1 = self.heads(x_BH).float().split((self.num_actions, 1), 1)
        return logits_BA, value_B1.squeeze(1)

    @staticmethod
    def _remember(lstm: nn.LSTM, x_NH: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """The LSTM for one step: a cell takes half the time of `nn.LSTM`."""
        weights: tuple[Tensor, ...] = tuple(lstm.parameters())
        return torch.lstm_cell(x_NH, (h.to(x_NH.dtype), c.to(x_NH.dtype)), *weights)

    @staticmethod
    def _recall(lstm: nn.LSTM, x_TNH: Tensor, begun_TN: Tensor, state: Tensor) -> Tensor:
        """The LSTM over time, cut wherever an episode began: whole pieces take a third of the time of single steps."""
        steps = len(x_TNH)
        cuts = [t for t, begun in enumerate(begun_TN.any(1).tolist()) if begun and t]
        h, c = state.to(x_TNH.dtype).unsqueeze(1)
        seen_TNH = []
        for start, end in zip([0, *cuts], [*cuts, steps], strict=True):
            keep_N1 = (~begun_TN[start]).unsqueeze(-1)
            out, (h, c) = lstm(x_TNH[start:end], (h * keep_N1, c * keep_N1))
            seen_TNH.append(out)
        return torch.cat(seen_TNH) if cuts else seen_TNH[0]


class Critic(nn.Module):
    """A critic that shares nothing with the actor, so large returns cannot drown what the actor learns."""

    def __init__(self, settings: PolicySettings, spec: Spec, generator: torch.Generator) -> None:
        super().__init__()
        self.encoder = make_encoder(settings, spec, generator)
        self.core = _linear(settings.hidden, settings.hidden, math.sqrt(2), generator)
        self.head = _linear(settings.hidden, 1, 1.0, generator)
        self._activation = torch.tanh if spec.layout == "vector" else torch.relu

    def forward(self, obs_B: Tensor) -> Tensor:
        values_B: Tensor = (
            self.head(self._activation(self.core(self._activation(self.encoder(obs_B))))).float().squeeze(1)
        )
        return values_B


class TokenEncoder(nn.Module):
    """A row for every code of every cell, summed, and a linear layer over the numbers beside them."""

    def __init__(self, spec: Spec, hidden: int, generator: torch.Generator) -> None:
        super().__init__()
        self.cells = spec.window * spec.window
        self.table = nn.Parameter(torch.empty(self.cells * (spec.codes - 1), hidden))
        self.numbers = _linear(spec.features, hidden, 1.0, generator)
        with torch.no_grad():  # so that a window of codes gives a sum of about unit size
            self.table.normal_(0, 1 / math.sqrt(self.cells), generator=generator)

    def forward(self, obs_N: Tensor) -> Tensor:
        return add_cells(self.numbers(_scaled(obs_N[:, self.cells :])), obs_N, self.table, self.cells)


class PlaneEncoder(nn.Module):
    """Convolutions over planes, or over tokens turned into planes, one for each code."""

    def __init__(self, spec: Spec, hidden: int, generator: torch.Generator) -> None:
        super().__init__()
        self.cells, self.window, self.kinds = spec.window * spec.window, spec.window, spec.codes - 1
        self.of_tokens = spec.layout == "tokens"
        shape = (self.kinds, self.window, self.window) if self.of_tokens else spec.obs_shape
        numbers = spec.features if self.of_tokens else 0
        layers = [(32, 8, 4, 0), (64, 4, 2, 0), (64, 3, 1, 0)] if min(shape[1:]) >= _LARGE_IMAGE else []
        layers = layers or [(32, 3, 1, 1), (32, 3, 2 if min(shape[1:]) > 4 else 1, 1)]
        parts: list[nn.Module] = []
        channels = shape[0]
        for width, size, stride, padding in layers:
            layer = nn.Conv2d(channels, width, size, stride, padding, device="meta").to_empty(device="cpu")
            parts += [_initialized(layer, math.sqrt(2), generator), nn.ReLU()]
            channels = width
        self.planes = nn.Sequential(*parts)
        with torch.no_grad():
            flat = self.planes(torch.zeros(1, *shape)).numel()
        self.out = _linear(flat + numbers, hidden, math.sqrt(2), generator)

    def forward(self, obs_N: Tensor) -> Tensor:
        if not self.of_tokens:
            return self._out(self.planes(_scaled(obs_N)).flatten(1))
        planes = seen(obs_N[:, : self.cells], self.kinds).float().transpose(1, 2)
        x = self.planes(planes.reshape(-1, self.kinds, self.window, self.window)).flatten(1)
        return self._out(torch.cat((x, _scaled(obs_N[:, self.cells :]).to(x.dtype)), 1))

    def _out(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(x)
        return out


def make_encoder(settings: PolicySettings, spec: Spec, generator: torch.Generator) -> nn.Module:
    """The encoder of an observation; a kind that cannot read it is an `InputError`."""
    fitting = _ENCODERS[spec.layout]
    kind = fitting[0] if settings.encoder == "auto" else settings.encoder
    if kind not in fitting:
        raise InputError(
            f"policy.encoder={kind}: cannot read {spec.name}, which shows {spec.layout}; "
            f"use policy.encoder={' or '.join(('auto', *fitting))}"
        )
    if kind == "tokens":
        return TokenEncoder(spec, settings.hidden, generator)
    if kind == "cnn":
        return PlaneEncoder(spec, settings.hidden, generator)
    return _linear(spec.obs_shape[0], settings.hidden, math.sqrt(2), generator)


def _chain(encoder: nn.Module, core: nn.Module, head: nn.Linear) -> Chain | None:
    """The layers as one chain; None if they are not."""
    if not isinstance(core, nn.Linear) or not isinstance(encoder, TokenEncoder | nn.Linear):
        return None
    table = encoder.table if isinstance(encoder, TokenEncoder) else None
    first = encoder.numbers if isinstance(encoder, TokenEncoder) else encoder
    weights = (first.weight, first.bias, core.weight, core.bias, head.weight, head.bias)
    return Chain(encoder.cells if isinstance(encoder, TokenEncoder) else 0, table, weights)


def _apart(settings: PolicySettings, spec: Spec) -> bool:
    if settings.critic == "apart" and settings.core == "lstm":
        raise InputError("policy.critic=apart: would have no memory beside policy.core=lstm; use policy.critic=shared")
    return settings.critic == "apart" or (settings.critic, settings.core, spec.layout) == ("auto", "mlp", "vector")


def _scaled(obs: Tensor) -> Tensor:
    return obs.float().mul_(1 / 255) if obs.dtype == torch.uint8 else obs


def _linear(inputs: int, outputs: int, gain: float, generator: torch.Generator) -> nn.Linear:
    layer = nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")  # not by the global generator
    _initialized(layer, gain, generator)
    return layer


def _initialized(layer: nn.Linear | nn.Conv2d, gain: float, generator: torch.Generator) -> nn.Module:
    with torch.no_grad():
        nn.init.orthogonal_(layer.weight, gain, generator=generator)
        assert layer.bias is not None
        nn.init.zeros_(layer.bias)
    return layer


def _lstm(hidden: int, generator: torch.Generator) -> nn.LSTM:
    """Orthogonal weights, and a forget gate that starts open."""
    lstm = nn.LSTM(hidden, hidden, device="meta").to_empty(device="cpu")
    with torch.no_grad():
        for name, weight in lstm.named_parameters():
            if name.startswith("weight"):
                nn.init.orthogonal_(weight, 1.0, generator=generator)
            else:
                nn.init.zeros_(weight)
                if name.startswith("bias_ih"):
                    weight[hidden : 2 * hidden] = 1.0
    return lstm


def sample(logits_NA: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Sampled actions and their log-probabilities."""
    uniform_N = torch.rand(len(logits_NA), generator=generator, device=logits_NA.device)
    return drawn(logits_NA.detach(), uniform_N)


def drawn(logits_NA: Tensor, uniform_N: Tensor) -> tuple[Tensor, Tensor]:
    """The actions picked by numbers from [0, 1), by their place among the cumulated probabilities."""
    if logits_NA.device.type != "cpu":
        return _drawn_anywhere(logits_NA, uniform_N)
    actions_N = torch.empty(len(logits_NA), dtype=torch.int64)
    logprobs_N = torch.empty(len(logits_NA))
    _draw(logits_NA.numpy(), uniform_N.numpy(), actions_N.numpy(), logprobs_N.numpy())
    return actions_N, logprobs_N


def _drawn_anywhere(logits_NA: Tensor, uniform_N: Tensor) -> tuple[Tensor, Tensor]:
    """For CUDA."""
    logprobs_NA = F.log_softmax(logits_NA, 1)
    below_NA = logprobs_NA.exp().cumsum(1)
    actions_N = (below_NA <= uniform_N.unsqueeze(1) * below_NA[:, -1:]).sum(1).clamp_(max=logits_NA.shape[1] - 1)
    return actions_N, logprobs_NA.gather(1, actions_N.unsqueeze(1)).squeeze(1)


@kernel
def _draw(
    logits_NA: NDArray[np.float32],
    uniform_N: NDArray[np.float32],
    actions_N: NDArray[np.int64],
    logprobs_N: NDArray[np.float32],
) -> None:
    num_actions = logits_NA.shape[1]
    for n in range(len(logits_NA)):
        top = np.float64(logits_NA[n].max())
        total = 0.0
        for a in range(num_actions):
            total += math.exp(logits_NA[n, a] - top)
        left = uniform_N[n] * total
        action = 0
        for a in range(num_actions):
            action = a
            left -= math.exp(logits_NA[n, a] - top)
            if left < 0.0:
                break
        actions_N[n] = action
        logprobs_N[n] = logits_NA[n, action] - top - math.log(total)
