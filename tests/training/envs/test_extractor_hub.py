"""extractor_hub: its kernels do what the plain rules say; nothing is closed off; what it gives it takes again."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patience import DEADLINE_S
from plain_rules import PlainWorld

from velodrome.errors import InputError
from velodrome.training.envs.env_names import name_problem
from velodrome.training.envs.extractor_hub import hub_rules
from velodrome.training.envs.extractor_hub.env import ExtractorHub
from velodrome.training.envs.extractor_hub.teacher import Thinky
from velodrome.training.envs.make import make_env, make_teacher
from velodrome.training.settings import EnvSettings


def hub(size: int = 12, num_envs: int = 2, agents: int = 3, max_steps: int = 40, *, seed: int = 0) -> ExtractorHub:
    env = ExtractorHub(size, num_envs=num_envs, agents=agents, max_steps=max_steps, notes=True)
    env.reset(seed)
    return env


def random_actions(env: ExtractorHub, steps: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 5, (steps, env.spec.total))


def led_by_teacher(env: ExtractorHub, steps: int, seed: int, noise: float) -> np.ndarray:
    """Actions that get somewhere: the teacher's, some of them replaced, two of them out of range."""
    shape = (env.spec.num_envs, env.spec.agents)
    teacher, advice, starts = (
        Thinky(env.world.size, num_envs=shape[0], agents=shape[1]),
        np.zeros(shape, np.int64),
        True,
    )
    random, taken = np.random.default_rng(seed), []
    for _ in range(steps):
        teacher.ask(env.obs.reshape(*shape, -1), np.full(shape[0], starts), advice)
        other = random.integers(-1, 6, env.spec.total)
        taken.append(np.where(random.random(env.spec.total) < noise, other, advice.reshape(-1)))
        env.step(taken[-1])
        starts = bool(env.truncations[0])
    return np.stack(taken)


@settings(max_examples=8, deadline=None)
@given(
    size=st.integers(8, 34),
    agents=st.integers(1, 8),
    max_steps=st.integers(8, 90),
    notes=st.booleans(),
    seed=st.integers(0, 2**31 - 1),
    noise=st.sampled_from([0.0, 0.2, 1.0]),
)
def test_the_kernels_and_the_plain_rules_agree_on_every_byte(
    size: int, agents: int, max_steps: int, notes: bool, seed: int, noise: float
) -> None:
    env = ExtractorHub(size, num_envs=2, agents=agents, max_steps=max_steps, notes=notes)
    env.reset(seed)
    actions = led_by_teacher(env, 100, seed, noise)
    env.reset(seed)
    plain = [PlainWorld(size, agents, max_steps, notes, seed, e) for e in range(2)]
    assert env.obs.tobytes() == b"".join(plain[0].views() + plain[1].views())
    for actions_N in actions:
        env.step(actions_N)
        answers = [w.step(list(actions_N[e * agents : (e + 1) * agents])) for e, w in enumerate(plain)]
        assert env.rewards.tolist() == pytest.approx([r for rewards, _, _ in answers for r in rewards], abs=1e-5)
        assert env.truncations.tolist() == [over for _, over, _ in answers for _ in range(agents)]
        if answers[0][1]:
            assert env.final_obs.tobytes() == b"".join(answers[0][2] + answers[1][2])
        assert env.obs.tobytes() == b"".join(plain[0].views() + plain[1].views())


@pytest.mark.parametrize("size", [8, 9, 12, 30, 61, 200])
def test_every_floor_cell_extractor_and_the_hub_can_be_reached(size: int) -> None:
    env = hub(size, num_envs=20 if size < 100 else 2, agents=1)
    for e in range(env.spec.num_envs):
        codes = env.world.grid_EYX[e]
        reached, edge = set(), [tuple(np.argwhere(codes == hub_rules.AGENT)[0])]
        while edge:
            y, x = edge.pop()
            if (y, x) in reached:
                continue
            reached.add((y, x))
            if codes[y, x] in (hub_rules.FLOOR, hub_rules.AGENT):
                edge += [(y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)]
        hub_cells = {(y, x) for y, x in np.argwhere(codes == hub_rules.HUB)}
        others = {(y, x) for y, x in np.argwhere((codes != hub_rules.WALL) & (codes != hub_rules.HUB))}
        assert others <= reached
        assert len(hub_cells & reached) == (8 if size >= 12 else 1)  # its middle is inside
        kinds = np.bincount(codes[(codes >= hub_rules.EXTRACTOR) & (codes < hub_rules.COOLING)] - hub_rules.EXTRACTOR)
        assert kinds.tolist() == [hub_rules.per_resource(size)] * 4


@pytest.mark.parametrize("size", [8, 9, 10, 11, 12, 13, 23])
def test_as_many_agents_as_a_map_may_have_all_find_a_place(size: int) -> None:
    agents = min(64, hub_rules.most_agents(size))
    env = hub(size, num_envs=200, agents=agents)
    placed_E = (env.world.grid_EYX == hub_rules.AGENT).sum((1, 2))
    assert placed_E.tolist() == [agents] * 200
    for e in range(0, 200, 10 if size < 12 else 100):
        seen = PlainWorld(size, agents, 40, True, 0, e).views()
        assert env.obs[e * agents : (e + 1) * agents].tobytes() == b"".join(seen)


def test_a_layout_is_a_function_of_seed_environment_and_episode_alone() -> None:
    few, many, other = hub(30, 2, seed=7), hub(30, 5, seed=7), hub(30, 2, seed=8)
    assert np.array_equal(few.obs, many.obs[: len(few.obs)])
    assert not np.array_equal(few.world.grid_EYX, other.world.grid_EYX)
    first = few.world.grid_EYX.copy()
    assert not np.array_equal(first[0], first[1])
    for actions in random_actions(few, 40):
        few.step(actions)
    assert not np.array_equal(few.world.grid_EYX, first)
    few.reset(7)
    assert np.array_equal(few.world.grid_EYX, first)


