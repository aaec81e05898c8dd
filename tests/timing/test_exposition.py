"""What is told to Prometheus, read by its own parser."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from velodrome.timing.exposition import (
    Counter,
    Family,
    Gauge,
    Histogram,
    Registry,
    Summary,
    merged,
    number,
    process_families,
    render,
    with_label,
)


def parsed(*families: Family) -> dict[str, tuple[str, str, dict[Any, float]]]:
    """Type, help, and every sample by its name and labels, as Prometheus' own parser reads them."""
    return {
        family.name: (
            family.type,
            family.documentation,
            {(sample.name, *sorted(sample.labels.items())): sample.value for sample in family.samples},
        )
        for family in text_string_to_metric_families(render(families).decode())
    }


def test_a_counter_is_told_with_its_labels_in_the_order_they_were_declared():
    counter = Counter("calls_total", "Calls.", ("route", "method"))
    counter.add(("/b", "GET"))
    counter.add(("/a", "POST"), 2.5)
    counter.add(("/b", "GET"), 2)
    assert render([counter.family()]) == (
        b"# HELP calls_total Calls.\n"
        b"# TYPE calls_total counter\n"
        b'calls_total{route="/a",method="POST"} 2.5\n'
        b'calls_total{route="/b",method="GET"} 3\n'
    )


def test_buckets_are_cumulative_and_a_bound_belongs_to_its_bucket():
    times = Histogram("took_seconds", "Took.", ("part",), (0.1, 1.0))
    for value in (0.1, 0.05, 0.5, 1.0, 7.0):
        times.observe(value, ("model",))
    part = ("part", "model")
    assert parsed(times.family()) == {
        "took_seconds": (
            "histogram",
            "Took.",
            {
                ("took_seconds_bucket", ("le", "0.1"), part): 2,
                ("took_seconds_bucket", ("le", "1"), part): 4,
                ("took_seconds_bucket", ("le", "+Inf"), part): 5,
                ("took_seconds_sum", part): pytest.approx(8.65),
                ("took_seconds_count", part): 5,
            },
        )
    }


def test_metrics_without_labels_are_told_before_anything_happened():
    families = [
        Counter("calls_total", "c").family(),
        Summary("reward", "r").family(),
        Histogram("took_seconds", "t", (), (1.0,)).family(),
    ]
    assert {name: samples for name, (_, _, samples) in parsed(*families).items()} == {
        "calls": {("calls_total",): 0},
        "reward": {("reward_sum",): 0, ("reward_count",): 0},
        "took_seconds": {
            ("took_seconds_bucket", ("le", "1")): 0,
            ("took_seconds_bucket", ("le", "+Inf")): 0,
            ("took_seconds_sum",): 0,
            ("took_seconds_count",): 0,
        },
    }


def test_a_gauge_is_set_or_asked_for():
    depth = [3.0]
    asked = Gauge("depth", "d", ask=lambda: depth[0])
    asked.family()
    depth[0] = 4.5
    put = Gauge("limit", "l", ("of",))
    put.put(1, ("model",))
    put.put(-2, ("model",))
    assert parsed(asked.family(), put.family()) == {
        "depth": ("gauge", "d", {("depth",): 4.5}),
        "limit": ("gauge", "l", {("limit", ("of", "model")): -2}),
    }


def test_a_summary_counts_and_adds():
    reward = Summary("reward", "r")
    for value in (1.0, -0.5, 0.25):
        reward.observe(value)
    assert parsed(reward.family()) == {"reward": ("summary", "r", {("reward_sum",): 0.75, ("reward_count",): 3})}


def test_a_total_that_is_counted_elsewhere_never_falls():
    counter = Counter("bytes_total", "b")
    for total in (10, 30, 20):
        counter.rise_to(total)
    assert parsed(counter.family())["bytes"][2] == {("bytes_total",): 30}


@given(st.text(max_size=40), st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=40))
def test_any_label_and_any_help_can_be_told(value: str, text: str):
    counter = Counter("calls_total", text, ("tool",))
    counter.add((value,), 2)
    family = parsed(counter.family())["calls"]
    assert family[2] == {("calls_total", ("tool", value)): 2}


