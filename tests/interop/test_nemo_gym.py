"""The real NeMo Gym: its collector on our servers, ours on its servers, its types and its profile on our files."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from tests.interop.corpus import CASES, TOKENS, Case, Event, events, got, text, told, tool
from tests.interop.law import exported, hold
from tests.interop.programs import environment, inherited, process_group, run
from tests.interop.servers import gym_servers
from tests.records.test_response_fields import MADE
from tests.support import hosted as hosting
from tests.support import pages
from tests.support.patience import DEADLINE_S
from tests.support.running import Session
from velodrome.connect.nemo_gym.aggregate import aggregate
from velodrome.exchange.api import export
from velodrome.exchange.imports.importing import ImportOptions, import_file
from velodrome.records.facts import RowFacts
from velodrome.records.rollout import encode, make_rollout
from velodrome.responses_api_models.scripted_model.app import ScriptedModel

Json = dict[str, Any]

HERE = Path(__file__).parent
THEIRS = (
    "resources_servers/example_session_state_mgmt",
    "responses_api_agents/simple_agent",
    "responses_api_models/openai_model",
)
COUNTER = f"{THEIRS[0]}/configs/example_session_state_mgmt.yaml"
TOOLS = [tool("increment_counter", count={"type": "integer"}), tool("get_counter_value")]
ADD = [{"name": "increment_counter", "arguments": {"count": number}} for number in (1, 2)]
SCRIPT: list[Any] = [{"tool_calls": ADD}, {"tool_calls": [{"name": "get_counter_value"}]}, "It is {tool_result}"]
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "WANDB_MODE": "disabled", "HYDRA_FULL_ERROR": "1"}


def task(number: int, *, expected: int | None = None) -> Json:
    """The script adds three to what the counter has at first."""
    asked = {"input": [{"role": "user", "content": f"Count on from {number}."}], "tools": TOOLS}
    right = {"expected_count": number + 3 if expected is None else expected}
    return {"responses_create_params": asked, "initial_count": number, **right}


TASKS = [task(0), task(1), task(2, expected=99)]


def lines(path: Path, rows: list[Json]) -> Path:
    path.write_bytes(b"".join(encode(row) for row in rows))
    return path


def read(path: Path) -> list[Json]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def ours(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`velo`, in a folder."""
    command = [sys.executable, "-m", "velodrome.cli.main", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


def theirs(folder: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """One of their commands, in a folder, and in a group of processes that ends with it."""
    command = [str(environment("nemo_gym").with_name(program)), *arguments, f"hydra.run.dir={folder / 'hydra'}"]
    with process_group(command, folder, inherited() | QUIET, stderr=subprocess.PIPE) as process:
        out, err = process.communicate(timeout=DEADLINE_S)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def test_its_collector_runs_to_its_end_on_our_servers_with_the_same_mean(tmp_path: Path):
    (tmp_path / "model.yaml").write_text(
        json.dumps({"policy_model": {"responses_api_models": {"scripted_model": {"answers": SCRIPT}}}})
    )
    lines(tmp_path / "tasks.jsonl", TASKS)
    run_options = ["+agent_name=example_session_state_mgmt_simple_agent", "+num_repeats=2"]
    with Session(tmp_path, f"+config_paths=[{COUNTER},model.yaml]", "+num_workers=2") as servers:
        servers.up()
        head = f"+head_server.port={servers.port}"
        place = ("+head_server.host=127.0.0.1", head)
        status = theirs(tmp_path, "ng_status", *place)
        files = [f"+input_jsonl_fpath={tmp_path}/tasks.jsonl", f"+output_jsonl_fpath={tmp_path}/theirs.jsonl"]
        ended = theirs(tmp_path, "gym", "eval", "run", "--no-serve", *run_options, *files, *place)
        files = ["+input_jsonl_fpath=tasks.jsonl", "+output_jsonl_fpath=ours.jsonl"]
        collected = ours(tmp_path, "collect", *run_options, *files, head)
    assert "4 servers found (4 healthy" in status.stdout, status.stdout + status.stderr
    assert (ended.returncode, collected.returncode) == (0, 0), ended.stdout + ended.stderr + collected.stderr
    rollouts = read(tmp_path / "theirs.jsonl")
    assert [row["reward"] for row in sorted(rollouts, key=lambda row: row["initial_count"])] == [1, 1, 1, 1, 0, 0]
    [metrics] = json.loads((tmp_path / "theirs_aggregate_metrics.json").read_text())
    assert metrics["key_metrics"]["mean/reward"] == pytest.approx(json.loads(collected.stdout)["reward"])
    assert [each["mean/reward"] for each in metrics["group_level_metrics"]] == [1, 1, 0]
    import_file("nemo_gym", tmp_path / "theirs.jsonl", ImportOptions(to=tmp_path / "back.jsonl"))
    back, made = (
        sorted(
            (one.prompt, one.answer, one.reward, one.tool_calls, one.total_tokens)
            for one in map(RowFacts, read(tmp_path / name))
        )
        for name in ("back.jsonl", "ours.jsonl")
    )
    assert back == made


def server(path: str, kind: str, **settings: Any) -> Json:
    """One of their servers: its class, in the `app` of a folder of their package, and its settings."""
    place, _, name = path.partition("/")
    return {"type": place, "name": name, "class": f"{place}.{name}.app:{kind}", "settings": settings}


def their_servers(model: str, folder: Path) -> AbstractContextManager[dict[str, str]]:
    """The addresses of their servers, of which the model server asks `model`."""
    links = {
        "resources_server": {"type": "resources_servers", "name": "environment"},
        "model_server": {"type": "responses_api_models", "name": "model"},
    }
    asked = {"openai_base_url": model, "openai_api_key": "none", "openai_model": "scripted"}
    servers = {
        "environment": server(THEIRS[0], "StatefulCounterResourcesServer", domain="agent"),
        "agent": server(THEIRS[1], "SimpleAgent", max_steps=6, **links),
        "model": server(THEIRS[2], "SimpleModelServer", **asked),
    }
    return gym_servers(folder, servers)


def of_the_page(environment: str) -> Json:
    """The config in docs/serving.md: our agent `my_agent`, with our model, on their environment at this address."""
    [page] = pages.blocks(pages.section(pages.read("serving.md"), "NeMo Gym's servers"), "yaml")
    config: Json = yaml.safe_load(page)
    config["their_counter"]["resources_servers"]["theirs"]["url"] = environment
    return config


def blocks(urls: dict[str, str]) -> Json:
    """Their agent; ours on their environment and their model; and ours on their environment and a model of our own."""
    agents = {
        "their_agent": {"url": urls["agent"]},
        "our_agent": {
            "entrypoint": "app.py",
            "resources_server": {"type": "resources_servers", "name": "their_counter"},
            "model_server": {"type": "responses_api_models", "name": "theirs"},
        },
    }
    return {
        **of_the_page(urls["environment"]),
        "theirs": {"responses_api_models": {"openai_model": {"url": urls["model"]}}},
        **{name: {"responses_api_agents": {"simple_agent": block}} for name, block in agents.items()},
    }


def test_our_collector_takes_its_agent_its_environment_and_its_model(tmp_path: Path):
    """Sessions are kept by its cookies, and a fault is blamed on the server that had it."""
    unseeded, unverified = task(3), task(4)
    del unseeded["initial_count"], unverified["expected_count"]
    lines(tmp_path / "tasks.jsonl", [*TASKS, unseeded, unverified])
    files = ["+config_paths=[blocks.yaml]", "+embedded=true"]
    agents = {"their_agent": files, "our_agent": files, "my_agent": files}
    with (
        hosting.hosted("responses_api_models", lambda: ScriptedModel(answers=SCRIPT)) as model,
        their_servers(f"{model}/v1", tmp_path) as urls,
    ):
        (tmp_path / "blocks.yaml").write_text(json.dumps(blocks(urls)))
        agents["agent"] = [
            f"+head_server.port={urls['head_server'].rpartition(':')[2]}"
        ]  # theirs, as their head has it
        for agent, place in agents.items():
            options = [*place, "+input_jsonl_fpath=tasks.jsonl", f"+output_jsonl_fpath={agent}.jsonl"]
            ended = ours(tmp_path, "collect", f"+agent_name={agent}", "+num_repeats=2", *options)
            assert "could not be closed" not in ended.stderr
    for agent in agents:
        rows = read(tmp_path / f"{agent}.jsonl")
        rows.sort(key=lambda row: str(row["meta"]["task_index"]))
        assert [row["reward"] for row in rows] == [1, 1, 1, 1, 0, 0]
        assert [row["response"]["content"] for row in rows[::2]] == [f'It is {{"count":{n}}}' for n in (3, 4, 5)]
        assert [(row["initial_count"], row["expected_count"]) for row in rows[::2]] == [(0, 3), (1, 4), (2, 99)]
        assert {*rows[0]["responses_create_params"]} <= {"input", "tools", "tool_choice", "parallel_tool_calls"}
        assert rows[0]["usage"]["total_tokens"] > 0
        failed = {(each["task_index"], each["boundary"]) for each in read(tmp_path / f"{agent}.failures.jsonl")}
        assert failed == (
            {(3, "agent"), (4, "agent")} if agent in ("their_agent", "agent") else {(3, "tool"), (4, "verify")}
        )


def others(folder: Path) -> Path:
    """Rollouts that the corpus has none of: other prompts, other requests, other sources."""
    image = [{"type": "text", "text": "See"}, {"type": "image_url", "image_url": {"url": "u"}}]
    call = {"id": "c", "function": {"name": "f", "arguments": "{}"}}
    chat = [
        {"role": "user", "content": image},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "1"},
        {"role": "assistant", "content": "One."},
        {"role": "user", "content": "And?"},
    ]
    nested = [{"type": "function", "function": {"name": "f"}}]
    asked: dict[str, Json] = {
        "a text": {"input": "Hi"},
        "chat": {"input": chat, "tools": nested, "tool_choice": {"type": "function", "function": {"name": "f"}}},
        "more": {"input": "Hi", "seed": 7, "top_k": 5, "temperature": 0.5, "metadata": {"n": 1}, "tools": None},
        "an image": {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "u"}]}]},
        "bare": {"input": [{"role": "developer", "content": "Be kind."}, {"role": "user", "content": "Hi"}]},
    }
    rows = []
    for place, (name, params) in enumerate(asked.items()):
        of = {"id": name, "responses_create_params": params}
        response = {"output": [text("Yes.")], **({} if name == "bare" else {"id": "r", "status": "completed"})}
        meta = {"key": f"{name}/0", "task_index": place, "rollout_index": 0, "agent": "a"}
        rows.append(make_rollout(of, {**of, "response": response, "reward": 1, "right": True}, meta))
    former = {"status": "incomplete", "incomplete_details": {"reason": "max_steps"}, "content": ""}
    rows.append({**rows[0], "response": former, "meta": {**rows[0]["meta"], "key": "former/0", "task_index": 9}})
    return lines(folder / "others.jsonl", rows)


