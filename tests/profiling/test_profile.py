from __future__ import annotations

import copy
import math
import random
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.planted_runs import START, Json, config, node, profiled
from tests.support.planted_runs import row as planted_row
from velodrome.profiling.profile import Profile, read_profile
from velodrome.profiling.sample import BETWEEN, FIRST, LAST, RecordedAttempt, RunSample
from velodrome.profiling.series import MOST_POINTS, Series
from velodrome.records.facts import RowFacts
from velodrome.records.row_times import RowTimes
from velodrome.records.zst import pack
from velodrome.stats.metrics import read_metrics
from velodrome.stats.stretches import Stretches

CONFIG = config()


def row(number: int = 0, *, end: float = START + 1, **changed: Any) -> Json:
    """A rollout with two model calls and a tool, which took 0.8142 s."""
    parts = {"queue_s": 0.0, "session_s": 0.0, "model_s": 0.81, "tools_s": 0.002, "verify_s": 0.001, "other_s": 0.0012}
    load = {"model_calls": 2, "write_s": 0.00004, "in_flight": 4, "limit": 4, "cpu": 0.5, "lag_s": 0.001}
    timing = {
        **parts,
        **load,
        "total_s": 0.8142,
        "tree": [
            ["model", 12, 405_000, {"tokens": 93}, []],
            ["tools", 405_100, 2000, {}, [["tool:calculator", 405_110, 1980, {"cpu_us": 900, "held_us": 100}, []]]],
            ["model", 407_200, 405_000, {"tokens": 93}, []],
            ["verify", 812_300, 1000, {}, []],
        ],
        **changed,
    }
    timing = {name: value for name, value in timing.items() if value is not None}
    return {"reward": 1.0, "meta": {"key": f"{number}/0", "agent": "agent", "finished_at": end, "timing": timing}}


def steady(count: int, slots: int = 4, **changed: Any) -> list[Json]:
    """A run with so many in flight, one finishing after the other."""
    return [row(n, end=START + 0.8142 * (1 + n / slots), **changed) for n in range(count)]


def write(path: Path, rows: list[Any]) -> Path:
    path.write_bytes(b"".join(each if isinstance(each, bytes) else orjson.dumps(each) + b"\n" for each in rows))
    return path


def means(told: Json) -> dict[str, float]:
    return {line["part"]: line["mean_ms"] for line in told["tree"]}


def test_the_whole_object_has_the_shape_that_everything_else_reads():
    report = profiled(steady(100), CONFIG)
    assert list(report) == [
        *("rollouts", "rows", "failed", "active_s", "rollouts_per_s", "tree", "load", "series", "histograms", "tools"),
        *("endpoints", "pace", "slowest", "notes", "verdict"),
    ]
    assert (report["rollouts"], report["failed"], report["notes"]) == (100, 0, [])
    assert report["active_s"] == pytest.approx(0.8142 * (1 + 99 / 4))
    assert report["rollouts_per_s"] == pytest.approx(100 / report["active_s"])
    parts = [
        ("total", 0),
        ("queue", 1),
        ("model", 1),
        ("tools", 1),
        ("tool:calculator", 2),
        ("verify", 1),
        ("other", 1),
    ]
    assert [(line["part"], line["depth"]) for line in report["tree"]] == [*parts, ("write", 0)]
    times = dict.fromkeys(("mean_ms", "p50_ms", "p90_ms", "p99_ms"), pytest.approx(810.0))
    model = {"name": "Model", "part": "model", "depth": 1, "calls": 2.0, "bottleneck": True}
    assert report["tree"][2] == {**model, **times, "share": pytest.approx(0.81 / 0.8142)}
    cpu_and_lag = {"cpu_mean": 0.5, "cpu_max": 0.5, "lag_p50_ms": 1.0, "lag_p99_ms": 1.0}
    counts = {"in_flight_mean": 4.0, "limit": 4, "rate_limited": 0, "retries": 0, "bytes": 0}
    assert report["load"] == pytest.approx({**counts, **cpu_and_lag})
    [tool] = report["tools"]
    times = dict.fromkeys(("mean_ms", "p50_ms", "p99_ms"), 1.98)
    assert (tool.pop("name"), tool) == (
        "calculator",
        pytest.approx({"calls": 100, **times, "cpu_ms": 0.9, "held_ms": 0.1}),
    )
    assert list(report["histograms"]) == ["total", "model", "tools", "verify", "queue"]
    assert all(sum(each["counts"]) == 100 for each in report["histograms"].values())
    assert list(report["series"]) == ["start", "every_s", "at_s", "rollouts_per_s", "in_flight", "cpu", "lag_ms"]
    assert list(report["verdict"]) == ["bound", "what", "part", "rollouts_per_s", "evidence", "advice", "paragraph"]


