"""Adam in one kernel: torch's numbers, torch's state."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from pretended_gpu import Far, near, pretended_gpu
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


@pytest.mark.parametrize("length", [1e-3, 10.0])
def test_on_a_gpu_it_goes_where_it_goes_here_and_either_goes_on_from_the_others_state(
    monkeypatch: pytest.MonkeyPatch, length: float
):
    ours, _ = two(5)
    with pretended_gpu(monkeypatch):
        theirs = [nn.Parameter(Far(weight.detach().clone())) for weight in ours.parameters()]
        here, there = Adam(ours.parameters(), 1e-2), Adam(theirs, 1e-2)
        for step in range(30):
            give(length, step, ours)
            for weight, far in zip(ours.parameters(), theirs, strict=True):
                assert weight.grad is not None
                far.grad = Far(weight.grad.clone())
            torch.testing.assert_close(near(there.clipped_step(LONGEST)), here.clipped_step(LONGEST))
            if step == 20:
                states = [copy.deepcopy(here.state_dict()), there.state_dict()]
                here.load_state_dict(moved(states[1], near))
                there.load_state_dict(moved(states[0], Far))
        state = moved(there.state_dict(), near)["state"]
    torch.testing.assert_close([near(far) for far in theirs], list(ours.parameters()), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(state, here.state_dict()["state"], rtol=1e-4, atol=1e-8)


def moved(state: dict[str, Any], way: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, Any]:
    """A state as a checkpoint brings it from one device to the other; the count of steps is a number to both."""
    found = {
        number: {name: near(each).clone() if name == "step" else way(each.clone()) for name, each in one.items()}
        for number, one in state["state"].items()
    }
    return {**state, "state": found}
