"""At the end of a run: the ten slowest tests, and the seconds of each folder beside its budget in tests/BUDGET.toml.

A folder over twice its budget is named, unless it takes less than ten seconds. That is a note and never a failure:
machines differ.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path

import pytest

BUDGET = Path(__file__).parents[1] / "BUDGET.toml"
SLOWEST = 10
WORTH_A_NOTE_S = 10


class Durations:
    """Adds up the set-up, call and tear-down of every test, from all worker processes."""

    def __init__(self) -> None:
        self.tests: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.tests[report.nodeid] += report.duration  # type: ignore[assignment]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if len(self.tests) <= SLOWEST:
            return
        say = terminalreporter.write_line
        terminalreporter.section("time")
        for test, seconds in self.tests.most_common(SLOWEST):
            say(f"{seconds:7.1f} s  {test}")
        folders: Counter[str] = Counter()
        for test, seconds in self.tests.items():
            folders[folder(test)] += seconds  # type: ignore[assignment]
        budget = tomllib.loads(BUDGET.read_text())["seconds"]
        cells = [f"{name} {seconds:.0f}" for name, seconds in folders.most_common()]
        say(f"seconds by folder, {sum(folders.values()):.0f} in all: " + ", ".join(cells))
        for name, seconds in folders.most_common():
            if seconds > max(2 * budget.get(name, 0), WORTH_A_NOTE_S):
                say(f"over twice its budget: {name}, {seconds:.0f} s for {budget.get(name, 0)} s (tests/BUDGET.toml)")


def folder(test: str) -> str:
    """The folder below tests/ that a test is in; the file itself if it is in none."""
    parts = test.partition("::")[0].split("/")
    return parts[1]


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Durations(), "durations")