def test_a_state_that_was_given_is_taken_again_and_all_that_follows_is_the_same() -> None:
    env, twin = hub(max_steps=30), hub(max_steps=30, seed=99)
    actions = random_actions(env, 100)
    for at in actions[:47]:
        env.step(at)
    kept = env.state()
    then = {name: array.tobytes() for name, array in kept.items()}
    twin.load(kept)
    for at in actions[47:]:
        env.step(at)
        twin.step(at)
    assert {k: v.tobytes() for k, v in env.state().items()} == {k: v.tobytes() for k, v in twin.state().items()}
    assert len(kept["ended"]) == 2  # one episode of each of the two
    assert {name: array.tobytes() for name, array in kept.items()} == then  # what was given stays as it was
    assert env.ended().returns.tolist() == twin.ended().returns.tolist()


def test_a_state_of_another_environment_is_refused_in_one_line() -> None:
    with pytest.raises(InputError, match=r"extractor_hub_12: state 'grid_EYX' is uint8\[2, 28, 28\]"):
        hub(12).load(hub(20).state())


def test_ended_episodes_tell_return_length_deliveries_and_hearts_once() -> None:
    env = hub(12, num_envs=3, agents=2, max_steps=50)
    rewards = np.zeros(env.spec.total)
    actions = led_by_teacher(env, 100, 0, 0.1)
    env.reset(0)
    for at in actions[:50]:
        env.step(at)
        rewards += env.rewards
    result = env.ended()
    assert result.lengths.tolist() == [50, 50, 50]
    assert result.returns.tolist() == pytest.approx(rewards.reshape(3, 2).mean(axis=1).tolist(), abs=1e-4)
    deliveries, hearts = result.numbers["deliveries"], result.numbers["hearts"]
    assert result.returns.tolist() == pytest.approx((hearts + 0.1 * deliveries / 2).tolist())
    assert deliveries.min() > 0
    assert env.ended().returns.tolist() == []


def test_nobody_asking_for_ended_episodes_loses_none() -> None:
    env = hub(8, num_envs=2, agents=1, max_steps=8)
    for at in random_actions(env, 80):
        env.step(at)
    assert env.ended().lengths.tolist() == [8] * 20


def test_a_step_changes_the_same_arrays_in_place() -> None:
    env = hub()
    arrays = [env.obs, env.rewards, env.truncations, env.final_obs, *env.world[:7]]
    places = [array.ctypes.data for array in arrays]
    for at in random_actions(env, 45):
        env.step(at)
    again = [env.obs, env.rewards, env.truncations, env.final_obs, *env.world[:7]]
    assert [array.ctypes.data for array in again] == places


def test_letters_show_the_world_and_each_has_a_colour() -> None:
    env = hub(8, num_envs=1, agents=2)
    rows = [row.tobytes().decode() for row in env.letters(0)]
    assert rows[0] == rows[7] == "########"
    counts = {letter: "".join(rows).count(letter) for letter in "HCOGS01"}
    assert counts == {"H": 1, "C": 2, "O": 2, "G": 2, "S": 2, "0": 1, "1": 1}
    assert set("".join(rows)) <= env.palette.keys()


def test_a_name_makes_the_environment_and_its_teacher() -> None:
    request = EnvSettings(name="extractor_hub_14", num_envs=3, agents=2, max_steps=20)
    env = make_env(request, 5)
    assert (env.spec.name, env.spec.total, env.spec.obs_shape) == ("extractor_hub_14", 6, (hub_rules.OBS_BYTES,))
    teacher = make_teacher(request, env)
    assert teacher is not None
    actions = np.full((3, 2), -1)
    teacher.ask(env.obs.reshape(3, 2, -1), np.ones(3, np.bool_), actions)
    assert set(actions.reshape(-1)) <= set(range(5))


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("extracter_hub_40", 'did you mean "extractor_hub_40"?'),
        ("gym:CartPole-v1", 'did you mean "gymnasium:CartPole-v1"?'),
        ("CartPole-v1", 'did you mean "gymnasium:CartPole-v1"?'),
        ("ALE/Pong-v5", 'did you mean "gymnasium:ALE/Pong-v5"?'),
        ("metagrid:x", 'did you mean "mettagrid:x"?'),
        ("zzz", "extractor_hub_<size>"),
        ("extractor_hub_7", "from 8 to 200"),
        ("extractor_hub_201", "from 8 to 200"),
    ],
)
def test_a_wrong_name_is_answered_with_the_nearest(name: str, part: str) -> None:
    assert part in (name_problem(name) or "")


def test_a_map_too_small_for_its_agents_is_refused() -> None:
    with pytest.raises(InputError, match="9 are too many for extractor_hub_8"):
        make_env(EnvSettings(name="extractor_hub_8", agents=9), 0)


@pytest.mark.slow
def test_more_worlds_than_the_memory_holds_are_refused_in_one_line() -> None:
    """In a process that may have 2 GB more than it began with, and asks for 9."""
    code = """
import resource
from velodrome.errors import InputError
from velodrome.training.envs.env_names import name_problem
from velodrome.training.envs.make import make_env, make_teacher
from velodrome.training.settings import EnvSettings
few, many = (EnvSettings(name="extractor_hub_200", num_envs=n) for n in (1, 65_536))
env = make_env(few, 0)
make_teacher(few, env)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**31, used + 2**31))
try:
    make_env(many, 0)
except InputError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.stdout.startswith("env.num_envs=65536 of extractor_hub_200 with 4 agents: ")
    assert "memory" in done.stdout