def test_values_of_a_label_beyond_the_limit_are_told_as_other():
    counter = Counter("calls_total", "c", ("tool", "status"), most=2)
    for tool in ("a", "b", "c", "d", "a", "c"):
        counter.add((tool, "200"))
    counter.add(("b", "500"))
    assert parsed(counter.family())["calls"][2] == {
        ("calls_total", ("status", "200"), ("tool", "a")): 2,
        ("calls_total", ("status", "200"), ("tool", "b")): 1,
        ("calls_total", ("status", "200"), ("tool", "other")): 3,
        ("calls_total", ("status", "500"), ("tool", "b")): 1,
    }


@pytest.mark.parametrize("value", ["x" * 201, "\ud800"])
def test_a_value_that_is_endless_or_no_text_is_told_as_other(value: str):
    times = Histogram("took_seconds", "t", ("tool",), (1.0,))
    times.observe(0.5, (value,))
    times.observe(0.5, (value,))
    assert parsed(times.family())["took_seconds"][2]["took_seconds_count", ("tool", "other")] == 2


def test_names_that_someone_makes_up_do_not_fill_the_memory():
    counter, times = Counter("calls_total", "c", ("tool",)), Histogram("took_seconds", "t", ("tool",))
    for made_up in range(10_000):
        counter.add((str(made_up),))
        times.observe(1.0, (str(made_up),))
    assert len(counter.family()["samples"]) == 101
    assert parsed(counter.family())["calls"][2]["calls_total", ("tool", "other")] == 9_900
    assert parsed(times.family())["took_seconds"][2]["took_seconds_count", ("tool", "other")] == 9_900


def test_what_is_no_metric_is_refused():
    with pytest.raises(ValueError, match="ends in _total"):
        Counter("calls", "c")
    with pytest.raises(ValueError, match="no name"):
        Gauge("in flight", "g")
    with pytest.raises(ValueError, match="finite and rise"):
        Histogram("took_seconds", "t", (), (1.0, 0.5))
    with pytest.raises(ValueError, match="has the labels"):
        Counter("calls_total", "c", ("tool",)).add(())


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3.0, "3"),
        (0.1, "0.1"),
        (-2, "-2"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (math.nan, "NaN"),
        (1e300, "1e+300"),
    ],
)
def test_numbers_are_written_as_prometheus_reads_them(value: float, text: str):
    assert number(value) == text


def test_the_same_families_of_several_workers_become_one_with_a_label_each():
    groups = []
    for worker in ("0", "1"):
        counter = Counter("calls_total", "c", ("route",))
        counter.add(("/a",), 1 + int(worker))
        groups.append(with_label([counter.family()], "worker", worker))
    assert render(merged(groups)) == (
        b"# HELP calls_total c\n"
        b"# TYPE calls_total counter\n"
        b'calls_total{worker="0",route="/a"} 1\n'
        b'calls_total{worker="1",route="/a"} 2\n'
    )


def test_a_registry_tells_its_metrics_in_order_and_the_process_after_them():
    registry = Registry()
    registry.add(Gauge("b", "b"))
    registry.add(Gauge("a", "a"))
    assert [family["name"] for family in registry.families()] == [
        "b",
        "a",
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "process_start_time_seconds",
        "process_open_fds",
    ]


def test_the_process_is_told_as_the_system_knows_it():
    found = {name: next(iter(samples.values())) for name, (_, _, samples) in parsed(*process_families()).items()}
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    assert found["process_resident_memory_bytes"] == pytest.approx(int(status["VmRSS"].split()[0]) * 1024, rel=0.2)
    assert found["process_cpu_seconds"] == pytest.approx(time.process_time(), rel=0.2)
    assert found["process_open_fds"] == pytest.approx(len(os.listdir("/proc/self/fd")), abs=2)
    assert 0 < time.time() - found["process_start_time_seconds"] < 24 * 3600


def test_without_proc_the_cpu_of_the_process_is_told_all_the_same(tmp_path: Path):
    assert list(parsed(*process_families(tmp_path))) == ["process_cpu_seconds"]