def test_its_types_its_metrics_and_its_reward_profile_take_our_files(tmp_path: Path):
    _, names, unfit = exported("nemo_gym", tmp_path, "theirs.jsonl")
    whole = tmp_path / "whole.jsonl"
    assert export("nemo_gym", [tmp_path / "rollouts.jsonl", others(tmp_path)], whole).unfit == 0
    responses = lines(tmp_path / "responses.jsonl", [make() for make in MADE.values()])
    answer = json.loads(run("nemo_gym", HERE / "nemo_gym_types.py", whole, responses, **QUIET).splitlines()[0])
    assert [each["refused"] for each in (*answer["records"], *answer["responses"]) if "refused" in each] == []
    seen: dict[str, list[Event]] = {}
    for name, record in zip(names, answer["records"], strict=False):
        seen.setdefault(name, held(record))
    hold("nemo_gym", seen, unfit, expected)
    assert answer["records"][names.index("tokens")]["response"]["output"][0].items() >= TOKENS.items()
    compare(aggregate(answer["asked"]), answer["metrics"])
    profiles = read(tmp_path / "whole_reward_profiling.jsonl")  # of gym eval profile
    assert [(each["mean/reward"], each["num_rollouts"]) for each in profiles[: len(CASES)]] == [(0.5, 2)] * len(CASES)


def expected(case: Case) -> list[Event]:
    """The result of a tool is a text there, as in a rollouts file."""
    if case.name != "image_result":
        return case.happened
    call, _, _, answer = case.made
    output = orjson.dumps(case.output[1]["output"]).decode()
    return [*case.prompt, call, got("call_1", output), answer]


def held(record: Json) -> list[Event]:
    """What their types hold of a rollout."""
    params = record["responses_create_params"]
    system = [told("system", params["instructions"])] if params["instructions"] else []
    return [*system, *events([*params["input"], *record["response"]["output"]])]


def compare(made: Json, theirs: Json) -> None:
    """Every number of ours is theirs, and theirs has no other statistic."""
    assert made["agent_metrics"] == pytest.approx(theirs["agent_metrics"])
    assert made["key_metrics"] == pytest.approx(theirs["key_metrics"])
    assert len(made["group_level_metrics"]) == len(theirs["group_level_metrics"])
    for own, their in zip(made["group_level_metrics"], theirs["group_level_metrics"], strict=True):
        statistics = {name: value for name, value in their.items() if "/" in name or name in own}
        assert own == pytest.approx(statistics)