PARTS = st.fixed_dictionaries(
    {f"{name}_s": st.integers(0, 10**7).map(lambda us: us / 1e6) for name in ("queue", "model", "tools", "verify")},
    optional={f"{name}_s": st.integers(0, 10**6).map(lambda us: us / 1e6) for name in ("session", "backoff")},
)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(PARTS, st.integers(0, 10**6)), min_size=1, max_size=19))
def test_the_parts_and_the_remainder_add_up_to_the_total(rows: list[tuple[dict[str, float], int]]):
    made = []
    for parts, other_us in rows:
        total = sum(round(1e6 * seconds) for seconds in parts.values()) + other_us
        bare = dict.fromkeys(row()["meta"]["timing"])
        made.append(row(**{**bare, **parts, "other_s": other_us / 1e6, "total_s": total / 1e6, "tree": []}))
    lines = [line for line in profiled(made)["tree"] if line["depth"] < 2]
    total_us = sum(round(1e6 * each["meta"]["timing"]["total_s"]) for each in made)
    assert lines[0]["mean_ms"] == pytest.approx(total_us / 1e3 / len(made), rel=1e-12)
    parts_ms = [line["mean_ms"] for line in lines[1:] if line["part"] != "write"]
    assert math.fsum(parts_ms) == pytest.approx(lines[0]["mean_ms"], rel=1e-12, abs=1e-12)
    shown = {line["part"] for line in lines}
    other_us = sum(us for _, us in rows)  # and what is too short for a line of its own
    other_us += sum(1e6 * parts.get(f"{name}_s", 0.0) for parts, _ in rows for name in {"session", "backoff"} - shown)
    assert lines[-1]["mean_ms"] == pytest.approx(other_us / 1e3 / len(rows), rel=1e-6, abs=1e-6)


def test_an_older_row_is_read_with_its_waits_taken_out_of_the_model():
    old = {"queue_s": 0.2, "model_s": 1.0, "tools_s": 0.1, "verify_s": 0.1, "total_s": 1.5, "model_calls": 1}
    made = row()
    made["meta"]["timing"] = old
    parts = {"queue": 200.0, "model": 800.0, "tools": 100.0, "verify": 100.0, "other": 300.0}
    assert means(profiled([made])) == pytest.approx({"total": 1500.0, **parts})


def test_sessions_back_off_and_the_judge_have_a_line_when_there_are_any():
    judge = ["verify", 0, 900, {}, [["judge", 0, 400, {}, []], ["judge", 400, 200, {}, []]]]
    made = [row(session_s=0.1, backoff_s=0.2, total_s=1.2142, tree=[["@env", 0, 1000, {"pid": 1}, [judge]]]), row(1)]
    report = profiled(made)
    result = {line["part"]: (line["depth"], pytest.approx(line["mean_ms"]), line["calls"]) for line in report["tree"]}
    assert result["session"] == (1, 50.0, None)
    assert result["backoff"] == (1, 100.0, None)
    assert result["judge"] == (2, 0.3, 1.0)


