"""Runs that are only read, with a viewer over them, and a profile."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.support.made_runs import make_run
from tests.support.viewing import viewing
from velodrome.profiling.profile import read_profile


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


@pytest.fixture(scope="session")
def _profile(baseline: Path) -> dict[str, Any]:
    return read_profile(baseline)


@pytest.fixture
def profile(_profile: dict[str, Any]) -> dict[str, Any]:
    """The profile of that run, to be changed at will."""
    return deepcopy(_profile)
