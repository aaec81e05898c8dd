"""`+trace_path=`: the same rollouts as without it, servers joined in, and a trace that a kill leaves readable."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from patience import DEADLINE_S
from running import Session
from trace_check import check_file, faults, read_trace

from velodrome.timing.chrome import Event

COLLECT = "ng_collect_rollouts +agent_name=my_agent +input_jsonl_fpath=tasks.jsonl +output_jsonl_fpath=OUT"
MODEL = """
policy_model:
  responses_api_models:
    scripted_model:
      answers:
ANSWERS
"""


def content(row: dict[str, Any]) -> dict[str, Any]:
    """A rollout without what no two runs share."""
    meta = {name: value for name, value in row["meta"].items() if name not in ("timing", "finished_at")}
    response = {name: value for name, value in row["response"].items() if name != "id"}
    return {**row, "meta": meta, "response": response}


def contents(workplace: Any, name: str) -> list[dict[str, Any]]:
    return sorted(map(content, workplace.rows(name)), key=lambda row: row["meta"]["key"])


def stretches(events: list[Event], process: str) -> list[Event]:
    pids = [event["pid"] for event in events if event["name"] == "process_name" and event["args"]["name"] == process]
    return [event for event in events if event["ph"] == "X" and event["pid"] in pids]


def test_a_traced_collection_makes_the_same_rollouts_and_draws_each_of_them(workplace: Any) -> None:
    workplace.scripted(latency_s=0.002)
    workplace.tasks("tasks.jsonl", 60, wrong=20)
    plain = workplace.run(COLLECT.replace("OUT", "plain.jsonl"))

    traced = workplace.run(COLLECT.replace("OUT", "traced.jsonl") + " +trace_path=traces/trace.json.gz")

    assert (plain.returncode, traced.returncode) == (0, 0), traced.stderr
    assert contents(workplace, "traced.jsonl") == contents(workplace, "plain.jsonl")
    result = check_file(workplace.folder / "traces" / "trace.json.gz")
    rollouts = [event["args"] for event in result.events if event["name"] == "rollout"]
    assert {each["key"]: each["reward"] for each in rollouts} == {
        row["meta"]["key"]: row["reward"] for row in workplace.rows("traced.jsonl")
    }
    assert len({each["trace_id"] for each in rollouts}) == 60
    names = [event["name"] for event in result.events if event["ph"] == "X"]
    counts = {name: names.count(name) for name in ("model", "tool:calculator", "verify", "write")}
    assert counts == {"model": 120, "tool:calculator": 60, "verify": 60, "write": 60}
    tracks = [event["args"]["name"] for event in result.events if event["name"] == "thread_name"]
    assert sorted(tracks) == sorted(f"slot {number}" for number in range(16))
    shown = {event["name"] for event in result.events if event["ph"] == "C"}
    assert shown == {"in flight", "limit", "loop lag", "CPU", "throughput"}


def test_the_spans_of_servers_are_in_their_own_processes_and_joined_to_their_rollouts(workplace: Any) -> None:
    workplace.scripted(latency_s=0.01)
    (workplace.folder / "env.yaml").unlink()
    workplace.tasks("tasks.jsonl", 40)
    with Session(workplace.folder, "+config_paths=[agent.yaml,model.yaml]").up() as servers:
        head = f"+head_server.port={servers.port}"
        pids = {name: each["pid"] for name, each in servers.instances().items()}
        done = workplace.run(f"{COLLECT.replace('OUT', 'out.jsonl')} {head} +trace_path=trace.json")
        servers.ends(signal.SIGINT)

    assert done.returncode == 0, done.stderr
    events = check_file(workplace.folder / "trace.json").events
    named = {event["args"]["name"]: event["pid"] for event in events if event["name"] == "process_name"}
    collector = named.pop("collector")
    assert named == {name: pids[name] for name in ("my_agent", "policy_model", "calculator")}
    assert len([event for event in stretches(events, "policy_model") if event["name"] == "policy_model"]) == 80
    assert len([event for event in stretches(events, "my_agent") if event["name"] == "model"]) == 80
    assert len([event for event in stretches(events, "collector") if event["name"] == "rollout"]) == 40
    arrows = [event["pid"] for event in events if event["ph"] == "f"]
    assert arrows.count(named["my_agent"]) == 40
    assert arrows.count(named["policy_model"]) == 80
    assert arrows.count(named["calculator"]) >= 80  # the tool and verify
    assert {event["pid"] for event in events if event["ph"] == "s"} == {collector, named["my_agent"]}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_collection_killed_at_a_random_moment_leaves_a_readable_trace(workplace: Any, name: str) -> None:
    workplace.scripted(latency_s=0.01)
    workplace.tasks("tasks.jsonl", 20_000)
    chance = random.Random(11)
    path = workplace.folder / name
    for _ in range(3):
        size = killed_after_growing(workplace, path, chance)

        result = read_trace(path)

        assert result.missing == f"the end: it is cut off after {len(result.events)} events"
        assert faults(result.events) == []
        rollouts = [event for event in result.events if event["name"] == "rollout"]
        assert len(rollouts) > 0, size
        keys = [row["meta"]["key"] for row in workplace.rows("out.jsonl")]
        assert {event["args"]["key"] for event in rollouts} <= set(keys)
        (workplace.folder / "out.jsonl").unlink()
    assert read_trace(path.with_name(f"{name}.1")).made_by == "velodrome"


def killed_after_growing(workplace: Any, path: Path, chance: random.Random) -> int:
    """Start a collection, kill it some time after its trace holds rollouts; the size of the trace."""
    command = f"exec {COLLECT.replace('OUT', 'out.jsonl')} +trace_path={path.name}"
    process = subprocess.Popen(
        ["bash", "-c", command], cwd=workplace.folder, env=workplace.environ, stderr=subprocess.PIPE, text=True
    )
    before = path.stat().st_ino if path.exists() else None
    deadline = time.monotonic() + DEADLINE_S
    while not (path.exists() and path.stat().st_ino != before and path.stat().st_size > 1000):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.005)
    time.sleep(chance.random() * 0.7)  # the random moment itself, not a wait for something
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=DEADLINE_S)
    assert process.returncode == -signal.SIGKILL
    return path.stat().st_size


def test_a_trace_that_the_disk_refuses_costs_the_collection_nothing(workplace: Any) -> None:
    workplace.scripted()
    call = '- tool_calls: [{name: calculator, arguments: {expression: "6 * 6"}}]'
    script = "\n".join(f"        {answer}" for answer in [*[call] * 8, '- "It is {tool_result}"'])
    workplace.write("model.yaml", MODEL.replace("ANSWERS", script))
    workplace.tasks("tasks.jsonl", 100)
    command = COLLECT.replace("OUT", "out.jsonl.zst")  # much smaller than its trace
    limit = 200_000

    done = workplace.run(
        f"{command} +trace_path=trace.json",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )

    assert done.returncode == 0, done.stderr
    assert "requested 100 = kept 100 + failed 0" in done.stderr
    assert "trace.json: File too large; not in the trace: " in done.stderr
    result = read_trace(workplace.folder / "trace.json")
    assert faults(result.events) == []
    assert 0 < len([event for event in result.events if event["name"] == "rollout"]) < 100


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("trace.txt", "trace.txt: a trace is called …"),
        ("tasks.jsonl", "tasks.jsonl: a trace is called …"),
        ("mine.json", "mine.json: it is there and is not an earlier trace"),
        ("out.run.json", "out.run.json: a collection into out.jsonl writes this file itself"),
        ("mine.json/trace.json", "mine.json/trace.json: cannot be written: "),
    ],
)
def test_a_trace_that_cannot_be_is_said_before_anything_runs(workplace: Any, path: str, said: str) -> None:
    workplace.scripted()
    workplace.tasks("tasks.jsonl", 3)
    workplace.write("mine.json", json.dumps([1, 2]))
    before = sorted(os.listdir(workplace.folder))

    done = workplace.run(f"{COLLECT.replace('OUT', 'out.jsonl')} +trace_path={path}")

    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(os.listdir(workplace.folder)) == before
    assert json.loads((workplace.folder / "mine.json").read_text()) == [1, 2]
