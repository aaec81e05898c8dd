"""Rows as a trace: exact events, tracks that nest whatever the spans were, and files that are left alone."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.trace_check import Event, check_file
from velodrome.errors import InputError
from velodrome.profiling.chrome_trace import check_target, write_trace

Json = dict[str, Any]
Node = list[Any]

AT_US = 1_700_000_000_000_000
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def node(name: str, start: float, end: float, *children: Node, **counts: float) -> Node:
    """A span below a rollout, its times in microseconds after the start of the rollout."""
    return [name, start, end - start, counts, list(children)]


def row(start: int, end: int, *tree: Node, key: str = "a/0", **fields: Any) -> Json:
    """A rollout, its times in microseconds after AT_US."""
    timing = {"total_s": (end - start) / 1e6, "tree": list(tree)}
    meta = {"key": key, "agent": "my_agent", "finished_at": (AT_US + end) / 1e6, "timing": timing}
    return {"output": [], "response": {}, "reward": 1.0, "meta": meta | fields}


def traced(folder: Path, *rows: Json, samples: tuple[Json, ...] = (), failures: tuple[Json, ...] = ()) -> list[Event]:
    """The events of a trace of these rows, with times after AT_US."""
    for name, lines in (("r.jsonl", rows), ("r.samples.jsonl", samples), ("r.failures.jsonl", failures)):
        (folder / name).write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    assert write_trace(folder / "r.jsonl", folder / "trace.json") == []
    events = check_file(folder / "trace.json")
    return [{**event, "ts": event["ts"] - AT_US} if "ts" in event else event for event in events]


def drawn(events: list[Event]) -> dict[str, list[tuple[str, int, int]]]:
    """What is on each track, by process and track name: (name, start, end)."""
    processes = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    result: dict[str, list[tuple[str, int, int]]] = {}
    tracks: dict[int, str] = {}
    for event in events:
        if event["name"] == "thread_name":
            tracks[event["tid"]] = f"{processes[event['pid']]}: {event['args']['name']}"
        elif event["ph"] == "X":
            stretch = (event["name"], event["ts"], event["ts"] + event["dur"])
            result.setdefault(tracks[event["tid"]], []).append(stretch)
    return result


def test_one_rollout_is_drawn_exactly(tmp_path: Path) -> None:
    model = node("model", 10, 4000, node("queue", 20, 500), tokens=12)

    events = traced(tmp_path, row(1000, 9000, model, node("verify", 5000, 7000), trace=TRACE))

    track: Event = {"pid": 1, "tid": 1}
    args = {"key": "a/0", "agent": "my_agent", "reward": 1.0, "trace_id": "0af7651916cd43dd8448eb211c80319c"}
    assert events == [
        {"name": "process_name", "ph": "M", "pid": 1, "tid": 0, "args": {"name": "collector"}},
        {"name": "process_sort_index", "ph": "M", "pid": 1, "tid": 0, "args": {"sort_index": 0}},
        {"name": "thread_name", "ph": "M", **track, "args": {"name": "slot 0"}},
        {"name": "thread_sort_index", "ph": "M", **track, "args": {"sort_index": 0}},
        {"name": "rollout", "cat": "rollout", "ph": "X", "ts": 1000, "dur": 8000, **track, "args": args},
        {"name": "model", "cat": "span", "ph": "X", "ts": 1010, "dur": 3990, **track, "args": {"tokens": 12}},
        {"name": "queue", "cat": "span", "ph": "X", "ts": 1020, "dur": 480, **track},
        {"name": "verify", "cat": "span", "ph": "X", "ts": 6000, "dur": 2000, **track},
    ]


def test_rollouts_that_run_side_by_side_have_slots_of_their_own_which_later_ones_use_again(tmp_path: Path) -> None:
    events = traced(tmp_path, row(0, 100), row(50, 300), row(110, 310), row(301, 400), row(320, 500))

    assert drawn(events) == {
        "collector: slot 0": [("rollout", 0, 100), ("rollout", 110, 310), ("rollout", 320, 500)],
        "collector: slot 1": [("rollout", 50, 300), ("rollout", 301, 400)],
    }


def test_samples_become_counters_decisions_marks_and_a_failed_rollout_says_why(tmp_path: Path) -> None:
    at_s = AT_US / 1e6
    failure = {"key": "b/0", "agent": "a", "boundary": "model", "error": "HTTP 500", "finished_at": at_s + 0.6}
    failure["timing"] = {"total_s": 0.1}
    sample = {"at": at_s + 1.0, "in_flight": 3, "limit": 4, "kept": 5, "failed": 0, "cpu": 0.5, "lag_s": 0.0012}
    sample["pace"] = [[at_s + 0.25, 4, 8, "try more"]]
    later = {**sample, "at": at_s + 3.0, "kept": 14, "failed": 1, "pace": []}

    events = traced(tmp_path, row(0, 100), failures=(failure,), samples=(sample, later, {"at": "never"}))

    [event] = [event for event in events if event["name"] == "failed rollout"]
    assert (event["ts"], event["dur"], event["args"]["error"]) == (500_000, 100_000, "model: HTTP 500")
    marks = [(each["name"], each["ts"], each["args"]) for each in events if each["ph"] == "i"]
    assert marks == [("limit 4 to 8", 250_000, {"why": "try more"})]
    counters = [(event["name"], event["ts"], event["args"]) for event in events if event["ph"] == "C"]
    of_both = [("in flight", {"rollouts": 3}), ("limit", {"rollouts": 4}), ("loop lag", {"ms": 1.2})]
    of_both.append(("CPU", {"cores": 0.5}))
    assert counters == [
        *((name, 1_000_000, value) for name, value in of_both),
        *((name, 3_000_000, value) for name, value in of_both),
        ("throughput", 3_000_000, {"rollouts/s": 5.0}),
    ]


def test_tool_calls_side_by_side_have_lanes_of_their_own_which_the_next_turn_uses_again(tmp_path: Path) -> None:
    first = node("tools", 10, 50, node("tool:a", 11, 40), node("tool:b", 12, 30), node("tool:c", 13, 45))
    second = node("tools", 60, 90, node("tool:a", 61, 70), node("tool:b", 62, 80, node("queue", 62, 65)))

    events = traced(tmp_path, row(0, 100, first, second))

    assert drawn(events) == {
        "collector: slot 0": [
            ("rollout", 0, 100),
            ("tools", 10, 50),
            ("tool:a", 11, 40),
            ("tools", 60, 90),
            ("tool:a", 61, 70),
        ],
        "collector: slot 0, side by side 1": [("tool:b", 12, 30), ("tool:b", 62, 80), ("queue", 62, 65)],
        "collector: slot 0, side by side 2": [("tool:c", 13, 45)],
    }


def test_time_in_servers_is_drawn_in_their_processes_and_joined_to_the_call(tmp_path: Path) -> None:
    inside = node("@policy_model", 30, 60, node("queue", 31, 40), pid=7002)
    agent = node("@my_agent", 10, 90, node("model", 20, 70, inside), node("verify", 75, 85), pid=7001)

    events = traced(tmp_path, row(0, 50), row(0, 100, agent))

    assert drawn(events) == {
        "collector: slot 0": [("rollout", 0, 50)],
        "collector: slot 1": [("rollout", 0, 100)],
        "my_agent: slot 1": [("my_agent", 10, 90), ("model", 20, 70), ("verify", 75, 85)],
        "policy_model: slot 1": [("policy_model", 30, 60), ("queue", 31, 40)],
    }
    flows = [(event["ph"], event["id"], event["ts"], event["pid"]) for event in events if event["ph"] in "sf"]
    assert flows == [("s", 1, 0, 1), ("f", 1, 10, 7001), ("s", 2, 20, 7001), ("f", 2, 30, 7002)]


names = st.sampled_from(["model", "tools", "tool:x", "queue", "verify", "@env", "@policy_model", "@my_agent"])
times = st.floats(-20, 220)
nodes_of_any_shape = st.recursive(
    st.builds(lambda name, start, length: node(name, start, start + length), names, times, st.floats(-5, 100)),
    lambda below: st.builds(
        lambda name, start, length, children: node(name, start, start + length, *children, pid=7001.0),
        names,
        times,
        st.floats(0, 200),
        st.lists(below, max_size=4),
    ),
    max_leaves=25,
)


def size(nodes: list[Node]) -> int:
    return sum(1 + size(each[4]) for each in nodes)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(nodes_of_any_shape, max_size=4), min_size=1, max_size=6))
def test_whatever_the_spans_are_the_trace_has_no_fault(trees: list[list[Node]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows = [row(150 * number, 150 * number + 200, *tree) for number, tree in enumerate(trees)]
        events = traced(Path(folder), *rows)
    assert len([event for event in events if event["ph"] == "X"]) == len(trees) + sum(map(size, trees))


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_trace_has_all_of_a_rollout_or_none_of_it_and_a_full_one_is_reported(tmp_path: Path, name: str) -> None:
    rows = [row(1000 * at, 1000 * at + 950, node("model", 10, 900, node("@policy", 20, 800))) for at in range(50)]
    (tmp_path / "r.jsonl").write_bytes(b"".join(orjson.dumps(each) + b"\n" for each in rows))

    [note] = write_trace(tmp_path / "r.jsonl", tmp_path / name, max_bytes=6000)

    events = check_file(tmp_path / name)
    kept = len([event for event in events if event["name"] == "rollout"])
    assert 0 < kept < 50
    assert len([event for event in events if event["ph"] == "X"]) == 3 * kept
    assert note.startswith(f"{tmp_path / name}: full ")
    assert f" {50 - kept} rollouts" in note


def test_only_what_finished_in_this_run_is_drawn_and_a_row_without_times_is_not(tmp_path: Path) -> None:
    untimed = row(0, 10)
    del untimed["meta"]["timing"]
    wrong = row(3_000_000, 3_000_100, ["model", 0], key="w/0")
    rows = [row(0, 100), untimed, row(2_000_000, 2_000_100, key="b/0"), wrong]
    (tmp_path / "r.jsonl").write_bytes(b"".join(orjson.dumps(each) + b"\n" for each in rows) + b'{"torn')

    [note] = write_trace(tmp_path / "r.jsonl", tmp_path / "t.json", since=AT_US / 1e6 + 1)

    assert note.startswith(f"{tmp_path / 'r.jsonl'}:5: ")
    drawn = [event["args"]["key"] for event in check_file(tmp_path / "t.json") if event["ph"] == "X"]
    assert drawn == ["b/0", "w/0"]


def test_an_earlier_trace_is_replaced_and_any_other_file_is_left_alone(tmp_path: Path) -> None:
    traced(tmp_path, row(0, 100))
    check_target(tmp_path / "trace.json")
    for name, text in (("mine.json", "[1, 2, 3]"), ("mine.json.gz", "not packed")):
        (tmp_path / name).write_text(text)
        with pytest.raises(InputError, match=r"mine\.json.*is not an earlier trace"):
            check_target(tmp_path / name)
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(InputError, match=r"folder\.json"):
        check_target(tmp_path / "folder.json")
    with pytest.raises(InputError, match="a trace is called"):
        check_target(tmp_path / "trace.txt")
    for name in ("out.run.json", "out.metrics.json", "out.profile.json"):
        with pytest.raises(InputError, match=f"{name}: .*writes this file itself"):
            check_target(tmp_path / name, tmp_path / "out.jsonl")
    with pytest.raises(InputError, match="writes this file itself"):
        check_target(tmp_path / "folder.json" / ".." / "out.run.json", tmp_path / "out.jsonl")