def test_calls_of_a_tool_are_counted_with_their_cpu_and_made_up_names_do_not_fill_the_memory():
    for counts, expected in (({"worker_cpu_us": 600}, (1, 3.0, 0.6)), ({"folded": 3, "cpu_us": 600}, (3, 1.0, 0.2))):
        (tool,) = profiled([row(tree=[["tools", 0, 3000, {}, [["tool:a", 0, 3000, counts, []]]]])])["tools"]
        assert (tool["calls"], tool["mean_ms"], tool["cpu_ms"]) == pytest.approx(expected)
    rows = [row(n, tree=[["tools", 0, 9, {}, [[f"tool:made-up-{n}", 0, 9, {}, []]]]]) for n in range(300)]
    tools = {tool["name"]: tool["calls"] for tool in profiled(rows)["tools"]}
    assert (len(tools), tools["(others)"]) == (101, 200)


def test_no_tool_takes_longer_than_all_tools_wherever_its_waits_are():
    inside = node("@environment", 0.0, 0.1, [node("limit:threads", 0.0, 0.02)])
    alone = node("tool:look", 0.0, 0.11, [node("connection", 0.0, 0.01), inside])
    beside = node(
        "tools", 0.2, 0.1, [node("tool:find", 0.2, 0.1, [node("queue", 0.2, 0.06)]), node("tool:f", 0.2, 0.09)]
    )
    told = means(profiled([planted_row(0, START, 0.3, [alone, beside], 1, 1, {})]))
    assert told["tool:look"] + told["tool:f"] <= told["tools"]
    assert told["tool:look"] == pytest.approx(80.0)
    assert told["tools"] + told["queue"] + told["connection"] + told["other"] == pytest.approx(told["total"])


def test_the_slowest_rollouts_are_told_with_their_line_and_tree():
    rows = [row(n, total_s=0.8142 + n) for n in range(30)]
    rows[29]["reward"] = float("nan")
    random.Random(1).shuffle(rows)
    slowest = profiled(rows)["slowest"]
    assert [each["key"] for each in slowest] == [f"{n}/0" for n in range(29, 19, -1)]
    line = [each["meta"]["key"] for each in rows].index("29/0") + 1
    slow = {"key": "29/0", "line": line, "file": "rollouts.jsonl", "reward": None, "total_s": pytest.approx(29.8142)}
    assert slowest[0] == {**slow, "tree": row()["meta"]["timing"]["tree"]}


def test_of_very_many_failures_some_are_remembered_and_all_are_counted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("velodrome.profiling.profile._MOST_FAILED", 5)
    profile = Profile()
    for key in (*range(8), 0):
        failure = {"key": f"{key}/0", "finished_at": START, "timing": {"total_s": 0.5}}
        profile.add(RowFacts(failure, failed=True))
    assert profile.report()["failed"] == 8
    profile.add(RowFacts(row(0)))
    assert profile.report()["failed"] == 7


def test_a_rollout_that_failed_and_was_kept_later_has_not_failed_and_several_files_are_one(tmp_path: Path):
    failures = [{"key": key, "finished_at": START, "timing": {"total_s": 0.5}} for key in ("0/0", "x/0", "x/0")]
    write(tmp_path / "a.failures.jsonl", [*failures, [1], {"key": 5}, {"timing": {}}, b"{torn"])
    rows = steady(60)
    paths = [write(tmp_path / "a.jsonl", rows[:30]), write(tmp_path / "b.jsonl", rows[30:])]
    report, whole = read_profile(*paths), read_profile(write(tmp_path / "c.jsonl", rows))
    assert (report["rollouts"], report["failed"], means(report)) == (60, 1, means(whole))
    assert {(each["file"], each["line"]) for each in report["slowest"]} >= {(str(paths[0]), 1)}


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.zst"])
def test_a_file_says_what_the_collector_said_row_by_row(tmp_path: Path, suffix: str):
    rows = steady(60)
    lines = [orjson.dumps(each) + b"\n" for each in rows]
    path = tmp_path / f"rollouts{suffix}"
    path.write_bytes(b"".join(lines if suffix == ".jsonl" else map(pack, lines)))
    failure = {"key": "f/0", "finished_at": START, "timing": {"total_s": 0.5, "in_flight": 4, "limit": 4}}
    write(tmp_path / "rollouts.failures.jsonl", [failure])
    (tmp_path / "rollouts.run.json").write_bytes(orjson.dumps({"config": CONFIG}))
    streamed = Profile(str(path))
    streamed.add(RowFacts(failure, failed=True))
    for each, line in zip(rows, lines, strict=True):
        streamed.add(RowFacts(each, size=len(line)))
    assert read_profile(path) == streamed.report(CONFIG)


