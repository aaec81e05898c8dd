"""Distributions of actions against plain references: torch's own for numbers, loops for choices."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from velodrome.training.envs.interface import ActionSpace
from velodrome.training.network.distributions import Categorical, Gaussian, bounded

SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def some_mask(seed: int, rows: int, sizes: tuple[int, ...]) -> Tensor:
    """At random, with one option of each choice always allowed."""
    parts = [torch.rand(rows, size, generator=generator(seed + k)) < 0.5 for k, size in enumerate(sizes)]
    for part in parts:
        part[torch.arange(rows), torch.randint(part.shape[1], (rows,), generator=generator(seed))] = True
    return torch.cat(parts, 1)


def probabilities(logits: Tensor, sizes: tuple[int, ...], mask: Tensor) -> dict[tuple[int, ...], float]:
    """Of every whole action of one agent, by multiplication."""
    parts, start = [], 0
    for size in sizes:
        weights = [math.exp(logits[start + a].item()) if mask[start + a] else 0.0 for a in range(size)]
        parts.append([weight / sum(weights) for weight in weights])
        start += size
    return {
        action: math.prod(part[a] for part, a in zip(parts, action, strict=True))
        for action in itertools.product(*(range(size) for size in sizes))
    }


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**31), rows=st.integers(1, 4), sizes=SIZES, masked=st.booleans())
def test_choices_have_the_probabilities_and_entropy_of_all_whole_actions_counted_out(
    seed: int, rows: int, sizes: tuple[int, ...], masked: bool
) -> None:
    logits = 2 * torch.randn(rows, sum(sizes), generator=generator(seed))
    mask = some_mask(seed, rows, sizes) if masked else torch.ones(rows, sum(sizes), dtype=torch.bool)
    policy = Categorical(logits, sizes, mask if masked else None)

    sampled, log_probs = policy.sample(generator(seed + 1))
    mode, entropy = policy.mode(), policy.entropy()

    torch.testing.assert_close(policy.log_prob(sampled), log_probs)
    for row in range(rows):
        plain = probabilities(logits[row], sizes, mask[row])
        for actions in (sampled, mode):
            assert plain[tuple(actions[row].reshape(-1).tolist())] > 0
        assert plain[tuple(sampled[row].reshape(-1).tolist())] == pytest.approx(log_probs[row].exp().item(), rel=1e-4)
        assert plain[tuple(mode[row].reshape(-1).tolist())] == pytest.approx(max(plain.values()), rel=1e-4)
        assert entropy[row].item() == pytest.approx(-sum(p * math.log(p) for p in plain.values() if p), abs=1e-4)


def test_a_masked_option_is_never_taken_in_a_million_draws_though_the_policy_wants_it() -> None:
    sizes, rows = (4, 3), 1_000_000
    logits = torch.tensor([9.0, 0.0, 30.0, 1.0, 0.0, 20.0, -5.0]).expand(rows, 7)
    mask = some_mask(7, rows, sizes)

    actions, _ = Categorical(logits, sizes, mask).sample(generator())

    for column, part in enumerate(mask.split(sizes, 1)):
        assert part.gather(1, actions[:, column : column + 1]).all()


def test_the_gradient_of_masked_options_is_zero_and_nothing_is_infinite() -> None:
    logits = torch.randn(6, 5, generator=generator()).requires_grad_()
    mask = some_mask(3, 6, (5,))
    policy = Categorical(logits, (5,), mask)

    with torch.no_grad():
        policy.entropy()  # who asks without a gradient takes it from nobody
    (policy.log_prob(policy.mode()).sum() + 10 * policy.entropy().sum()).backward()

    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    assert (logits.grad[~mask] == 0).all()
    assert (logits.grad[mask] != 0).any()


def test_a_gaussian_is_torchs() -> None:
    rows, numbers = 50_000, 3
    outputs = torch.randn(1, 2 * numbers, generator=generator(1)).expand(rows, 2 * numbers)
    ours = Gaussian(outputs)
    theirs = torch.distributions.Normal(outputs[:, :numbers], outputs[:, numbers:].exp())

    actions, log_probs = ours.sample(generator(2))

    torch.testing.assert_close(log_probs, theirs.log_prob(actions).sum(1), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(ours.entropy(), theirs.entropy().sum(1), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(ours.mode(), theirs.mean)
    torch.testing.assert_close(actions.mean(0), theirs.mean[0], rtol=0.02, atol=0.05)
    torch.testing.assert_close(actions.std(0), theirs.stddev[0], rtol=0.02, atol=0)


def test_numbers_reach_the_environment_within_their_bounds_and_one_means_the_bound() -> None:
    space = ActionSpace(low=(-2.0, 0.0, -math.inf, 1.0), high=(2.0, 10.0, math.inf, math.inf))
    actions = torch.tensor(
        [[-1.0, -1.0, -7.0, -7.0], [0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 7.0, 7.0], [9.0, -9.0, 9.0, 9.0]]
    )

    taken = bounded(actions, space)

    expected = [[-2.0, 0.0, -7.0, 1.0], [0.0, 5.0, 0.0, 1.0], [2.0, 10.0, 7.0, 7.0], [2.0, 0.0, 9.0, 9.0]]
    assert taken.tolist() == expected
    assert bounded(torch.tensor([3, 1]), ActionSpace((4,))).tolist() == [3, 1]
