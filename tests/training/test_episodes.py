"""Episodes as rollouts: a line is enough to play its episode again, and all readers of rollouts take the file."""

from __future__ import annotations

import json
import zlib
from base64 import b64decode
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.support.small_run import small, trained
from velodrome.checks import run_checks
from velodrome.cli import check, metrics
from velodrome.errors import InputError
from velodrome.exchange.verbs import export
from velodrome.records.rollout import key_in
from velodrome.training.envs.make import make_env
from velodrome.training.loop import TrainingResult
from velodrome.training.network.policy import Policy
from velodrome.training.run.episodes import write_episodes
from velodrome.viewer.verbs import show, view

Json = dict[str, Any]

HUB = {"env__max_steps": "160", "evaluator__greedy": "False"}  # long enough for some to stumble upon a reward
CARTPOLE = {"env__name": "gymnasium:CartPole-v1", "supervised__steps": "0"}


def ran(folder: Path, **more: str) -> TrainingResult:
    return trained(folder, **{"trainer__total_timesteps": "256", "supervised__steps": "128", **more})


def lines(outcome: TrainingResult, name: str = "") -> list[Json]:
    path = outcome.folder / (name or "episodes.jsonl")
    if not (name or path.exists()):
        path = outcome.folder / "episodes_sampled.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def observations(episode: Json) -> NDArray[Any]:
    result = episode["observations"]
    return np.frombuffer(zlib.decompress(b64decode(result["zlib_base64"])), result["dtype"]).reshape(result["shape"])


def pictures(episode: Json) -> list[list[str]]:
    """Every frame as whole rows, by what docs say."""
    result: list[list[str]] = []
    for frame in episode.get("frames", ()):
        if isinstance(frame, dict):
            width, cells = len(result[-1][0]), list("".join(result[-1]))
            for at, letter in zip(frame["at"], frame["put"], strict=True):
                cells[at] = letter
            frame = ["".join(cells[k : k + width]) for k in range(0, len(cells), width)]
        result.append(frame)
    return result


@pytest.mark.parametrize("more", [HUB, CARTPOLE], ids=["hub", "cartpole"])
def test_a_line_is_enough_to_play_its_episode_again(tmp_path: Path, more: dict[str, str]):
    values = {name: value for name, value in more.items() if name != "supervised__steps"}
    played = {"trainer__total_timesteps": "256", "supervised__steps": "0", "output__episodes": "3", **values}
    settings = small(tmp_path, **played)
    rows = lines(trained(tmp_path, **played))
    assert sum(abs(row["reward"]) for row in rows) > 0
    for row in rows:
        _, seed, place = row["id"].rsplit(".", 2)
        e, episode = int(place), row["episode"]
        env = make_env(settings.env.model_copy(update={"num_envs": 3}), int(seed))
        agents = env.spec.agents
        mine = slice(e * agents, (e + 1) * agents)
        actions_N = np.zeros(env.spec.total, np.int64)
        seen, shown, paid = [], [], []
        for actions in episode["actions"]:
            seen.append(env.obs[mine].copy())
            if (letters := env.letters(e)) is not None:
                shown.append([each.tobytes().decode() for each in letters])
            actions_N[mine] = actions
            env.step(actions_N)
            paid.append(env.rewards[mine].tolist())
        assert (env.terminals | env.truncations)[mine].all()
        assert episode["ended"] == ("truncated" if env.truncations[mine].all() else "terminal")
        assert np.array_equal(observations(episode), np.stack([*seen, env.final_obs[mine]]))
        assert pictures(episode) == shown
        assert bool(shown) == ("hub" in row["env"])
        assert set("".join(map("".join, shown))) <= set(episode.get("palette", ()))
        assert episode["rewards"] == paid
        assert row["reward"] == pytest.approx(np.sum(paid, 0).mean())
        assert (row["length"], episode["returns"]) == (len(paid), pytest.approx(np.sum(paid, 0).tolist()))
        env.close()


def test_a_line_is_a_rollout_in_every_field(tmp_path: Path):
    (row,) = lines(ran(tmp_path, output__episodes="1"))
    meta, timing = row["meta"], row["meta"]["timing"]
    assert list(row)[:4] == ["responses_create_params", "output", "response", "usage"]
    assert list(row)[-1] == "meta"
    names = ("key", "task_index", "rollout_index", "agent", "schema", "policy_step")
    assert [meta[name] for name in names] == [f"{row['id']}/0", 0, 0, "small", 1, 256]
    assert meta["scored"] == ["reward", "length", "agreement_alone", "deliveries", "hearts"]
    assert row["usage"] == {}
    parts = ("queue_s", "session_s", "model_s", "tools_s", "verify_s", "teacher_s", "environment_s", "other_s")
    assert timing["total_s"] == pytest.approx(sum(timing[name] for name in parts), abs=1e-5)
    assert (timing["model_calls"], timing["in_flight"], timing["limit"]) == (24, 1, 1)


