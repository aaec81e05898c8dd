"""Several players: each with its own model, conversation and reward, here and served."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import orjson
import pytest

from velodrome import SimpleAgent, http
from velodrome.api.collecting import collect
from velodrome.cli.main import main as velo
from velodrome.environments.agents.players_agent.app import PlayersAgent
from velodrome.environments.players_environment import PlayersEnvironment
from velodrome.environments.tic_tac_toe.app import TicTacToe
from velodrome.errors import AgentError, InputError, ModelError, RolloutError, ToolError
from velodrome.resources_servers.turn_environment import TurnEnvironment
from velodrome.responses_api_models.scripted_model.app import ScriptedModel
from velodrome.serving.hosting import served
from velodrome.serving.remote import HttpResources

Json = dict[str, Any]
START: Json = {"responses_create_params": {"input": []}, "board": "........."}
PAGE = Path(__file__).parents[2] / "docs" / "environments.md"


def scripted(*answers: Any) -> ScriptedModel:
    return ScriptedModel(answers=list(answers))


def agent(x: Any, o: Any, environment: Any = None, **settings: Any) -> PlayersAgent:
    return PlayersAgent(players={"x": x, "o": o}, environment=environment or TicTacToe(), **settings)


def match(x: Any, o: Any, task: Json = START, **settings: Any) -> Json:
    return asyncio.run(agent(x, o, **settings).run(task))


def said(talk: Json) -> list[tuple[str, str]]:
    return [(message["role"], message["content"].splitlines()[0]) for message in talk["output"]]


def test_each_player_has_a_conversation_and_a_reward_of_its_own():
    result = match(scripted("1", "2", "3"), scripted("4", "5"))
    assert (result["rewards"], result["reward"], result["winner"]) == ({"x": 1.0, "o": 0.0}, 0.5, "x")
    x, o = result["players"]["x"], result["players"]["o"]
    assert [role for role, _ in said(x)] == ["assistant", "user"] * 3
    assert [text for _, text in said(x)] == ["1", "o takes 4.", "2", "o takes 5.", "3", "x x x"]
    assert [text for _, text in said(o)] == ["4", "x takes 2.", "5", "x x x"]
    assert o["responses_create_params"]["input"][0]["content"].startswith("x takes 1.")
    assert result["responses_create_params"] == x["responses_create_params"]
    assert (result["step_rewards"][-1], result["terminated"]) == ({"x": 1.0, "o": 0.0}, True)
    assert all(talk["usage"]["output_tokens"] for talk in (x, o))
    learned = match(scripted("1", "2", "3"), scripted("4", "5"), learner="o")
    assert (learned["reward"], learned["response"]["status"]) == (0.0, "completed")
    turns = [item for item in learned["response"]["output"] if item["role"] == "assistant"]
    assert [item["content"][0]["text"] for item in turns] == ["4", "5"]


class Auction(PlayersEnvironment):
    """Both bid at once; a bidder may look up the value, and the loser is told, too."""

    def reset(self, task: Json, session: Json) -> Any:
        session["rounds"] = 0
        return {"x": "Bid.", "o": [{"role": "user", "content": "Bid, please."}]}, {"rounds": 0}

    async def step(self, actions: Json, session: Json) -> Any:
        session["rounds"] += 1
        bids = {name: int(text) for name, text in actions.items()}
        highest = max(bids, key=lambda name: bids[name])
        return dict.fromkeys(actions, f"{highest} bid more."), {highest: 0.5}, False, session["rounds"] == 2, {}


def test_those_who_are_addressed_together_act_together_and_an_illegal_move_is_told_to_them():
    result = match(scripted("5", "7", "what"), scripted("6", "3"), environment=Auction())
    assert (result["rewards"], result["truncated"]) == ({"o": 0.5, "x": 0.5}, True)
    assert result["response"]["metadata"]["stop"] == "truncated"
    result = match(scripted("what", "5", "5"), scripted("6", "6", "6"), environment=Auction())
    assert said(result["players"]["o"])[1][1].startswith("error: invalid literal")
    assert result["rewards"] == {"o": 0.5, "x": 0.0}


def failure(x: Any, o: Any, **settings: Any) -> RolloutError:
    with pytest.raises(RolloutError) as caught:
        match(x, o, **settings)
    return caught.value


def test_a_failure_of_another_players_model_is_not_the_learners():
    def broken() -> ScriptedModel:
        return ScriptedModel(answers=["4"], faults=[{"kind": "status", "status": 400}])

    error = failure(scripted("1"), broken())
    assert (type(error), str(error)) == (ModelError, "o: scripted fault: status 400")
    error = failure(scripted("1"), broken(), learner="x")
    assert (type(error), [item["role"] for item in error.partial or ()]) == (ToolError, ["assistant"])


def test_limits_stop_a_match_and_name_themselves():
    endless = match(scripted("5"), scripted("5"), environment=TicTacToe(illegal_moves=99), max_rounds=4)
    assert (endless["response"]["status"], endless["response"]["metadata"]["stop"]) == ("incomplete", "max_steps")
    details = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    cut = match(scripted("1"), scripted({"output": [{"type": "message", "content": "I"}], **details}))
    assert (cut["response"]["metadata"]["stop"], cut["rewards"]) == ("max_output_tokens", {})


class Watched(Auction):
    """Counts the sessions it closes."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = 0

    def close_session(self, session: Json) -> None:
        self.closed += 1