def test_active_time_is_that_of_the_metrics_whatever_failed(tmp_path: Path):
    rows = [row(n, end=START + 2 * n) for n in range(30)]
    path = write(tmp_path / "rollouts.jsonl", rows)
    failures = [{**row(99, end=START + end)["meta"], "error": "x"} for end in (-1.3, 59.0, 5000.0)]
    write(tmp_path / "rollouts.failures.jsonl", failures)
    report, (flat, _) = read_profile(path), read_metrics(path)
    assert report["active_s"] == pytest.approx(30 * 0.8142) == flat["throughput/active_s"]
    assert report["rollouts_per_s"] == pytest.approx(flat["throughput/samples_per_s"])


def test_lines_that_are_no_rollouts_and_rollouts_without_times_are_named_and_count_nowhere(tmp_path: Path):
    bad = [b"{half\n", [1], 5, {"meta": 1}, {"meta": {}}, {"meta": {"timing": []}}, {"meta": {"timing": {}}}]
    path = write(tmp_path / "r.jsonl", [row(), *bad])
    report = read_profile(path)
    assert (report["rollouts"], report["rows"]) == (1, 5)
    places = [note.removeprefix(f"{path}:").partition(":")[0] for note in report["notes"][1:]]
    assert (report["notes"][0], places) == ("1 of 5 rollouts have times", list("5678234"))


HOSTILE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=True, allow_infinity=True)
    | st.sampled_from(["", "model", "tool:", "@", "queue", "1e400", "\x00"]),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.sampled_from(["pid", "cpu_us", "folded"]), inner),
    max_leaves=8,
)
NAMES = st.sampled_from(sorted({*row()["meta"]["timing"], "backoff_s", "retries", "rate_limited"}))
NODE = st.tuples(
    st.sampled_from(["model", "tools", "tool:a", "verify", "judge", "library", "@x", "queue", "backoff", ""]) | HOSTILE,
    st.integers(-5, 10**6) | HOSTILE,
    st.integers(-5, 10**6) | HOSTILE,
    st.dictionaries(st.sampled_from(["cpu_us", "held_us", "folded", "pid", "tokens"]), HOSTILE, max_size=3) | HOSTILE,
    st.lists(st.just(["queue", 0, 5, {}, []]), max_size=2) | HOSTILE,
).map(list)


@settings(max_examples=15)
@given(
    st.lists(st.tuples(st.integers(0, 29), NAMES, HOSTILE), max_size=20),
    st.lists(st.tuples(st.integers(0, 29), st.lists(NODE, max_size=4)), max_size=20),
    HOSTILE,
)
def test_whatever_stands_in_a_row_nothing_is_raised_and_the_result_is_json(
    values: list[tuple[int, str, Any]], trees: list[tuple[int, list[Any]]], config: Any
):
    rows = copy.deepcopy(steady(30))
    for number, name, value in values:
        rows[number]["meta"]["timing"][name] = value
    for number, tree in trees:
        rows[number]["meta"]["timing"]["tree"] = tree
    report = profiled(rows, {"agent": config, "x": {"responses_api_agents": config}})
    untimed = 30 - report["rollouts"]
    assert report["rows"] == 30
    assert len(report["notes"]) == (1 + untimed if untimed else 0)
    times = [[value for name, value in line.items() if name not in ("calls", "share")] for line in report["tree"]]
    assert [line["part"] for line in report["tree"] if line["share"] is None] in ([], ["write"])  # it is in no total
    assert b"null" not in orjson.dumps([times, report["histograms"], report["active_s"]])


