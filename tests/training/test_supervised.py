"""The supervised loss against its formula in loops, and the line its weight falls along."""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from velodrome.training.losses import annealed
from velodrome.training.losses.supervised import SUPERVISED_STATS, supervised_loss
from velodrome.training.network.distributions import Categorical


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.integers(1, 40),
    num_actions=st.integers(2, 9),
    coef=st.floats(0, 4),
    value_coef=st.floats(0, 4),
)
def test_the_loss_its_statistics_and_its_gradient_are_what_the_formula_says(
    seed: int, size: int, num_actions: int, coef: float, value_coef: float
) -> None:
    drawn = np.random.default_rng(seed)
    logits, values = drawn.normal(size=(size, num_actions)), drawn.normal(size=size)
    actions, returns = drawn.integers(0, num_actions, size), drawn.normal(size=size)
    result = dict.fromkeys(SUPERVISED_STATS, 0.0)
    slopes, value_slopes = np.zeros_like(logits), np.zeros_like(values)
    for b in range(size):
        probs = np.array([exp(x) for x in logits[b]])
        probs /= probs.sum()
        result["cross_entropy"] -= log(probs[actions[b]]) / size
        result["value_loss"] += (values[b] - returns[b]) ** 2 / size
        result["agreement"] += (max(range(num_actions), key=lambda a: logits[b, a]) == actions[b]) / size
        slopes[b] = coef * (probs - np.eye(num_actions)[actions[b]]) / size
        value_slopes[b] = value_coef * 2 * (values[b] - returns[b]) / size
    result["loss"] = coef * result["cross_entropy"] + value_coef * result["value_loss"]
    logits_BA = torch.tensor(logits, dtype=torch.float32, requires_grad=True)
    values_B = torch.tensor(values, dtype=torch.float32, requires_grad=True)

    policy, targets = Categorical(logits_BA, (num_actions,)), torch.tensor(returns, dtype=torch.float32)
    loss, stats = supervised_loss(policy, values_B, torch.from_numpy(actions), targets, coef, value_coef)
    loss.backward()

    assert dict(zip(SUPERVISED_STATS, stats.tolist(), strict=True)) == pytest.approx(result, rel=1e-4, abs=1e-5)
    assert loss.item() == stats[0].item()
    assert logits_BA.grad is not None
    assert values_B.grad is not None
    np.testing.assert_allclose(logits_BA.grad.numpy(), slopes, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(values_B.grad.numpy(), value_slopes, rtol=1e-4, atol=1e-5)


def test_a_weight_falls_along_a_line_and_stays_at_its_end() -> None:
    assert [annealed(1.0, 0.5, done, 100) for done in (0, 50, 100, 150)] == [1.0, 0.75, 0.5, 0.5]
