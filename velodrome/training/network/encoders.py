"""From observations to vectors: one encoder for each layout, and how layers are initialised.

Weights come from the generator that is passed in; nothing here uses a global one.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from velodrome.errors import InputError
from velodrome.training.envs.interface import Spec
from velodrome.training.network.cells import add_cells, seen
from velodrome.training.settings import PolicySettings

_ENCODERS = {  # the first is what auto takes
    "tokens": ("tokens", "cnn"),
    "planes": ("cnn",),
    "vector": ("vector",),
    "mixed": ("mixed",),
}
_LARGE_IMAGE = 36  # pixels; below this an image is a small grid, in which every cell counts


class TokenEncoder(nn.Module):
    """A row for every code of every cell, summed, and a linear layer over the numbers beside them."""

    def __init__(self, spec: Spec, hidden: int, generator: torch.Generator) -> None:
        super().__init__()
        self.cells = spec.window * spec.window
        self.table = nn.Parameter(torch.empty(self.cells * (spec.codes - 1), hidden))
        self.numbers = linear(spec.features, hidden, 1.0, generator)
        with torch.no_grad():  # so that a window of codes gives a sum of about unit size
            self.table.normal_(0, 1 / math.sqrt(self.cells), generator=generator)

    def forward(self, obs_N: Tensor) -> Tensor:
        return add_cells(self.numbers(_scaled(obs_N[:, self.cells :])), obs_N, self.table, self.cells)


class Convolutions(nn.Module):
    """Planes to one flat vector of `width` numbers: three layers for images, two for small grids."""

    def __init__(self, shape: tuple[int, ...], generator: torch.Generator) -> None:
        super().__init__()
        layers = [(32, 8, 4, 0), (64, 4, 2, 0), (64, 3, 1, 0)] if min(shape[1:]) >= _LARGE_IMAGE else []
        layers = layers or [(32, 3, 1, 1), (32, 3, 2 if min(shape[1:]) > 4 else 1, 1)]
        parts: list[nn.Module] = []
        channels = shape[0]
        for width, size, stride, padding in layers:
            layer = nn.Conv2d(channels, width, size, stride, padding, device="meta").to_empty(device="cpu")
            parts += [_initialized(layer, math.sqrt(2), generator), nn.ReLU()]
            channels = width
        self.layers = nn.Sequential(*parts)
        with torch.no_grad():
            self.width: int = self.layers(torch.zeros(1, *shape)).numel()

    def forward(self, planes_N: Tensor) -> Tensor:
        flat: Tensor = self.layers(planes_N).flatten(1)
        return flat


class PlaneEncoder(nn.Module):
    """Convolutions over planes, or over tokens turned into planes, one for each code."""

    def __init__(self, spec: Spec, hidden: int, generator: torch.Generator) -> None:
        super().__init__()
        self.cells, self.window, self.kinds = spec.window * spec.window, spec.window, spec.codes - 1
        self.of_tokens = spec.layout == "tokens"
        shape = (self.kinds, self.window, self.window) if self.of_tokens else spec.obs_shape
        self.planes = Convolutions(shape, generator)
        self.out = linear(self.planes.width + (spec.features if self.of_tokens else 0), hidden, math.sqrt(2), generator)

    def forward(self, obs_N: Tensor) -> Tensor:
        if not self.of_tokens:
            return _tensor(self.out(self.planes(_scaled(obs_N))))
        planes = seen(obs_N[:, : self.cells], self.kinds).float().transpose(1, 2)
        x = self.planes(planes.reshape(-1, self.kinds, self.window, self.window))
        return _tensor(self.out(torch.cat((x, _scaled(obs_N[:, self.cells :]).to(x.dtype)), 1)))


class MixedEncoder(nn.Module):
    """Convolutions over each image of a row, and the numbers after them, into one linear layer."""

    def __init__(self, spec: Spec, hidden: int, generator: torch.Generator) -> None:
        super().__init__()
        self.shapes = spec.images
        self.sizes = [math.prod(shape) for shape in spec.images]
        self.images = nn.ModuleList(Convolutions(shape, generator) for shape in spec.images)
        numbers = spec.obs_shape[0] - sum(self.sizes)
        width = sum(each.width for each in self.images if isinstance(each, Convolutions))
        self.out = linear(width + numbers, hidden, math.sqrt(2), generator)

    def forward(self, obs_N: Tensor) -> Tensor:
        *images, numbers_N = torch.split(obs_N, [*self.sizes, obs_N.shape[1] - sum(self.sizes)], 1)
        parts = [
            layers(pixels_N.reshape(-1, *shape) / 255)
            for layers, pixels_N, shape in zip(self.images, images, self.shapes, strict=True)
        ]
        return _tensor(self.out(torch.cat((*parts, numbers_N.to(parts[0].dtype)), 1)))


class ObsNormalizer(nn.Module):
    """Observations less their mean and over their deviation, both of everything seen in training.

    They are buffers: checkpoints and exports carry them. They change between epochs only, so that a rollout and its
    update see the same numbers. The first `skipped` numbers of a row (pixels) stay as they are.
    """

    mean: Tensor
    var: Tensor
    count: Tensor

    def __init__(self, size: int, skipped: int = 0, limit: float = 10.0) -> None:
        super().__init__()
        self.skipped, self.limit = skipped, limit
        self.register_buffer("mean", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("var", torch.ones(size, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    def forward(self, obs_N: Tensor) -> Tensor:
        mean, scale = self.mean.float(), (self.var + 1e-8).rsqrt().float()
        normal_N = ((obs_N[:, self.skipped :] - mean) * scale).clamp(-self.limit, self.limit)
        return torch.cat((obs_N[:, : self.skipped], normal_N), 1) if self.skipped else normal_N

    @torch.no_grad()
    def update(self, obs_B: Tensor) -> None:
        """Count these observations too."""
        rows = obs_B[:, self.skipped :].double()
        count, mean, var = len(rows), rows.mean(0), rows.var(0, unbiased=False)
        total = self.count + count
        apart = mean - self.mean
        squares = self.var * self.count + var * count + apart.square() * (self.count * count / total)
        self.mean += apart * (count / total)
        self.var.copy_(squares / total)
        self.count.copy_(total)


def make_normalizer(settings: PolicySettings, spec: Spec) -> ObsNormalizer | None:
    """For observations that are numbers; bytes and images have a known range."""
    if not settings.normalize_obs:
        return None
    if spec.layout not in ("vector", "mixed"):
        raise InputError(f"policy.normalize_obs=True: {spec.name} shows {spec.layout}, which are scaled already")
    skipped = sum(math.prod(shape) for shape in spec.images)
    return ObsNormalizer(spec.obs_shape[0] - skipped, skipped)


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
    if kind == "mixed":
        return MixedEncoder(spec, settings.hidden, generator)
    return linear(spec.obs_shape[0], settings.hidden, math.sqrt(2), generator)


def linear(inputs: int, outputs: int, gain: float, generator: torch.Generator) -> nn.Linear:
    """A layer with orthogonal weights."""
    layer = nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")  # not by the global generator
    _initialized(layer, gain, generator)
    return layer


def make_lstm(hidden: int, generator: torch.Generator) -> nn.LSTM:
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


def _initialized(layer: nn.Linear | nn.Conv2d, gain: float, generator: torch.Generator) -> nn.Module:
    with torch.no_grad():
        nn.init.orthogonal_(layer.weight, gain, generator=generator)
        assert layer.bias is not None
        nn.init.zeros_(layer.bias)
    return layer


def _scaled(obs: Tensor) -> Tensor:
    return obs.float().mul_(1 / 255) if obs.dtype == torch.uint8 else obs


def _tensor(out: Tensor) -> Tensor:
    return out
