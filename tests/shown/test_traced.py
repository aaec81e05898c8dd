"""Traces and profiles: the same rollouts as without them, servers joined in; after a kill the rows are drawn."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.shown.conftest import content
from tests.support.patience import DEADLINE_S
from tests.support.running import Session
from tests.support.trace_check import Event, check_file

COLLECT = "ng_collect_rollouts +agent_name=my_agent +input_jsonl_fpath=tasks.jsonl +output_jsonl_fpath=OUT"


def stretches(events: list[Event], process: str) -> list[Event]:
    pids = [event["pid"] for event in events if event["name"] == "process_name" and event["args"]["name"] == process]
    return [event for event in events if event["ph"] == "X" and event["pid"] in pids]


def test_a_traced_and_profiled_collection_makes_the_same_rollouts_and_shows_every_call(workplace: Any) -> None:
    workplace.scripted(latency_s=0.002)
    workplace.tasks("tasks.jsonl", 60, wrong=20)
    plain = workplace.run(COLLECT.replace("OUT", "plain.jsonl"))

    flags = "+trace_path=traces/trace.json.gz +profiling_enabled=true +profiling_results_dirpath=profiles"
    traced = workplace.run(f"{COLLECT.replace('OUT', 'traced.jsonl')} {flags}")

    assert (plain.returncode, traced.returncode) == (0, 0), traced.stderr
    assert content(workplace.rows("traced.jsonl")) == content(workplace.rows("plain.jsonl"))
    events = check_file(workplace.folder / "traces" / "trace.json.gz")
    rollouts = [event["args"] for event in events if event["name"] == "rollout"]
    assert {each["key"]: each["reward"] for each in rollouts} == {
        row["meta"]["key"]: row["reward"] for row in workplace.rows("traced.jsonl")
    }
    assert len({each["trace_id"] for each in rollouts}) == 60
    names = [event["name"] for event in events if event["ph"] == "X"]
    counts = {name: names.count(name) for name in ("model", "tool:calculator", "verify")}
    assert counts == {"model": 120, "tool:calculator": 60, "verify": 60}
    tracks = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
    assert sorted(tracks) == sorted(f"slot {number}" for number in range(16))
    shown = {event["name"] for event in events if event["ph"] == "C"}
    assert shown >= {"in flight", "limit", "loop lag", "CPU"}
    head, *lines = (workplace.folder / "profiles" / "collector.log").read_text().splitlines()
    assert head.split() == ["name", "ncall", "tsub", "ttot", "tavg"]
    calls = {line.split()[0]: line.split()[1] for line in lines if line.startswith("Calculator.")}
    assert (calls["Calculator.verify"], calls["Calculator.calculator"]) == ("60", "60")


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
    events = check_file(workplace.folder / "trace.json")
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
def test_the_rows_of_a_collection_that_was_killed_are_drawn_afterwards(workplace: Any) -> None:
    workplace.scripted(latency_s=0.01)
    workplace.tasks("tasks.jsonl", 5_000)
    process = workplace.start(f"{COLLECT.replace('OUT', 'out.jsonl')} +trace_path=trace.json")
    workplace.wait_for_bytes("out.jsonl", process, 20_000)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=DEADLINE_S)

    done = workplace.run("velo profile out.jsonl --trace drawn.json.gz")

    assert done.returncode == 0, done.stderr
    drawn = {
        event["args"]["key"] for event in check_file(workplace.folder / "drawn.json.gz") if event["name"] == "rollout"
    }
    assert set() < drawn == set(workplace.keys("out.jsonl"))
