"""mettagrid behind our interface: planes against its own reading of its tokens, episodes, missions, mistakes."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from patience import DEADLINE_S
from small_run import NO_WHEEL, metrics, needs_mettagrid, same, trained, weights

from velodrome.errors import InputError
from velodrome.training.envs.make import make_env
from velodrome.training.settings import EnvSettings


def made(mission: str = "extractor_hub", *, num_envs: int = 2, max_steps: int = 24, seed: int = 3) -> Any:
    values = EnvSettings(name=f"mettagrid:{mission}", num_envs=num_envs, agents=3, max_steps=max_steps)
    return make_env(values, seed)


def dice(env: Any, steps: int, seed: int = 0) -> list[NDArray[np.int64]]:
    drawn = np.random.default_rng(seed)
    return [drawn.integers(0, env.spec.actions.width, env.spec.total) for _ in range(steps)]


def plain_planes(env: Any, e: int, agent: int) -> dict[tuple[str, int, int], int]:
    """What an agent sees, by mettagrid's own objects; only what is not zero."""
    seen: dict[tuple[str, int, int], int] = {}
    sim = env._sims[e]
    tags = sim.config.game.id_map().tag_names()
    for token in sim.agent(agent).observation.tokens:
        place = token.location
        y, x = (6, 6) if place is None else (place.row, place.col)
        name, worth = token.feature.name, min(round(32 * math.log2(1 + token.value)), 255)
        if name == "tag":
            name, worth = f"tag={tags[token.value]}", 255
        if name == "last_action":
            name, worth = f"last_action={sim.action_names[token.value]}", 255
        if worth:
            seen[name, y, x] = max(worth, seen.get((name, y, x), 0))
    return seen


@needs_mettagrid
def test_planes_say_what_the_tokens_say():
    env = made()
    for actions_N in dice(env, 20):
        env.step(actions_N)
        for n in range(env.spec.total):
            names = env._token_planes.names
            result = {(names[c], int(y), int(x)): int(env.obs[n, c, y, x]) for c, y, x in np.argwhere(env.obs[n])}
            assert result == plain_planes(env, *divmod(n, env.spec.agents))
    env.close()


@needs_mettagrid
def test_of_several_values_in_one_cell_the_largest_stays_and_nothing_after_the_end_counts():
    from velodrome.training.envs.mettagrid_env import lay_out

    plane_FV = np.full((256, 256), -1, np.int16)
    plane_FV[4] = 1
    worth_FV = np.tile(np.arange(256, dtype=np.uint8), (256, 1))
    tokens = np.array([[[0x12, 4, 9], [0x12, 4, 5], [0xFE, 4, 7], [0x11, 8, 3], [0xFF, 0, 0], [0x00, 4, 1]]], np.uint8)
    planes = np.full((1, 2, 3, 3), 77, np.uint8)

    lay_out(tokens, plane_FV, worth_FV, planes, 0, 1, 4)

    assert planes.tolist() == [[[[0, 0, 0]] * 3, [[0, 0, 0], [0, 7, 9], [0, 0, 0]]]]


@needs_mettagrid
def test_every_episode_has_a_map_of_its_own():
    env = made(max_steps=10)
    maps = [env.letters(e).tobytes() for e in (0, 1)]
    for actions_N in dice(env, 10):
        env.step(actions_N)
    maps += [env.letters(e).tobytes() for e in (0, 1)]
    assert len(set(maps)) == 4


@needs_mettagrid
def test_the_view_names_every_kind_of_object_and_action():
    env = made()
    assert env.spec.obs_shape == (len(env._token_planes.names), 13, 13)
    assert {"tag=type:extractor", "tag=type:hub", "last_action=move_north", "inv:ore", "last_reward"} <= set(
        env._token_planes.names
    )
    assert env.action_names == ["noop", "move_north", "move_south", "move_west", "move_east"]


def history(env: Any, actions: list[NDArray[np.int64]], rows: int) -> list[bytes]:
    result = [env.obs[:rows].tobytes()]
    for actions_N in actions:
        env.step(actions_N)
        result += [env.obs[:rows].tobytes(), env.rewards[:rows].tobytes(), env.truncations[:rows].tobytes()]
    return result


@needs_mettagrid
def test_what_follows_is_a_function_of_seed_and_actions():
    env = made()
    actions = dice(env, 60)
    first = history(env, actions, 6)
    assert history(made(), actions, 6) == first
    env.reset(3)
    assert history(env, actions, 6) == first
    assert history(made(seed=4), actions, 6) != first


@needs_mettagrid
def test_an_environment_does_not_depend_on_how_many_there_are():
    actions = dice(made(num_envs=3), 60)
    assert history(made(num_envs=3), actions, 3) == history(made(num_envs=1), [each[:3] for each in actions], 3)