def test_the_gap_between_two_runs_is_not_active_time_and_takes_no_point():
    rows = steady(40) + [row(n, end=START + 86_400 + n) for n in range(40)]
    report = profiled(rows)
    assert report["active_s"] == pytest.approx(0.8142 * (1 + 39 / 4) + 39.8142)
    series = report["series"]
    assert sum(series["rollouts_per_s"]) * series["every_s"] == pytest.approx(80)
    assert (series["at_s"][-1] > 86_000, len(series["at_s"]) <= 80) == (True, True)


def test_the_verdict_is_about_the_last_run_that_has_enough_rollouts():
    first, second = steady(60, limit=4), [row(n, end=START + 1000 + n, limit=9, in_flight=1) for n in range(30)]
    assert profiled(first)["verdict"]["rollouts_per_s"] == pytest.approx(60 / (0.8142 * (1 + 59 / 4)))
    assert profiled(first + second)["verdict"]["rollouts_per_s"] == pytest.approx(30 / 29.8142)
    few, alone = profiled(first + second[:5])["verdict"], profiled(first)["verdict"]
    assert few | {"paragraph": ""} == alone | {"paragraph": ""}


STRETCH = st.tuples(st.integers(0, 200), st.integers(0, 15)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@settings(max_examples=60, deadline=None)
@given(st.lists(STRETCH, max_size=25))
def test_active_time_is_the_union_with_short_gaps_closed_in_any_order(stretches: list[tuple[int, int]]):
    result = Stretches(gap_s=2.0)
    for start, end in stretches:
        result.add(start, end)
    expected, reached = 0.0, -math.inf
    for start, end in sorted(stretches):
        if start <= reached + 2.0:
            expected += max(end - reached, 0)
        else:
            expected += end - start
        reached = max(reached, end)
    assert result.seconds == expected


@settings(max_examples=15, deadline=None)
@given(st.lists(st.floats(0, 1e7), min_size=1, max_size=3000))
def test_a_series_has_at_most_so_many_points_and_loses_no_rollout(ends: list[float]):
    result, active = Series(), Stretches()
    for end in ends:
        result.add(START, START + end, 5, 0.5, 0.001)
        active.add(START, START + end)
    report = result.report(active)
    assert len(report["at_s"]) <= MOST_POINTS
    assert sum(report["rollouts_per_s"]) * report["every_s"] == pytest.approx(len(ends))
    assert report["at_s"] == sorted(report["at_s"])
    assert set(report["in_flight"]) == {5.0}  # also where none finished: what finishes later is in flight meanwhile


def sampled(count: int) -> RunSample:
    sample = RunSample()
    for number in range(count):
        sample.add(RecordedAttempt(float(number), RowTimes({"total_s": 1.0}), True))
    return sample


def test_a_sample_holds_the_first_the_last_and_a_fair_choice_of_all():
    sample = sampled(50_000)
    first, last = sample.windows
    fair = [each.start for each in sample.fair]
    assert (sample.kept, sample.total_s) == (50_000, 50_000.0)
    assert [each.start for each in first] == [float(number) for number in range(FIRST)]
    assert [each.start for each in last] == [float(number) for number in range(50_000 - LAST, 50_000)]
    assert BETWEEN <= len(fair) == len(set(fair)) <= BETWEEN + 10
    assert sum(fair) / len(fair) == pytest.approx(25_000, rel=0.2)
    assert len(sampled(300).fair) == 300
