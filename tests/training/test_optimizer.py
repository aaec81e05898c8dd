"""All weights as one vector: torch's own steps, whatever the layers."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from velodrome.training.optimizer import FlatAdam


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, 3))


def learn(net: nn.Module, step: int, scale: float) -> None:
    obs = torch.randn(11, 7, generator=torch.Generator().manual_seed(step))
    (scale * net(obs).square().sum()).backward()


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_it_goes_where_torch_goes_with_the_gradient_clipped_to_the_same_length(scale: float) -> None:
    ours = network()
    theirs = copy.deepcopy(ours)
    flat, adam = FlatAdam(ours.parameters(), 1e-2), torch.optim.Adam(theirs.parameters(), lr=1e-2, eps=1e-5)
    for step in range(20):
        flat.zero_grad()
        learn(ours, step, scale)
        norm = flat.clipped_step(0.5)
        adam.zero_grad()
        learn(theirs, step, scale)
        torch.testing.assert_close(norm, nn.utils.clip_grad_norm_(theirs.parameters(), 0.5))
        adam.step()
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict(), rtol=1e-4, atol=1e-5)
