"""`velo collect --only KEY`: one rollout again, with the task, agent, sampling and seed it had."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

Json = dict[str, Any]
Velo = Callable[..., Any]

COLLECTED = ("+seed=7", "+responses_create_params.temperature=0.3", "-n", "2")


def rows(path: Path) -> list[Json]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


@pytest.fixture
def again(velo: Velo, collect: Velo, tmp_path: Path) -> Velo:
    """Three tasks were run twice each, by a model that answers with its seed. Runs that command with further words."""
    assert collect(["36", "36", "7"]).code == 0  # for its tasks
    (tmp_path / "responses_api_models" / "seeing").mkdir(parents=True)
    (tmp_path / "responses_api_models" / "seeing" / "app.py").write_text(
        "class Seeing:\n"
        "    async def respond(self, request):\n"
        "        text = {'type': 'output_text', 'text': f'the seed is {request[\"seed\"]}'}\n"
        "        message = {'type': 'message', 'role': 'assistant', 'content': [text]}\n"
        "        return {'id': 'r', 'object': 'response', 'status': 'completed', 'output': [message]}\n"
    )
    (tmp_path / "model.yaml").write_text("policy_model: {responses_api_models: {seeing: {entrypoint: app.py}}}\n")

    def run(*more: str) -> Any:
        return velo("collect", "calculator", "model.yaml", "t.jsonl", "-o", "s.jsonl", "+embedded=true", *more)

    assert run(*COLLECTED).code == 0
    return run


def test_it_is_the_rollout_it_was_and_nothing_is_written(again: Velo, tmp_path: Path):
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.json*")}
    old = {row["meta"]["key"]: row for row in rows(tmp_path / "s.jsonl")}["2/1"]
    done = again(*COLLECTED, "--only", "2/1", "--no-save")
    new = json.loads(done.out)
    assert (done.code, "requested 1 = kept 1 + failed 0" in done.err) == (0, True), done.err
    assert "the seed is" in new["response"]["content"]
    for name in ("responses_create_params", "output", "expected_answer", "reward"):
        assert new[name] == old[name], name
    for name in ("key", "task_digest", "task_index", "rollout_index", "agent"):
        assert new["meta"][name] == old["meta"][name], name
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.json*")} == before


def test_with_another_output_it_is_in_a_file_of_its_own_and_the_command_is_on_record(again: Velo, tmp_path: Path):
    assert again(*COLLECTED, "-o", "again.jsonl", "--only", "1/0", "+server_token=sk-0123456789abcdef").code == 0
    assert [row["meta"]["key"] for row in rows(tmp_path / "again.jsonl")] == ["1/0"]
    command = orjson.loads((tmp_path / "again.run.json").read_bytes())["runs"][-1]["command"]
    assert command.startswith("velo collect calculator model.yaml t.jsonl -o s.jsonl +embedded=true +seed=7 ")
    assert "0123456789abcdef" not in command
    there = again(*COLLECTED, "--only", "1/0")
    assert (there.code, "1 of 1 rollouts are there already" in there.err) == (0, True)


def test_a_failure_is_printed_with_its_reason(again: Velo, tmp_path: Path):
    app = tmp_path / "responses_api_models" / "seeing" / "app.py"
    app.write_text(app.read_text().replace("        text =", "        raise ValueError('no luck')\n        text ="))
    done = again(*COLLECTED, "--only", "1/0", "--no-save")
    assert (done.code, json.loads(done.out)["boundary"]) == (3, "model")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--only", "22/0", "--no-save"), "'22/0'"),
        (("--only", "2/2", "--no-save"), "num_repeats"),
        (("--no-save",), "--only KEY"),
    ],
)
def test_a_mistake_is_one_clear_line(again: Velo, words: tuple[str, ...], says: str):
    done = again(*COLLECTED, *words)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert says in done.err


async def agent(task: Json) -> Json:
    return {"output": task["id"], "reward": 1.0}
