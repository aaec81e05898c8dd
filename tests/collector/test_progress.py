"""The progress of a run where there is no terminal: lines that a log file keeps."""

from __future__ import annotations

import asyncio
import io
from typing import Any

import pytest

import velodrome as velo
from tests.timing.made_spans import Clock
from velodrome.collector.watch.progress import ProgressLines, RunState
from velodrome.timing.figures import long_duration


def run_for(minutes: int, rate: float, *, total: int = 10_000, before: int = 0) -> list[str]:
    """What a run of that rate writes. It is asked to show its state whenever it says that a line is due."""
    clock, stream = Clock(), io.StringIO()
    lines = ProgressLines(before, clock=clock, stream=stream)
    while (due := clock.now + lines.every_s) <= minutes * 60:
        clock.now = due
        lines.show(RunState(before + int(rate * due), total, 2, 16, 0.5))
    return stream.getvalue().splitlines()


def test_a_line_comes_after_a_few_seconds_and_then_every_minute_with_the_rate_of_this_run():
    lines = run_for(10, rate=10.0)
    assert (len(lines), lines[0]) == (
        10,
        "Collecting rollouts: 50/10000 (0%), 10/s, reward 0.500, 2 failed, 16 in flight, 16 min 35 s left",
    )
    rates = [line.split(", ")[1] for line in run_for(2, rate=0.5, total=1000, before=500)]
    assert rates == ["0.4/s", "29.5/min"]  # after 5 s that are too few for a rate by the minute, and after 65


def test_the_rate_is_that_of_the_last_ten_minutes():
    clock, stream = Clock(), io.StringIO()
    lines = ProgressLines(0, clock=clock, stream=stream)
    for minute in range(1, 31):
        clock.now = minute * 60.0
        lines.show(RunState(min(minute, 10) * 600, 20_000))
    assert ", 0/s, " in stream.getvalue().splitlines()[-1]


def test_a_length_of_time_is_said_in_its_two_largest_units():
    assert [long_duration(each) for each in (0, 59.6, 4800)] == ["0 s", "1 min 0 s", "1 h 20 min"]


def test_a_run_whose_output_is_redirected_writes_whole_lines_only(capsys: pytest.CaptureFixture[str]):
    async def agent(task: dict[str, Any]) -> dict[str, Any]:
        return {"output": "fine", "reward": 1.0}

    asyncio.run(velo.collect(["a", "b"], agent))
    lines = capsys.readouterr().err
    assert "\r" not in lines
    assert "Collecting rollouts: 2/2 (100%)" in lines.splitlines()[-1]
