"""A collection as a trace: exact events, tracks that nest whatever the spans were, and files that are left alone."""

from __future__ import annotations

import asyncio
import os
import resource
import tempfile
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_check import TraceFile, check_file, faults, read_trace

from velodrome.collector.agents import ConfiguredAgents
from velodrome.collector.collection import Surface, collect
from velodrome.collector.settings import CollectSettings
from velodrome.collector.watch.tracing import Tracing
from velodrome.collector.watch.watch import Done, Sample
from velodrome.errors import InputError
from velodrome.settings import Config, Instance
from velodrome.timing.chrome import Event
from velodrome.timing.spans import Span

PID = os.getpid()
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class FakeClock:
    """Stands still until it is told."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def node(name: str, start_us: float, end_us: float | None, *children: Span, **counts: float) -> Span:
    result = Span(name, FakeClock())
    result.start = start_us / 1e6
    result.end = None if end_us is None else end_us / 1e6
    result.children = list(children)
    result.counts = counts or None
    return result


def done(spans: Span, slot: int = 0, **fields: Any) -> Done:
    report: dict[str, Any] = {"kept": True, "reward": 1.0, "error": None, "trace": TRACE, "written": None, **fields}
    return Done("a/0", 0, 0, "my_agent", spans=spans, slot=slot, **report)


def sample(at: float, **fields: Any) -> Sample:
    report = {"in_flight": 3, "limit": 4, "kept": 0, "failed": 0, "cpu": 0.5, "lag_s": 0.0012, **fields}
    return Sample(at, bytes_written=0, tokens=0, **report)


def traced(folder: Path, *seen: Done | Sample, until_us: float = 1e9) -> TraceFile:
    """The trace of what was seen, without a fault."""
    clock = FakeClock()
    tracing = Tracing(folder / "trace.json", clock=clock)
    for each in seen:
        tracing.finished(each) if isinstance(each, Done) else tracing.sampled(each)
    clock.now = until_us / 1e6
    tracing.close()
    assert tracing.notes == []
    return check_file(folder / "trace.json")


def drawn(found: TraceFile) -> dict[str, list[tuple[str, int, int]]]:
    """What stands on each track, by process and track name: (name, start, end)."""
    processes = {event["pid"]: event["args"]["name"] for event in found.events if event["name"] == "process_name"}
    result: dict[str, list[tuple[str, int, int]]] = {}
    tracks: dict[int, str] = {}
    for event in found.events:
        if event["name"] == "thread_name":
            tracks[event["tid"]] = f"{processes[event['pid']]}: {event['args']['name']}"
        elif event["ph"] == "X":
            stretch = (event["name"], event["ts"], event["ts"] + event["dur"])
            result.setdefault(tracks[event["tid"]], []).append(stretch)
    return result


def test_one_rollout_is_drawn_exactly(tmp_path: Path) -> None:
    spans = node(
        "rollout",
        1000,
        9000,
        node("model", 1010, 5000, node("queue", 1020, 1500), tokens=12.0, first_byte_us=300.0),
        node("verify", 6000, 8000),
    )

    result = traced(tmp_path, done(spans, slot=2, written=(0.0091, 0.0094)))

    track: Event = {"pid": PID, "tid": 3}
    args = {"key": "a/0", "agent": "my_agent", "reward": 1.0, "trace_id": "0af7651916cd43dd8448eb211c80319c"}
    assert result.events[1:-1] == [
        {"name": "process_name", "ph": "M", "pid": PID, "tid": 0, "args": {"name": "collector"}},
        {"name": "process_sort_index", "ph": "M", "pid": PID, "tid": 0, "args": {"sort_index": 0}},
        {"name": "thread_name", "ph": "M", **track, "args": {"name": "slot 2"}},
        {"name": "thread_sort_index", "ph": "M", **track, "args": {"sort_index": 2000}},
        {"name": "rollout", "cat": "rollout", "ph": "X", "ts": 1000, "dur": 8000, **track, "args": args},
        {
            "name": "model",
            "cat": "span",
            "ph": "X",
            "ts": 1010,
            "dur": 3990,
            **track,
            "args": {"tokens": 12.0, "first_byte_us": 300.0},
        },
        {"name": "queue", "cat": "span", "ph": "X", "ts": 1020, "dur": 480, **track},
        {"name": "verify", "cat": "span", "ph": "X", "ts": 6000, "dur": 2000, **track},
        {"name": "write", "cat": "rollout", "ph": "X", "ts": 9100, "dur": 300, **track},
    ]


def test_a_failed_rollout_is_called_so_and_says_why(tmp_path: Path) -> None:
    failed = done(node("rollout", 0, 10), kept=False, reward=None, error="model: HTTP 500")

    result = traced(tmp_path, failed)

    assert [(event["name"], event["args"]) for event in result.events if event["ph"] == "X"] == [
        (
            "failed rollout",
            {
                "key": "a/0",
                "agent": "my_agent",
                "error": "model: HTTP 500",
                "trace_id": "0af7651916cd43dd8448eb211c80319c",
            },
        )
    ]


def counters(found: TraceFile) -> list[tuple[str, int, dict[str, float]]]:
    return [(event["name"], event["ts"], event["args"]) for event in found.events if event["ph"] == "C"]


def test_samples_become_counters(tmp_path: Path) -> None:
    assert counters(traced(tmp_path, sample(1.0))) == [
        ("in flight", 1_000_000, {"rollouts": 3}),
        ("limit", 1_000_000, {"rollouts": 4}),
        ("loop lag", 1_000_000, {"ms": 1.2}),
        ("CPU", 1_000_000, {"cores": 0.5}),
    ]


def test_decisions_of_the_pace_are_marks_with_their_reason(tmp_path: Path) -> None:
    found = traced(tmp_path, sample(1.0, decisions=[(0.25, 4, 8, "try more"), (0.75, 8, 4, "429")]))
    marks = [
        (event["name"], event["ts"], event["args"]) for event in found.events if event["name"].startswith("limit ")
    ]
    assert marks == [("limit 4 to 8", 250_000, {"why": "try more"}), ("limit 8 to 4", 750_000, {"why": "429"})]


def test_throughput_counts_from_the_first_rollout_on_and_never_over_a_moment(tmp_path: Path) -> None:
    first = done(node("rollout", 500_000, 600_000))
    rest = [sample(1.0, kept=5), sample(3.0, kept=10, failed=1), sample(3.001, kept=14), sample(4.0, kept=21, failed=0)]

    result = counters(traced(tmp_path, first, *rest))

    assert [each for each in result if each[0] == "throughput"] == [
        ("throughput", 1_000_000, {"rollouts/s": 10.0}),
        ("throughput", 3_000_000, {"rollouts/s": 3.0}),
        ("throughput", 4_000_000, {"rollouts/s": 10.0}),
    ]


def test_tool_calls_side_by_side_have_lanes_of_their_own_which_the_next_turn_uses_again(tmp_path: Path) -> None:
    first = node("tools", 10, 50, node("tool:a", 11, 40), node("tool:b", 12, 30), node("tool:c", 13, 45))
    second = node("tools", 60, 90, node("tool:a", 61, 70), node("tool:b", 62, 80, node("queue", 62, 65)))

    result = traced(tmp_path, done(node("rollout", 0, 100, first, second)))

    assert drawn(result) == {
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

    result = traced(tmp_path, done(node("rollout", 0, 100, agent)), done(node("rollout", 0, 50), slot=1))

    assert drawn(result) == {
        "collector: slot 0": [("rollout", 0, 100)],
        "collector: slot 1": [("rollout", 0, 50)],
        "my_agent: slot 0": [("my_agent", 10, 90), ("model", 20, 70), ("verify", 75, 85)],
        "policy_model: slot 0": [("policy_model", 30, 60), ("queue", 31, 40)],
    }
    flows = [(event["ph"], event["id"], event["ts"], event["pid"]) for event in result.events if event["ph"] in "sf"]
    assert flows == [("s", 1, 0, PID), ("f", 1, 10, 7001), ("s", 2, 20, 7001), ("f", 2, 30, 7002)]


def test_slots_have_tracks_of_their_own_in_a_server_too(tmp_path: Path) -> None:
    late = done(node("rollout", 0, 200, node("model", 5, 190, node("@policy_model", 6, 20, pid=7002))), slot=1)
    early = done(node("rollout", 0, 100, node("model", 1, 99, node("@policy_model", 10, 90, pid=7002))), slot=0)

    result = traced(tmp_path, early, late)

    assert drawn(result)["policy_model: slot 0"] == [("policy_model", 10, 90)]
    assert drawn(result)["policy_model: slot 1"] == [("policy_model", 6, 20)]


def test_a_server_that_is_called_from_within_itself_gets_another_lane(tmp_path: Path) -> None:
    inner = node("@math", 40, 50, pid=7001)
    outer = node("@math", 10, 90, node("judge", 30, 60, inner), pid=7001)

    result = traced(tmp_path, done(node("rollout", 0, 100, node("verify", 5, 95, outer))))

    assert drawn(result) == {
        "collector: slot 0": [("rollout", 0, 100), ("verify", 5, 95)],
        "math: slot 0": [("math", 10, 90), ("judge", 30, 60)],
        "math: slot 0, side by side 1": [("math", 40, 50)],
    }


def test_a_pid_that_is_taken_unknown_or_of_another_machine_does_not_mix_processes(tmp_path: Path) -> None:
    calls = [
        node("@ours", 10, 20, pid=PID),
        node("@none", 30, 40),
        node("@first", 50, 60, pid=7001),
        node("@second", 70, 80, pid=7001),
        node("@first", 90, 95, pid=7002),
    ]

    result = traced(tmp_path, done(node("rollout", 0, 100, *calls)))

    names = {event["pid"]: event["args"]["name"] for event in result.events if event["name"] == "process_name"}
    first_free = 1 << 23
    assert names == {
        PID: "collector",
        first_free + 1: "ours",
        first_free + 2: "none",
        7001: "first",
        first_free + 4: "second",
        7002: "first",
    }


def test_spans_that_stick_out_or_never_ended_are_cut_to_the_span_they_belong_to(tmp_path: Path) -> None:
    far = node("@policy_model", 5, 70, node("queue", 1, 3), node("decode", 60, 99), pid=7002)
    spans = node("rollout", 10, 100, node("model", 20, 60, far), node("tools", 70, None, node("tool:a", 75, 500)))

    result = traced(tmp_path, done(spans))

    assert drawn(result) == {
        "collector: slot 0": [("rollout", 10, 100), ("model", 20, 60), ("tools", 70, 100), ("tool:a", 75, 100)],
        "policy_model: slot 0": [("policy_model", 20, 60), ("queue", 20, 20), ("decode", 60, 60)],
    }


def test_spans_that_overlap_by_rounding_alone_stay_on_one_track(tmp_path: Path) -> None:
    spans = node(
        "rollout", 0, 100, node("model", 10, 42), node("tools", 40, 60), node("model", 59, 60), node("x", 62, 70)
    )

    result = traced(tmp_path, done(spans))

    assert drawn(result) == {
        "collector: slot 0": [
            ("rollout", 0, 100),
            ("model", 10, 42),
            ("tools", 42, 60),
            ("model", 60, 60),
            ("x", 62, 70),
        ]
    }


def test_a_rollout_that_begins_before_its_slot_is_free_goes_beside_it(tmp_path: Path) -> None:
    result = traced(tmp_path, done(node("rollout", 0, 100), written=(0.0001, 0.00012)), done(node("rollout", 110, 200)))
    assert drawn(result) == {
        "collector: slot 0": [("rollout", 0, 100), ("write", 100, 120)],
        "collector: slot 0, side by side 1": [("rollout", 110, 200)],
    }


names = st.sampled_from(["model", "tools", "tool:x", "queue", "verify", "@env", "@policy_model", "@my_agent"])
times = st.floats(-20, 220)
spans_of_any_shape = st.recursive(
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


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(st.lists(spans_of_any_shape, max_size=4), st.integers(0, 2)), min_size=1, max_size=6))
def test_whatever_the_spans_are_the_trace_has_no_fault(rollouts: list[tuple[list[Span], int]]) -> None:
    clock = FakeClock()
    with tempfile.TemporaryDirectory() as folder:
        tracing = Tracing(Path(folder) / "trace.json", clock=clock)
        drawn = 0
        for number, (children, slot) in enumerate(rollouts):
            spans = node("rollout", 150 * number, 150 * number + 200, *children)
            drawn += sum(1 for _ in spans.walk())
            tracing.finished(done(spans, slot=slot))
        clock.now = 10.0
        tracing.close()
        events = check_file(tracing.path).events
    assert len([event for event in events if event["ph"] == "X"]) == drawn


def test_a_trace_has_all_of_a_rollout_or_none_of_it(tmp_path: Path) -> None:
    clock = FakeClock()
    tracing = Tracing(tmp_path / "trace.json.gz", max_bytes=6000, clock=clock)
    for number in range(50):
        start = 1000 * number
        call = node("model", start + 10, start + 900, node("@policy_model", start + 20, start + 800, pid=7002))
        tracing.finished(done(node("rollout", start, start + 950, call), slot=number % 3))
        tracing.sampled(sample((start + 990) / 1e6))
    clock.now = 1.0
    tracing.close()

    result = check_file(tracing.path)
    kept = [event for event in result.events if event["name"] == "rollout"]
    assert 0 < len(kept) < 50
    assert len([event for event in result.events if event["ph"] == "X"]) == 3 * len(kept)
    assert result.dropped["rollouts"] == 50 - len(kept)
    assert tracing.notes == [
        f"{tracing.path}: full at 0.006 MB; not in the trace: "
        + ", ".join(f"{count} {name}" for name, count in result.dropped.items())
    ]


def test_each_sample_puts_what_there_is_on_disk(tmp_path: Path) -> None:
    tracing = Tracing(tmp_path / "trace.json.gz", clock=FakeClock())
    tracing.finished(done(node("rollout", 0, 100)))
    tracing.sampled(sample(1.0))

    result = read_trace(tracing.path)

    assert [event["name"] for event in result.events if event["ph"] in "XC"] == [
        "rollout",
        "in flight",
        "limit",
        "loop lag",
        "CPU",
        "throughput",
    ]
    assert result.missing == f"the end: it is cut off after {len(result.events)} events"
    assert faults(result.events) == []
    tracing.close()


def test_an_earlier_trace_is_kept_and_any_other_file_is_left_alone(tmp_path: Path) -> None:
    first = traced(tmp_path, done(node("rollout", 0, 100)))
    second = traced(tmp_path, done(node("rollout", 0, 200)))
    assert read_trace(tmp_path / "trace.json").events == second.events
    assert read_trace(tmp_path / "trace.json.1").events == first.events

    (tmp_path / "mine.json").write_text("[1, 2, 3]")
    with pytest.raises(InputError, match=r"mine\.json: it is there and is not an earlier trace"):
        Tracing(tmp_path / "mine.json")
    assert (tmp_path / "mine.json").read_text() == "[1, 2, 3]"

    (tmp_path / "empty.json").touch()
    Tracing(tmp_path / "empty.json").close()
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(InputError, match=r"folder\.json: it is there and is not an earlier trace"):
        Tracing(tmp_path / "folder.json")


@pytest.mark.parametrize("name", ["out.run.json", "out.metrics.json", "out.profile.json"])
def test_a_file_that_the_collection_writes_itself_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"writes this file itself; give the trace another name"):
        Tracing(tmp_path / name, output=Path("out.jsonl"))
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_name_is_said_before_anything_is_touched(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"trace\.txt: a trace is called"):
        Tracing(tmp_path / "trace.txt")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_refuses_ends_the_trace_and_nothing_else(tmp_path: Path) -> None:
    tracing = Tracing(tmp_path / "trace.json", clock=FakeClock())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, hard))
    try:
        for number in range(40):
            tracing.finished(done(node("rollout", 100 * number, 100 * number + 90)))
            tracing.sampled(sample(number * 1e-4))
        tracing.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    result = read_trace(tracing.path)
    kept = len([event for event in result.events if event["name"] == "rollout"])
    assert 0 < kept < 40
    assert result.missing == f"the end: it is cut off after {len(result.events)} events"
    assert faults(result.events) == []
    dropped = f"{39 - kept} rollouts, {39 - kept} samples"  # what the refused write held had been taken already
    assert tracing.notes == [f"{tracing.path}: File too large; not in the trace: {dropped}"]


ANSWERS = [
    {
        "tool_calls": [
            {"name": "calculator", "arguments": {"expression": "240 * 0.15"}},
            {"name": "calculator", "arguments": {"expression": "6 * 6"}},
        ]
    },
    "15% of 240 is {tool_result}",
]


def config() -> Config:
    links: dict[str, Any] = {
        "model_server": {"type": "responses_api_models", "name": "m"},
        "resources_server": {"type": "resources_servers", "name": "calculator"},
    }
    faults = [{"kind": "status", "status": 400, "every": 25}]
    script = {"answers": ANSWERS, "latency_s": 0.002, "faults": faults}
    blocks = [
        Instance("m", "responses_api_models", "scripted_model", script, "t.yaml"),
        Instance("calculator", "resources_servers", "calculator", {}, "t.yaml"),
        Instance("solo", "responses_api_agents", "simple_agent", links, "t.yaml"),
    ]
    return Config({}, {block.name: block for block in blocks})


def collected(folder: Path, *watchers: Tracing) -> tuple[list[Any], list[Any]]:
    """A collection of 40 rollouts: its rows and failures by key, without what no two runs share."""
    tasks = [{"id": number, "responses_create_params": {"input": "15% of 240?"}} for number in range(40)]
    folder.mkdir(exist_ok=True)
    (folder / "tasks.jsonl").write_bytes(
        b"".join(orjson.dumps({**task, "expected_answer": "36"}) + b"\n" for task in tasks)
    )
    settings = CollectSettings(input=folder / "tasks.jsonl", output=folder / "out.jsonl", parallel=1)
    outcome = asyncio.run(collect(settings, ConfiguredAgents(config()), surface=Surface(watchers=watchers)))
    rows = [orjson.loads(line) for line in (folder / "out.jsonl").read_bytes().splitlines()]
    failures = [orjson.loads(line) for line in (folder / "out.failures.jsonl").read_bytes().splitlines()]
    for meta in [*(row["meta"] for row in rows), *failures]:
        del meta["timing"], meta["finished_at"]
    for row in rows:
        del row["response"]["id"]
    assert outcome.kept == len(rows)
    return sorted(rows, key=lambda row: row["meta"]["key"]), sorted(failures, key=lambda each: each["key"])


def test_a_collection_gives_the_same_rollouts_with_and_without_a_trace(tmp_path: Path) -> None:
    plain = collected(tmp_path / "plain")
    tracing = Tracing(tmp_path / "trace.json.gz")
    watched = collected(tmp_path / "watched", tracing)
    tracing.close()

    assert watched == plain
    result = check_file(tracing.path)
    rollouts = [event for event in result.events if event.get("cat") == "rollout" and event["name"] != "write"]
    kept = [event["args"]["key"] for event in rollouts if event["name"] == "rollout"]
    failed = {event["args"]["key"]: event["args"]["error"] for event in rollouts if event["name"] == "failed rollout"}
    assert sorted(kept) == [row["meta"]["key"] for row in plain[0]]
    assert failed == {each["key"]: f"{each['boundary']}: {each['error']}" for each in plain[1]}
    names = [event["name"] for event in result.events if event["ph"] == "X"]
    assert names.count("write") == len(plain[0]) > 30
    assert names.count("tool:calculator") >= 2 * len(plain[0])
    assert names.count("model") >= 2 * len(plain[0])
