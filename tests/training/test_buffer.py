"""The buffer: what is stored comes back, together, once, and in the right segments."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from velodrome.training.advantages import gae
from velodrome.training.buffer import Buffer, Minibatch
from velodrome.training.envs.interface import ActionSpace, Spec

CPU = torch.device("cpu")
COLUMNS, HIDDEN = 3, 2


def a_buffer(horizon: int, segment: int = 1, device: torch.device = CPU) -> Buffer:
    spec = Spec("numbers", COLUMNS, 1, ActionSpace((2,)), "vector", (2,), "float32")
    state = torch.zeros(2, COLUMNS, HIDDEN, device=device) if segment > 1 else None
    return Buffer(horizon, spec, device, state=state, segment=segment)


def filled(buffer: Buffer, steps: int, first: int = 0) -> Buffer:
    """Every number tells its step and column: 10 t + n, from `first` on."""
    for t in range(steps):
        number = np.arange(COLUMNS) + 10 * t + first
        buffer.store(
            t,
            obs=np.stack((number, -number), 1).astype(np.float32),
            starts=number % 2 == 0,
            actions=torch.from_numpy(number),
            logprobs=torch.from_numpy(number).float(),
            values=torch.from_numpy(number).float() + 0.5,
            teacher_actions=number + 1000,
            state=torch.from_numpy(np.stack((number, -number)))[..., None].expand(2, COLUMNS, HIDDEN).float(),
        )
        buffer.store_outcome(
            t, rewards=number / 10, terminals=number % 7 == 0, truncations=number % 5 == 0, final_values=number * 2.0
        )
    buffer.compute_advantages(steps, torch.ones(COLUMNS, device=buffer.obs.device), 0.9, 0.8)
    return buffer


def numbers(steps: int) -> list[int]:
    return [10 * t + n for t in range(steps) for n in range(COLUMNS)]


def told(batches: Iterable[Minibatch]) -> list[list[int]]:
    return [batch.actions_B.tolist() for batch in batches]


@settings(max_examples=40, deadline=None)
@given(
    horizon=st.integers(1, 12),
    short=st.integers(0, 11),
    segment=st.integers(1, 6),
    size=st.integers(1, 50),
    seed=st.integers(0, 2**31),
)
def test_every_step_comes_exactly_once_with_all_that_belongs_to_it(
    horizon: int, short: int, segment: int, size: int, seed: int
) -> None:
    steps = max(horizon - short, 1)
    buffer = filled(filled(a_buffer(horizon, segment), horizon, first=500), steps)
    met: list[int] = []
    told_TN = torch.tensor(numbers(steps)).view(steps, COLUMNS)  # advantages are those of the steps there were
    ends = (told_TN % 7 == 0, told_TN % 5 == 0, told_TN * 2.0, torch.ones(COLUMNS))
    advantages, returns = gae(told_TN / 10, told_TN + 0.5, *ends, 0.9, 0.8)
    for batch in buffer.minibatches(torch.Generator().manual_seed(seed), size):
        number = batch.actions_B
        met += number.tolist()
        length, columns = batch.obs_LC.shape[:2]
        assert len(number) == length * columns <= max(size, length)
        assert torch.equal(batch.obs_LC.flatten(0, 1), torch.stack((number, -number), 1).float())
        assert torch.equal(batch.teacher_actions_B, number + 1000)
        assert torch.equal(batch.logprobs_B, number.float())
        assert torch.equal(batch.values_B, number + 0.5)
        assert torch.equal(batch.advantages_B, advantages[number // 10, number % 10])
        assert torch.equal(batch.returns_B, returns[number // 10, number % 10])
        grid = number.view(length, columns)
        assert torch.equal(grid, grid[0] + 10 * torch.arange(length).unsqueeze(1))
        if min(segment, horizon) > 1:
            assert (grid[0] // 10 % min(segment, horizon) == 0).all()
            assert batch.starts_LC is not None
            assert torch.equal(batch.starts_LC, grid % 2 == 0)
            assert batch.state is not None
            assert torch.equal(
                batch.state, torch.stack((grid[0], -grid[0]))[..., None].expand(2, columns, HIDDEN).float()
            )

    assert sorted(met) == numbers(steps)


def test_the_order_is_the_generators_and_another_pass_has_another() -> None:
    buffer = filled(a_buffer(8), 8)
    generator = torch.Generator().manual_seed(1)
    first, second = told(buffer.minibatches(generator, 6)), told(buffer.minibatches(generator, 6))

    assert told(buffer.minibatches(torch.Generator().manual_seed(1), 6)) == first
    assert first != second
    assert [number for part in first for number in part] != numbers(8)