def test_the_session_of_a_match_is_closed_once_also_after_a_failure():
    environment = Watched()
    match(scripted("5", "7"), scripted("6", "3"), environment=environment)
    assert environment.closed == 1
    broken = ScriptedModel(answers=["4"], faults=[{"kind": "status", "status": 400}])
    failure(scripted("5"), broken, environment=environment)
    assert environment.closed == 2


class Odd(PlayersEnvironment):
    first: Any = None
    then: Any = None

    async def reset(self, task: Json) -> Any:
        return self.first

    async def step(self, actions: Json) -> Any:
        return self.then


RETURNED: list[tuple[Any, Any, str]] = [
    ("text", None, "not a dict by player"),
    ({"x": "go"}, ({"x": "on"}, {"x": float("nan")}, False, False, {}), '"reward" nan'),
    ({"x": "go"}, ({}, {}, False, False, {}), "addresses no player"),
    ({"z": "go"}, None, 'addresses "z"; the players are x, o'),
]


def test_what_an_environment_of_players_returns_is_checked():
    for first, then, says in RETURNED:
        error = failure(scripted("1"), scripted("1"), environment=Odd(first=first, then=then))
        assert (type(error), says in str(error)) == (ToolError, True), str(error)


def test_a_match_is_the_same_in_a_served_environment():
    async def both() -> tuple[Json, Json]:
        environment = TicTacToe()
        here = await agent(scripted("1", "2", "3"), scripted("4", "5"), environment).run(START)
        async with served(environment) as url:
            there = await agent(scripted("1", "2", "3"), scripted("4", "5"), HttpResources(url)).run(START)
            await http.close_shared()
        return here, there

    here, there = asyncio.run(both())
    for name in ("players", "rewards", "reward", "step_rewards", "winner"):
        assert here[name] == there[name]


def test_who_cannot_play_is_refused():
    class Alone(TurnEnvironment):
        async def step(self, action: str) -> Any:
            return None, 1, True, False, {}

    with pytest.raises(InputError, match="at least two"):
        PlayersAgent(players={"x": scripted("1")}, environment=TicTacToe())
    with pytest.raises(InputError, match='learner "z" is not among x, o'):
        agent(scripted("1"), scripted("1"), learner="z")
    assert "simple_agent plays it" in str(failure(scripted("1"), scripted("1"), environment=Alone()))
    with pytest.raises(AgentError, match="use players_agent"):
        asyncio.run(SimpleAgent(model=scripted("1", "2", "3"), environment=TicTacToe()).run(START))


def test_rollouts_of_players_become_one_for_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    source, target, sft = tmp_path / "r.jsonl", tmp_path / "p.jsonl", tmp_path / "sft.jsonl"
    task = {**START, "id": "start"}
    run = asyncio.run(collect([task], agent(scripted("1", "2", "3"), scripted("4", "5")), out=source, repeats=2))
    assert (run.kept, run.metrics["reward"]) == (2, 0.5)
    assert velo(["import", "players", str(source), "--to", str(target)]) == 0
    rows = {row["meta"]["key"]: row for row in map(orjson.loads, target.read_bytes().splitlines())}
    assert list(rows) == ["start:x/0", "start:o/0", "start:x/1", "start:o/1"]
    loser = rows["start:o/0"]
    assert (loser["reward"], loser["response"]["content"], loser["step_rewards"]) == (0.0, "5", [0.0] * 5)
    assert velo(["export", "sft", str(target), "--to", str(sft)]) == 0
    (first, *_) = map(orjson.loads, sft.read_bytes().splitlines())
    assert [message["content"] for message in first["messages"] if message["role"] == "assistant"] == ["1", "2", "3"]
    assert velo(["import", "players", str(target), "--to", str(tmp_path / "again.jsonl")]) == 2
    assert "not a rollout of several players" in capsys.readouterr().err


def test_a_config_names_the_model_of_each_player_and_the_documented_game_is_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    model = {"policy_model": {"responses_api_models": {"scripted_model": {"answers": ["1", "2", "3"]}}}}
    (tmp_path / "model.yaml").write_bytes(orjson.dumps(model))
    (tmp_path / "tasks.jsonl").write_bytes(orjson.dumps({**START, "id": "t"}))
    configs = "+config_paths=[resources_servers/tic_tac_toe/configs/tic_tac_toe_players.yaml,model.yaml]"
    files = ["+input_jsonl_fpath=tasks.jsonl", "+output_jsonl_fpath=out.jsonl", "+embedded=true"]
    assert velo(["collect", configs, *files]) == 0
    (row,) = map(orjson.loads, (tmp_path / "out.jsonl").read_bytes().splitlines())
    assert (row["players"].keys(), row["winner"]) == ({"x", "o"}, "x")
    (code,) = re.findall(r"```python\n(from velodrome\S+players_env.*?class Split.*?)```", PAGE.read_text(), re.DOTALL)
    scope: Json = {"__name__": "documented"}
    exec(compile(code, "docs/environments.md", "exec", dont_inherit=True), scope)
    players = {"giver": scripted("4"), "taker": scripted("yes")}
    result = asyncio.run(PlayersAgent(players=players, environment=scope["Split"]()).run({**START}))
    assert result["rewards"] == {"giver": 0.6, "taker": 0.4}
