"""The buffer: what is stored comes back, together, once, and in the right segmentes."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from velodrome.errors import TrainError
from velodrome.training.advantages import gae
from velodrome.training.buffer import Buffer, Minibatch
from velodrome.training.envs.interface import ActionSpace, Spec

CPU = torch.device("cpu")
COLUMNS, HIDDEN = 3, 2


def a_buffer(horizon: int, segment: int = 1, device: torch.device = CPU, leavers: bool = False) -> Buffer:
    spec = Spec("numbers", COLUMNS, 1, ActionSpace((2,)), "vector", (2,), "float32", leavers=leavers)
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
    for batch in buffer.minibatches(torch.Generator().manual_seed(seed), size):
        number = batch.actions_B
        met += number.tolist()
        length, columns = batch.obs_LC.shape[:2]
        assert len(number) == length * columns <= max(size, length)
        assert torch.equal(batch.obs_LC.flatten(0, 1), torch.stack((number, -number), 1).float())
        assert torch.equal(batch.teacher_actions_B, number + 1000)
        assert torch.equal(batch.logprobs_B, number.float())
        assert torch.equal(batch.values_B, number + 0.5)
        assert torch.equal(batch.advantages_B, buffer.advantages[number // 10, number % 10])
        assert torch.equal(batch.returns_B, buffer.returns[number // 10, number % 10])
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


@pytest.mark.parametrize(
    ("steps", "segment", "size", "sizes"),
    [(8, 1, 12, [12, 12]), (8, 1, 13, [12, 12]), (8, 1, 11, [8, 8, 8]), (8, 4, 12, [12, 12]), (8, 4, 1, [4] * 6)],
)
def test_parts_are_as_few_as_the_size_allows_and_nearly_equal(
    steps: int, segment: int, size: int, sizes: list[int]
) -> None:
    buffer = filled(a_buffer(8, segment), steps)
    assert [len(part) for part in told(buffer.minibatches(torch.Generator(), size))] == sizes


def test_advantages_are_those_of_the_steps_there_were() -> None:
    buffer = filled(filled(a_buffer(8), 8, first=500), 5)
    number = torch.tensor(numbers(5)).view(5, COLUMNS)
    expected = gae(
        number / 10, number + 0.5, number % 7 == 0, number % 5 == 0, number * 2.0, torch.ones(COLUMNS), 0.9, 0.8
    )

    assert torch.equal(buffer.advantages[:5], expected[0])
    assert torch.equal(buffer.returns[:5], expected[1])


def test_the_end_of_a_rollout_that_is_no_whole_segment_is_not_always_learned_last() -> None:
    buffer = filled(a_buffer(9, 4), 9)
    lengths = [
        [batch.obs_LC.shape[0] for batch in buffer.minibatches(torch.Generator().manual_seed(seed), 12)]
        for seed in range(20)
    ]
    assert {tuple(each) for each in lengths} == {(1, 4, 4), (4, 1, 4), (4, 4, 1)}


@settings(max_examples=40, deadline=None)
@given(steps=st.integers(1, 12), segment=st.integers(1, 6), size=st.integers(1, 50), seed=st.integers(0, 2**31))
@example(steps=5, segment=4, size=50, seed=4)  # nobody acts in the rest
def test_steps_of_agents_that_have_left_come_in_no_minibatch(steps: int, segment: int, size: int, seed: int) -> None:
    buffer = filled(a_buffer(12, segment, leavers=True), steps)
    assert buffer.alive is not None
    alive = torch.rand(12, COLUMNS, generator=torch.Generator().manual_seed(seed)) < 0.4
    alive[0, 0] = True
    buffer.alive.copy_(alive)
    met = []
    for batch in buffer.minibatches(torch.Generator().manual_seed(seed), size):
        met += batch.actions_B.tolist()
        assert len(batch.actions_B) > 0
        seen_B = batch.kept(batch.obs_LC.flatten(0, 1))
        assert seen_B[:, 0].tolist() == batch.actions_B.tolist() == batch.logprobs_B.tolist()
    expected = [number for number in numbers(steps) if alive[number // 10, number % 10]]
    assert sorted(met) == expected
    assert sorted(buffer.acted(buffer.obs)[:, 0].tolist()) == expected
    assert sorted(buffer.acted(buffer.logprobs).tolist()) == expected


@pytest.mark.parametrize("segment", [1, 4])
def test_a_rollout_in_which_no_agent_acted_is_refused_in_one_line(segment: int) -> None:
    buffer = filled(a_buffer(9, segment, leavers=True), 9)
    assert buffer.alive is not None
    buffer.alive.zero_()
    with pytest.raises(TrainError, match=r"^env.name=numbers: .* 9 steps .*reset"):
        list(buffer.minibatches(torch.Generator(), 12))
