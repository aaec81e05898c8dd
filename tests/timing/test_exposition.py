"""What is exposed to Prometheus, read by its own parser: bounded labels, several processes as one, the process."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from velodrome.timing.exposition import (
    Bounded,
    Counter,
    Gauge,
    Histogram,
    families,
    labelled,
    make_registry,
    merged,
    parsed,
    render,
)


def samples(registry: CollectorRegistry) -> dict[Any, float]:
    """Every sample by its name and labels, after a round trip through the text."""
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(render(families(registry)).decode())
        for sample in family.samples
    }


@given(st.text(max_size=40))
def test_any_label_value_can_be_told(value: str):
    registry = CollectorRegistry()
    Bounded(Counter("calls", "c", ("tool",), registry=registry)).at(value).inc(2)
    assert samples(registry) == {("calls_total", ("tool", value)): 2}


def test_values_of_a_label_beyond_the_limit_are_told_as_other():
    registry = CollectorRegistry()
    calls = Bounded(Counter("calls", "c", ("tool", "status"), registry=registry), most=2)
    for name in ("a", "b", "c", "d", "a", "c"):
        calls.at(name, "200").inc()
    calls.at("b", "500").inc()
    assert samples(registry) == {
        ("calls_total", ("status", "200"), ("tool", "a")): 2,
        ("calls_total", ("status", "200"), ("tool", "b")): 1,
        ("calls_total", ("status", "200"), ("tool", "other")): 3,
        ("calls_total", ("status", "500"), ("tool", "b")): 1,
    }


@pytest.mark.parametrize("value", ["x" * 201, "\ud800"])
def test_a_value_that_is_endless_or_not_text_is_told_as_other(value: str):
    registry = CollectorRegistry()
    times = Bounded(Histogram("took_seconds", "t", ("tool",), registry=registry, buckets=(1.0,)))
    times.at(value).observe(0.5)
    assert samples(registry)["took_seconds_count", ("tool", "other")] == 1


def test_names_that_someone_makes_up_do_not_fill_the_memory():
    registry = CollectorRegistry()
    calls = Bounded(Counter("calls", "c", ("tool",), registry=registry))
    for made_up in range(10_000):
        calls.at(str(made_up)).inc()
    report = samples(registry)
    assert (len(report), report["calls_total", ("tool", "other")]) == (101, 9_900)


def test_the_same_families_of_several_workers_become_one_with_a_label_each():
    groups = []
    for worker in (0, 1):
        registry = CollectorRegistry()
        Counter("calls", "c", ("route",), registry=registry).labels("/a").inc(1 + worker)
        report = parsed(render(families(registry)).decode())  # as it comes from another process
        groups.append(labelled(report, worker=str(worker)))
    assert render(merged(groups)) == (
        b"# HELP calls_total c\n"
        b"# TYPE calls_total counter\n"
        b'calls_total{route="/a",worker="0"} 1.0\n'
        b'calls_total{route="/a",worker="1"} 2.0\n'
    )


def test_the_process_is_told_as_the_system_knows_it():
    registry = make_registry()
    Gauge("depth", "d", registry=registry).set(3)
    report = {labels[0]: value for labels, value in samples(registry).items()}
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    assert report["depth"] == 3
    assert report["process_resident_memory_bytes"] == pytest.approx(int(status["VmRSS"].split()[0]) * 1024, rel=0.2)
    assert report["process_cpu_seconds_total"] == pytest.approx(time.process_time(), rel=0.2)
    assert report["process_open_fds"] == pytest.approx(len(os.listdir("/proc/self/fd")), abs=2)
    assert 0 < time.time() - report["process_start_time_seconds"] < 24 * 3600
