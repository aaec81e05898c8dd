"""`velo rerun`: one rollout again, with the task, agent, sampling and seed it had, and what stands in the way."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

Json = dict[str, Any]
Velo = Callable[..., Any]

COLLECTED = ("+seed=7", "+responses_create_params.temperature=0.3")
FAILING = {"openai_base_url": "http://127.0.0.1:9/v1", "openai_api_key": "***", "openai_model": "m", "max_retries": 0}


@pytest.fixture
def run(collect: Velo, tmp_path: Path) -> Path:
    """Three rollouts; the model says "It is 36", which is wrong for the last."""
    assert collect(["36", "36", "7"], *COLLECTED).code == 0
    return tmp_path / "r.jsonl"


def rows(path: Path) -> list[Json]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def change_record(run: Path, model: Json, **settings: Any) -> None:
    path = run.with_name("r.run.json")
    record = orjson.loads(path.read_bytes())
    record["config"] |= {"policy_model": {"responses_api_models": {"openai_model": model}}, **settings}
    path.write_bytes(orjson.dumps(record))


def test_it_runs_again_into_a_file_of_its_own(velo: Velo, run: Path):
    before = run.read_bytes()
    done = velo("rerun", "r.jsonl", "2/0", "+embedded=true")
    again = run.with_name("r.rerun.jsonl")
    answer = {"reward": 0.0, "answer": "It is 36"}
    assert (done.code, json.loads(done.out)) == (
        0,
        {
            "before": {"key": "2/0", **answer},
            "again": {"key": "2/0", **answer},
            "to": "r.rerun.jsonl",
            "next": "velo view r.jsonl r.rerun.jsonl",
        },
    )
    old, [new] = rows(run)[2], rows(again)
    assert run.read_bytes() == before
    assert new["responses_create_params"] == old["responses_create_params"]
    assert new["responses_create_params"]["temperature"] == 0.3
    assert (new["expected_answer"], new["output"]) == (old["expected_answer"], old["output"])
    assert new["meta"]["rerun_of"] == {"key": "2/0", "file": "r.jsonl", "finished_at": old["meta"]["finished_at"]}
    assert new["meta"]["task_digest"] == old["meta"]["task_digest"]
    velo("rerun", "r.jsonl", "2/0", "+embedded=true", "+responses_create_params.temperature=0")
    velo("rerun", "r.jsonl", "1/0", "+embedded=true")
    assert [each["meta"]["key"] for each in rows(again)] == ["2/0", "2/1", "1/0"]
    assert rows(again)[1]["responses_create_params"]["temperature"] == 0
    once_more = velo("rerun", "r.rerun.jsonl", "2/1", "-o", "third.jsonl", "+embedded=true")  # and of a rerun
    assert (once_more.code, rows(run.with_name("third.jsonl"))[0]["reward"]) == (0, 0.0)
    assert velo("metrics", "r.rerun.jsonl").code == 0


def test_the_command_to_type_next_is_quoted(velo: Velo, run: Path):
    done = velo("rerun", "r.jsonl", "2/0", "+embedded=true", "-o", "a b;c.jsonl")
    assert json.loads(done.out)["next"] == "velo view r.jsonl 'a b;c.jsonl'"


def test_the_seeds_of_its_calls_are_those_it_had(velo: Velo, tmp_path: Path):
    (tmp_path / "responses_api_models" / "seeing").mkdir(parents=True)
    (tmp_path / "responses_api_models" / "seeing" / "app.py").write_text(
        "class Seeing:\n"
        "    async def respond(self, request):\n"
        "        text = {'type': 'output_text', 'text': f'the seed is {request[\"seed\"]}'}\n"
        "        message = {'type': 'message', 'role': 'assistant', 'content': [text]}\n"
        "        return {'id': 'r', 'object': 'response', 'status': 'completed', 'output': [message]}\n"
    )
    (tmp_path / "model.yaml").write_text("policy_model: {responses_api_models: {seeing: {entrypoint: app.py}}}\n")
    velo("collect", "calculator", "model.yaml", "-o", "r.jsonl", "+seed=7", "+limit=2", "+embedded=true")
    for place, row in enumerate(rows(tmp_path / "r.jsonl")):
        done = velo("rerun", "r.jsonl", row["meta"]["key"], "+embedded=true")
        again = rows(tmp_path / "r.rerun.jsonl")[place]
        assert (done.code, again["response"]["content"]) == (0, row["response"]["content"])
        assert "the seed is" in again["response"]["content"]


def test_a_failed_attempt_runs_again_with_its_whole_task(velo: Velo, collect: Velo, tmp_path: Path):
    model = tmp_path / "model.yaml"
    collect(["36"])
    broken = "policy_model: {responses_api_models: {scripted_model: {answers: [{status: 400}]}}}\n"
    text = model.read_text()
    model.write_text(broken)
    paths = "+config_paths=[resources_servers/calculator/configs/calculator.yaml,model.yaml]"
    files = ("+input_jsonl_fpath=t.jsonl", "+output_jsonl_fpath=f.jsonl", "+embedded=true")
    assert velo("collect", paths, *files).code == 3
    model.write_text(text)
    done = velo("rerun", "f.jsonl", "0/0", "+embedded=true")
    assert done.code == 3  # what is on record fails again
    assert "failed" in json.loads(done.out)["again"]
    fixed = velo("rerun", "f.jsonl", "0/0", "+embedded=true", paths)
    assert (fixed.code, json.loads(fixed.out)["again"]["reward"]) == (0, 1.0)
    (tmp_path / "t.jsonl").unlink()
    gone = velo("rerun", "f.jsonl", "0/0", "+embedded=true", paths)
    assert (gone.code, "its whole task" in gone.err) == (2, True)


def refused(done: Any, *words: str) -> None:
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert all(word in done.err for word in words), done.err


def test_a_mistake_is_one_clear_line(velo: Velo, run: Path):
    refused(velo("rerun", "r.jsonl", "22/0"), "r.jsonl", "'22/0'", "nearest", "'2/0'")
    refused(velo("rerun", "r.jsonl", "2"), "'2/0'")
    refused(velo("rerun", "r.jsonl"), "velo rerun rollouts.jsonl")
    refused(velo("rerun", "gone.jsonl", "2/0"), "gone.jsonl")
    refused(velo("rerun", "t.jsonl", "2/0"), "t.jsonl", "tasks")
    refused(velo("rerun", "r.jsonl", "2/0", "-o", "r.jsonl"), "same file")
    refused(velo("rerun", "r.jsonl", "2/0", "+bogus=1"), "bogus")
    run.with_name("r.run.json").unlink()
    refused(velo("rerun", "r.jsonl", "2/0"), "r.run.json", "velo collect")
    assert not run.with_name("r.rerun.jsonl").exists()


def test_what_a_live_agent_made_is_for_python(velo: Velo, run: Path):
    path = run.with_name("r.run.json")
    path.write_bytes(orjson.dumps({**orjson.loads(path.read_bytes()), "config": {}}))
    refused(velo("rerun", "r.jsonl", "2/0"), "r.jsonl", "velodrome.rollout")


def test_a_masked_secret_is_named_with_the_way_to_give_it(velo: Velo, run: Path, tmp_path: Path):
    place = "policy_model.responses_api_models.openai_model.openai_api_key"
    change_record(run, FAILING)
    refused(velo("rerun", "r.jsonl", "2/0", "+embedded=true"), place, "r.run.json", "env.yaml")
    change_record(run, FAILING, policy_api_key="***")  # the setting that it came from is on record
    refused(velo("rerun", "r.jsonl", "2/0", "+embedded=true"), "policy_api_key")
    (tmp_path / "env.yaml").write_text("policy_api_key: sk-0123456789abcdef\n")
    done = velo("rerun", "r.jsonl", "2/0", "+embedded=true")
    assert (done.code, "model" in json.loads(done.out)["again"]["failed"]) == (3, True)  # nobody listens there
    [failure] = rows(run.with_name("r.rerun.failures.jsonl"))
    assert failure["rerun_of"]["key"] == "2/0"
    assert b"0123456789abcdef" not in b"".join(path.read_bytes() for path in tmp_path.glob("r.rerun*"))


def test_what_servers_made_asks_for_them(velo: Velo, run: Path, tmp_path: Path):
    made = rows(run)
    made[2]["meta"]["timing"]["tree"] = [["model", 0, 9, {}, [["@policy_model", 1, 7, {}, []]]]]
    run.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in made))
    (tmp_path / "env.yaml").write_text("head_server: {host: 127.0.0.1, port: 9}\n")
    refused(velo("rerun", "r.jsonl", "2/0"), "servers", "velo run", "+embedded=true")
    assert velo("rerun", "r.jsonl", "2/0", "+embedded=true").code == 0
