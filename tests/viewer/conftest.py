"""Runs that are only read, with a viewer over them; and a profile with every part there can be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from made_runs import make_run
from starlette.testclient import TestClient
from viewing import viewing

Json = dict[str, Any]


def part(name: str, kind: str, depth: int, mean_ms: float, **more: Any) -> Json:
    found = {"name": name, "part": kind, "depth": depth, "mean_ms": mean_ms, "share": mean_ms / 812.4, "calls": 1.0}
    found |= {"p50_ms": mean_ms * 0.9, "p90_ms": mean_ms * 1.6, "p99_ms": mean_ms * 2.4, "bottleneck": False}
    return found | more


def histogram(scale_ms: float) -> Json:
    counts = [0, 3, 18, 60, 140, 230, 260, 160, 80, 40, 18, 9, 4, 0, 2, 0]
    return {"edges_ms": [scale_ms * 1.3**index for index in range(len(counts) + 1)], "counts": counts}


def slow(line: int) -> Json:
    tree = [
        ["queue", 0, 40_000, {}, []],
        ["session", 40_000, 3_000, {}, []],
        ["model", 43_000, 900_000, {"tokens": 93, "first_byte_us": 300_000}, [["queue", 43_000, 150_000, {}, []]]],
        ["tools", 944_000, 4_000, {}, [["tool:calculator", 944_100, 3_800, {"cpu_us": 900}, []]]],
        ["backoff", 949_000, 400_000, {}, []],
        ["model", 1_350_000, 520_000, {"tokens": 41}, []],
        ["verify", 1_871_000, 61_000, {"held_us": 950}, [["judge", 1_873_000, 50_000, {}, []]]],
    ]
    return {"key": f"9f31c2a0{line}/0", "line": line, "total_s": 1.94, "reward": 1.0, "tree": tree}


@pytest.fixture
def profile() -> Json:
    seconds = [*range(40), *range(400, 420)]
    wave = [80 + (index * 37 % 11) - index % 5 for index in range(len(seconds))]
    return {
        "rollouts": 1024,
        "failed": 3,
        "active_s": 62.3,
        "rollouts_per_s": 79.8,
        "tree": [
            part("Rollout Total", "total", 0, 812.4),
            part("Queue", "queue", 1, 1.2),
            part("Session", "session", 1, 0.4),
            part("Model", "model", 1, 790.1, calls=2.0, p99_ms=1900.0, bottleneck=True),
            part("Back-off", "backoff", 1, 0.7, calls=0.1),
            part("Tools", "tools", 1, 0.9),
            part("calculator", "tool:calculator", 2, 0.9),
            part("Verify", "verify", 1, 18.0),
            part("judge", "judge", 2, 12.1),
            part("Other", "other", 1, 1.1),
            part("Write", "write", 0, 0.1),
        ],
        "load": {
            "in_flight_mean": 15.8,
            "limit": 16,
            "cpu_mean": 0.31,
            "cpu_max": 0.6,
            "lag_p50_ms": 0.4,
            "lag_p99_ms": 3.1,
            "rate_limited": 0,
            "retries": 2,
            "bytes": 2_600_000,
        },
        "series": {
            "start": 1763000000.0,
            "every_s": 1.0,
            "at_s": seconds,
            "rollouts_per_s": wave,
            "in_flight": [min(16, 2 + index) for index in range(len(seconds))],
            "cpu": [value / 260 for value in wave],
            "lag_ms": [None if index % 9 == 4 else 0.3 + (index * 13 % 7) / 10 for index in range(len(seconds))],
        },
        "histograms": {
            "total": histogram(60),
            "model": histogram(55),
            "tools": histogram(0.05),
            "verify": histogram(1.1),
            "queue": histogram(0.02),
        },
        "tools": [
            {
                "name": "calculator",
                "calls": 1024,
                "mean_ms": 0.9,
                "p50_ms": 0.8,
                "p99_ms": 2.2,
                "cpu_ms": 0.4,
                "held_ms": None,
            }
        ],
        "slowest": [slow(17), slow(640), slow(3)],
        "notes": ["rollouts.jsonl:7: not a rollout; it is not counted"],
        "verdict": {
            "bound": "concurrency",
            "what": "the concurrency limit",
            "part": "model",
            "rollouts_per_s": 79.8,
            "evidence": [
                "16.0 of 16 slots were in use",
                "a rollout took 812 ms, 790 ms of it waiting for the model",
                "the collector used 31% of one core",
            ],
            "advice": [
                {
                    "change": "run more rollouts at once",
                    "override": "+num_samples_in_parallel=64",
                    "predicted_rollouts_per_s": 310.2,
                    "gain": 3.9,
                }
            ],
            "paragraph": "Throughput, 79.8 rollouts/s, was bounded by the concurrency limit: all 16 slots were in use, "
            "and a rollout spent 97% of its time waiting for the model. Run more rollouts at once.",
        },
    }


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that the test may change."""
    return make_run(tmp_path / "baseline.jsonl")


@pytest.fixture(scope="session")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that no test changes, with another beside it."""
    folder = tmp_path_factory.mktemp("runs")
    make_run(folder / "other.jsonl", seed=3, tasks=5)
    return make_run(folder / "baseline.jsonl")


@pytest.fixture(scope="session")
def client(baseline: Path) -> Iterator[TestClient]:
    """The viewer over both."""
    with viewing(baseline, baseline.with_name("other.jsonl")) as client:
        yield client
