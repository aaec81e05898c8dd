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


def test_a_saved_state_continues_bit_for_bit() -> None:
    nets = [network(), network()]
    flats = [FlatAdam(net.parameters(), 1e-2) for net in nets]
    for step in range(10):
        if step == 5:
            nets[1], saved = network(9), [copy.deepcopy(each.state_dict()) for each in (nets[0], flats[0])]
            flats[1] = FlatAdam(nets[1].parameters(), 1e-2)
            nets[1].load_state_dict(saved[0])
            flats[1].load_state_dict(saved[1])
        for net, flat in zip(nets, flats, strict=True):
            flat.zero_grad()
            learn(net, step, 1.0)
            flat.clipped_step(0.5)
    for ours, again in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        assert torch.equal(ours, again)


def test_the_state_of_another_network_is_refused() -> None:
    with pytest.raises(RuntimeError):
        FlatAdam(network().parameters(), 1e-2).load_state_dict(
            FlatAdam(nn.Linear(2, 2).parameters(), 1e-2).state_dict()
        )
