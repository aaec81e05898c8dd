"""Rows of rollouts with turns, collected and then read by everything that reads rows."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from velodrome import SimpleAgent, TurnEnvironment
from velodrome.api.collecting import collect
from velodrome.api.measuring import check, metrics
from velodrome.api.reading import read
from velodrome.cli.main import main
from velodrome.errors import InputError
from velodrome.exchange.api import export
from velodrome.records.facts import RowFacts
from velodrome.viewer.transcript import transcript

Json = dict[str, Any]


class Guess(TurnEnvironment):
    """Guess a number within four turns."""

    def reset(self, task: Json, session: Json) -> str:
        session.update(secret=task["secret"], left=4)
        return f"Guess a number up to {task['most']}."

    async def step(self, action: str, session: Json) -> Any:
        session["left"] -= 1
        if int(action) == session["secret"]:
            return "Right.", 1.0, True, False, {"solved": True}
        word = "Too low." if int(action) < session["secret"] else "Too high."
        return word, 0.0, False, session["left"] == 0, {"solved": False}


async def counts_up(request: Json) -> Json:
    """A model that guesses 1, 2, 3, … and has token ids."""
    turn = 1 + sum(item.get("role") == "assistant" for item in request["input"])
    prompt = list(range(3 * turn))
    ids = {"prompt_token_ids": prompt, "generation_token_ids": [turn], "generation_log_probs": [-0.5]}
    message = {"type": "message", "content": str(turn), **ids}
    return {"output": [message], "usage": {"input_tokens": len(prompt), "output_tokens": 1}}


TASKS = [
    {"id": "easy", "responses_create_params": {"input": []}, "secret": 2, "most": 9},
    {
        "id": "hard",
        "responses_create_params": {"input": [{"role": "system", "content": "Play."}]},
        "secret": 9,
        "most": 9,
    },
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("turns") / "rollouts.jsonl"
    agent = SimpleAgent(model=counts_up, environment=Guess())
    run = asyncio.run(collect(TASKS, agent=agent, out=path, repeats=2))
    assert (run.kept, run.failed) == (4, 0)
    return path


def test_a_row_has_the_turns_of_both_the_rewards_of_steps_and_its_outcome(path: Path):
    rows = {row["meta"]["key"]: row for row in map(orjson.loads, path.read_bytes().splitlines())}
    easy, hard = rows["easy/0"], rows["hard/0"]
    assert easy["responses_create_params"]["input"] == [{"role": "user", "content": "Guess a number up to 9."}]
    talk = [(message["role"], message["content"]) for message in easy["output"]]
    assert talk == [("assistant", "1"), ("user", "Too low."), ("assistant", "2"), ("user", "Right.")]
    assert (easy["step_rewards"], easy["terminated"], easy["truncated"]) == ([0.0, 1.0], True, False)
    assert (easy["reward"], easy["solved"], easy["meta"]["outcome"]) == (1.0, True, "finished")
    assert (hard["step_rewards"], hard["truncated"], hard["meta"]["outcome"]) == ([0.0] * 4, True, "truncated")
    assert {span[0] for span in easy["meta"]["timing"]["tree"]} >= {"tool:reset", "tool:step", "model"}
    facts = RowFacts(easy)
    assert (facts.turns, facts.tool_calls, facts.answer, facts.token_flaws) == (2, 0, "2", [])
    text = transcript(hard)
    assert "[assistant]\n  1\n[user]\n  Too low.\n" in text
    assert ("(stopped: truncated)" in text, "step_rewards: [0.0,0.0,0.0,0.0]" in text) == (True, True)
    assert [finding.name for finding in check(path) if finding.severity == "error"] == []
    assert [row["meta"]["key"] for row in read(path, "outcome=truncated")] == ["hard/0", "hard/1"]


def exported(path: Path, format_: str, **options: Any) -> list[Json]:
    to = path.with_name(f"{format_}.jsonl")
    export(format_, path, to, overwrite=True, **options)
    return [orjson.loads(line) for line in to.read_bytes().splitlines()]


def test_training_data_ends_with_the_model_and_keeps_the_turns_of_the_user(path: Path):
    sft, _ = exported(path, "sft")
    said = ["Guess a number up to 9.", "1", "Too low.", "2"]
    assert [message["content"] for message in sft["messages"]] == said
    assert [message["role"] for message in sft["messages"]] == ["user", "assistant", "user", "assistant"]
    stopped, *_ = exported(path, "sft", where="outcome:truncated")
    assert stopped["messages"][-1] == {"role": "assistant", "content": "4"}
    easy, hard = exported(path, "grpo")
    assert [turn["generation_token_ids"] for turn in easy["turns"][0]] == [[1], [2]]
    assert (easy["rewards"], hard["statuses"], hard["stops"]) == ([1.0, 1.0], ["incomplete"] * 2, ["truncated"] * 2)
    with pytest.raises(InputError, match="turns of the user"):  # preferences would learn the user
        exported(path, "dpo")


def test_metrics_say_which_rollouts_they_count(path: Path, capsys: pytest.CaptureFixture[str]):
    assert metrics(path)["stopped/truncated"] == 2
    result = metrics(path, by="outcome")
    assert result["run"]["outcomes"] == {"finished": 2, "truncated": 2}
    assert [group["outcomes"] for group in result["groups"]] == [{"finished": 2}, {"truncated": 2}]
    assert main(["metrics", str(path), "--by", "agent"]) == 0
    assert "counted: 2 finished and 2 stopped by a limit (truncated 2)" in capsys.readouterr().out
    assert main(["compare", str(path), str(path)]) == 0
    assert capsys.readouterr().out.count("4 rollouts, 0 failed, 2 stopped by a limit and counted") == 2
