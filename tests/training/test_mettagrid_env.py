"""mettagrid behind our interface: planes against its own reading of its tokens, episodes, missions, mistakes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.small_run import metrics, needs_mettagrid, same, trained, weights
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
def test_a_mission_that_is_not_there_is_one_clear_line():
    with pytest.raises(InputError, match=r'no mission "extracter_hub"; did you mean "extractor_hub"\?'):
        made("extracter_hub")
    with pytest.raises(InputError, match=r"env.name=mettagrid:none.json: cannot be read \(No such file or directory\)"):
        made("none.json")


@needs_mettagrid
def test_a_run_in_two_parts_is_the_run_in_one(tmp_path: Path):
    values = {"env__name": "mettagrid:extractor_hub", "supervised__steps": 0, "trainer__total_timesteps": 384}
    whole = trained(tmp_path / "whole", **values)
    trained(tmp_path / "parts", **{**values, "trainer__total_timesteps": 192})
    rest = trained(tmp_path / "parts", **values)
    assert same(weights(whole.folder), weights(rest.folder))
    assert [line["step"] for line in metrics(rest.folder)] == list(range(64, 385, 64))
