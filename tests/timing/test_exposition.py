"""What is exposed to Prometheus, read by its own parser: any label, several processes as one, the process."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from velodrome.timing.exposition import Metric, Metrics, add, merged, process_metrics, render


def samples(metrics: Iterable[Metric]) -> dict[Any, float]:
    """Every sample by its name and labels, after a round trip through the text."""
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(render(metrics).decode())
        for sample in family.samples
    }


@settings(max_examples=40)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_any_label_value_can_be_reported(value: str):
    metrics = Metrics()
    calls = metrics.counter("calls_total", 'c \\ "\n')
    add(calls, (("tool", value),), 2)
    assert samples([calls]) == {("calls_total", ("tool", value)): 2}


def test_the_same_metrics_of_several_workers_become_one_with_a_label_each():
    groups = []
    for worker in (0, 1):
        metrics = Metrics()
        calls = metrics.counter("calls_total", "c")
        add(calls, (("route", "/a"),), 1 + worker)
        groups.append(({"worker": str(worker)}, [calls]))
    assert render(merged(groups)) == (
        b"# HELP calls_total c\n"
        b"# TYPE calls_total counter\n"
        b'calls_total{worker="0",route="/a"} 1.0\n'
        b'calls_total{worker="1",route="/a"} 2.0\n'
    )


def test_the_process_is_reported_as_the_system_knows_it():
    report = {labels[0]: value for labels, value in samples(process_metrics()).items()}
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    assert report["process_resident_memory_bytes"] == pytest.approx(int(status["VmRSS"].split()[0]) * 1024, rel=0.2)
    assert report["process_cpu_seconds_total"] == pytest.approx(time.process_time(), rel=0.2)
    assert report["process_open_fds"] == pytest.approx(len(os.listdir("/proc/self/fd")), abs=2)
    assert 0 < time.time() - report["process_start_time_seconds"] < 24 * 3600