@needs_mettagrid
def test_an_episode_is_cut_off_at_its_time_and_the_next_begins_in_the_same_step():
    env = made(max_steps=10)
    returns_N = np.zeros(env.spec.total)
    for step, actions_N in enumerate(dice(env, 10), start=1):
        env.step(actions_N)
        returns_N += env.rewards
        assert env.truncations.tolist() == [step == 10] * 6
        assert not env.terminals.any()
    done = env._token_planes.names.index("episode_completion_pct")
    assert (env.final_obs[:, done, 6, 6] > 200).all()
    assert not env.obs[:, done].any()
    ended = env.ended()
    assert ended.returns.tolist() == pytest.approx(returns_N.reshape(2, 3).mean(1))
    assert ended.lengths.tolist() == [10, 10]
    assert env.ended().returns.tolist() == []


@needs_mettagrid
def test_ore_brought_to_a_hub_is_a_reward():
    env = made(num_envs=8, max_steps=500)
    paid = 0.0
    hearts = env._token_planes.names.index("inv:heart")
    for actions_N in dice(env, 400):
        env.step(actions_N)
        paid += float(env.rewards.sum())
    held = np.rint(np.exp2(env.obs[:, hearts, 6, 6] / 32) - 1).sum()
    assert paid == held > 0


@needs_mettagrid
def test_a_mission_can_be_a_file_with_moods_and_an_end_of_its_own(tmp_path: Path):
    from velodrome.training.envs.mettagrid_env import MISSIONS

    config = MISSIONS["extractor_hub"](2)
    config.game.max_steps = 7
    config.game.actions.change_vibe.vibes = config.game.actions.change_vibe.vibes[:3]
    result = json.loads(config.model_dump_json())
    result["game"]["vibe_names"] = [vibe.name for vibe in config.game.actions.change_vibe.vibes]
    path = tmp_path / "mission.json"
    path.write_text(json.dumps(result))
    env = made(str(path), num_envs=1)
    assert (env.spec.agents, env.spec.actions.width) == (2, 8)
    assert [name.startswith("change_vibe_") for name in env.action_names] == [False] * 5 + [True] * 3
    env.step(np.array([7, 0]))
    vibe = env._token_planes.names.index("vibe")
    assert env.obs[:, vibe, 6, 6].tolist() == [round(32 * math.log2(3)), 0]
    for _ in range(6):
        env.step(np.zeros(2, np.int64))
    assert env.terminals.tolist() == [True, True]  # the file has it as a rule of the game
    assert env.truncations.tolist() == [False, False]


@needs_mettagrid
@pytest.mark.parametrize(
    ("mission", "problem"),
    [
        ("extracter_hub", r'no mission "extracter_hub"; did you mean "extractor_hub"\?'),
        ("none.json", r"env.name=mettagrid:none.json: cannot be read \(No such file or directory\)"),
    ],
)
def test_a_mission_that_is_not_there_is_one_clear_line(mission: str, problem: str):
    with pytest.raises(InputError, match=problem):
        made(mission)


@needs_mettagrid
def test_a_file_that_is_no_mission_is_one_clear_line(tmp_path: Path):
    path = tmp_path / "mission.yaml"
    path.write_text("game: {num_agents: none}\n")
    with pytest.raises(InputError) as caught:
        made(str(path))
    assert "game.num_agents" in str(caught.value)
    assert "\n" not in str(caught.value)


@needs_mettagrid
def test_letters_show_the_map_and_each_has_a_colour():
    env = made()
    letters = set(env.letters(0).tobytes().decode())
    assert letters == set("#.EH012")
    assert len({env.palette[letter] for letter in letters}) == 5  # agents share one


@needs_mettagrid
def test_importing_it_leaves_the_loggers_of_others_alone():
    code = (
        "import logging; before = (logging.root.level, list(logging.root.handlers))\n"
        "import velodrome.training.envs.mettagrid_env\n"
        "assert (logging.root.level, list(logging.root.handlers)) == before, logging.root.handlers"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=DEADLINE_S)


@needs_mettagrid
def test_a_run_in_two_parts_is_the_run_in_one(tmp_path: Path):
    values = {"env__name": "mettagrid:extractor_hub", "supervised__steps": 0, "trainer__total_timesteps": 384}
    whole = trained(tmp_path / "whole", **values)
    trained(tmp_path / "parts", **{**values, "trainer__total_timesteps": 192})
    rest = trained(tmp_path / "parts", **values)
    assert same(weights(whole.folder), weights(rest.folder))
    assert [line["step"] for line in metrics(rest.folder)] == list(range(64, 385, 64))


def test_without_the_package_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "mettagrid", None)
    monkeypatch.delitem(sys.modules, "velodrome.training.envs.mettagrid_env", raising=False)
    for name in [name for name in sys.modules if name.startswith("mettagrid.")]:
        monkeypatch.delitem(sys.modules, name)
    way = NO_WHEEL or 'pip install "velodrome[mettagrid]"'
    with pytest.raises(InputError, match=rf'needs the package "mettagrid.*{re.escape(way)}'):
        made()