def test_a_finished_run_that_is_run_again_writes_what_is_not_there_yet(tmp_path: Path):
    outcome = ran(tmp_path)
    path = outcome.folder / "episodes.jsonl"
    assert not path.exists()
    assert ran(tmp_path, output__episodes="3").folder == outcome.folder
    three = path.read_bytes()
    keys = [key_in(line) for line in three.splitlines()]
    assert keys == [f"{row['id']}/0" for row in lines(outcome)]
    ran(tmp_path, output__episodes="2")
    assert path.read_bytes() == three
    ran(tmp_path, output__episodes="5")
    assert [row["meta"]["task_index"] for row in lines(outcome)] == [0, 1, 2, 3, 4]
    assert [row["meta"]["key"] for row in lines(outcome)][:3] == keys
    ran(tmp_path, output__episodes="5", trainer__total_timesteps="512")  # those of the shorter run are moved aside
    before = lines(outcome, "episodes_000000000256.jsonl")
    assert [row["meta"]["policy_step"] for row in before + lines(outcome)] == [256] * 5 + [512] * 5
    assert [row["meta"]["key"] for row in lines(outcome)][:3] == keys


def test_more_episodes_than_are_played_at_once_are_those_of_the_evaluation_too(tmp_path: Path):
    several = {"env__max_steps": "12", "output__episodes": "258", "evaluator__episodes": "258"}
    outcome = ran(tmp_path, evaluator__evaluate_local="True", output__episode_observations="False", **several)
    rows, evaluation = lines(outcome), outcome.evaluation or {}
    for row in rows:
        alike = np.equal(row["episode"]["actions"], row["episode"]["teacher_actions"])
        assert (alike.shape, row["agreement_alone"]) == ((12, 2), pytest.approx(alike.mean()))
        assert row["reward"] == pytest.approx(row["hearts"] + 0.1 * row["deliveries"] / 2, abs=1e-5)
    assert [row["meta"]["task_index"] for row in rows] == list(range(258))
    assert len({row["meta"]["key"] for row in rows}) == 258
    assert [row["episode"]["frames"][0] for row in rows[:2]] != [row["episode"]["frames"][0] for row in rows[256:]]
    assert np.mean([row["reward"] for row in rows]) == pytest.approx(evaluation["mean_return"])
    assert np.mean([row["agreement_alone"] for row in rows]) == pytest.approx(evaluation["agreement_alone"])
    assert not any("observations" in row["episode"] for row in rows)


def test_an_episode_that_goes_on_and_on_is_written_as_far_as_it_got(tmp_path: Path):
    settings = small(tmp_path, output__episodes=2)
    policy = Policy(settings.policy, make_env(settings.env, 1).spec, torch.Generator().manual_seed(1))
    path = tmp_path / "episodes.jsonl"
    device = torch.device("cpu")
    assert write_episodes(settings, policy, device, path, step=0, most_steps=10) == 2
    for row in map(json.loads, path.read_text().splitlines()):
        episode = row["episode"]
        assert (row["length"], episode["ended"]) == (10, "unfinished")
        assert [len(episode[name]) for name in ("actions", "rewards", "frames")] == [10, 10, 10]
        assert observations(episode).shape == (11, 2, 186)
    assert write_episodes(settings, policy, device, path, step=0, most_steps=10) == 0


def test_a_file_of_somebody_else_is_left_alone(tmp_path: Path):
    outcome = ran(tmp_path)
    path = outcome.folder / "episodes.jsonl"
    path.write_text('{"mine": 1}\n')
    with pytest.raises(InputError, match=r"episodes.jsonl:1: not an episode of this run; move the file away"):
        ran(tmp_path, output__episodes="1")
    assert path.read_text() == '{"mine": 1}\n'


@pytest.mark.slow
def test_every_reader_of_rollouts_takes_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = ran(tmp_path, **HUB, output__episodes="3").folder / "episodes_sampled.jsonl"
    assert run_checks(path) == []
    assert check.run([str(path), "--fail-on", "info"]) == 0
    assert metrics.run([str(path)]) == 0
    assert show.run([str(path), "2"]) == 0
    result = capsys.readouterr().out
    row = json.loads(path.read_bytes().splitlines()[1])
    length, agents = row["length"], row["episode"]["agents"]
    said = f"Acted for {length} steps; an agent's mean return is {row['reward']:.4f}."
    assert f"{said}\n[episode]\n  {agents} agents, {length} steps, its time was over\n" in result
    assert view.run([str(path), "--export", str(tmp_path / "copy")]) == 0
    assert (tmp_path / "copy" / "index.html").is_file()
    if find_spec("pyarrow"):
        from pyarrow.parquet import read_table

        assert export.run(["parquet", str(path), "--to", str(tmp_path / "out.parquet")]) == 0
        table = read_table(tmp_path / "out.parquet").to_pylist()
        rows = [json.loads(line) for line in path.read_bytes().splitlines()]
        assert [json.loads(each["fields"])["episode"] for each in table] == [each["episode"] for each in rows]


@pytest.mark.slow
def test_a_line_never_grows_longer_than_lines_may_be(tmp_path: Path):
    name = "gymnasium:tests.support.toy_envs:toy/Noise-v0"
    values = {"env__name": name, "output__episodes": "1", "policy__hidden": "4", "supervised__steps": "0"}
    (row,) = lines(trained(tmp_path, **values, trainer__total_timesteps="64"))
    assert row["episode"]["left_out"] == ["observations"]
    assert (row["length"], len(row["episode"]["actions"])) == (2_800, 2_800)
