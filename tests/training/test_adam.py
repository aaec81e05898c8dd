"""Adam in one kernel: torch's numbers, torch's state."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from velodrome.training.kernels.adam import Adam

LONGEST = 0.5


def two(seed: int) -> tuple[nn.Linear, nn.Linear]:
    torch.manual_seed(seed)
    one = nn.Linear(7, 5)
    return one, copy.deepcopy(one)


def give(length: float, step: int, *layers: nn.Linear) -> None:
    drawn = torch.Generator().manual_seed(step)
    for weights in zip(*(layer.parameters() for layer in layers), strict=True):
        grad = length * torch.randn(weights[0].shape, generator=drawn)
        for weight in weights:
            weight.grad = grad.clone()


@pytest.mark.parametrize("length", [1e-3, 10.0])
def test_it_goes_where_torch_goes_with_the_gradient_cut_to_the_same_length(length: float):
    ours, theirs = two(1)
    adam, reference = Adam(ours.parameters(), 1e-2), torch.optim.Adam(theirs.parameters(), lr=1e-2, eps=1e-5)
    for step in range(30):
        give(length, step, ours, theirs)
        norm = adam.clipped_step(LONGEST)
        expected = nn.utils.clip_grad_norm_(theirs.parameters(), LONGEST)
        reference.step()
        torch.testing.assert_close(norm, expected)
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(adam.state_dict()["state"], reference.state_dict()["state"], rtol=1e-4, atol=1e-8)


def test_a_state_that_is_taken_replaces_the_one_it_has_moved_by():
    ours, other = two(4)
    adam, fresh = Adam(ours.parameters(), 1e-2), Adam(other.parameters(), 1e-2)
    give(1.0, 0, ours)
    adam.clipped_step(LONGEST)
    kept, weights = copy.deepcopy(adam.state_dict()), copy.deepcopy(ours.state_dict())
    for step in range(1, 4):
        give(1.0, step, ours)
        adam.clipped_step(LONGEST)
    for optimizer, layer in ((adam, ours), (fresh, other)):
        layer.load_state_dict(weights)
        optimizer.load_state_dict(copy.deepcopy(kept))
        give(1.0, 9, layer)
        optimizer.clipped_step(LONGEST)
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), other.parameters(), strict=True))
    torch.testing.assert_close(adam.state_dict()["state"], fresh.state_dict()["state"], rtol=0, atol=0)


def test_what_decays_ends_at_zero_before_it_becomes_a_number_processors_are_slow_with():
    ours, _ = two(3)
    adam = Adam(ours.parameters(), 1e-2)
    give(1.0, 0, ours)
    adam.clipped_step(LONGEST)
    for weight in ours.parameters():
        assert weight.grad is not None
        weight.grad.zero_()
    for _ in range(2000):
        adam.clipped_step(LONGEST)
    means = [state["exp_avg"] for state in adam.state_dict()["state"].values()]
    assert all(torch.equal(mean, torch.zeros_like(mean)) for mean in means)
