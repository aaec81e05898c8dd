"""Spans, exact to the tick of a clock that the test turns by hand."""

from __future__ import annotations

import asyncio

import pytest

from tests.timing.made_spans import Clock
from velodrome.timing.spans import Span, root, span, tally


def tree(here: Span) -> tuple[str, float, list]:
    return here.name, here.seconds, [tree(child) for child in here.children]


def test_each_span_is_charged_its_own_time():
    clock = Clock()
    with root("rollout", clock) as whole:
        clock.now += 1
        with span("model"):
            clock.now += 2
            with span("backoff"):
                clock.now += 4
        with span("tools"):
            clock.now += 8
        clock.now += 16
    clock.now += 1000
    assert tree(whole) == ("rollout", 31.0, [("model", 6.0, [("backoff", 4.0, [])]), ("tools", 8.0, [])])
    assert [each.name for each in whole.walk()] == ["rollout", "model", "backoff", "tools"]


def test_a_total_sums_spans_of_one_name_and_counts_nested_ones_once():
    clock = Clock()
    with root("rollout", clock) as whole:
        for _ in range(2):
            with span("model"):
                clock.now += 1
                with span("model"):
                    clock.now += 2
        with span("tools"), span("model"):
            clock.now += 10
    assert (whole.total("model"), whole.total("rollout"), whole.total("none")) == (16.0, 16.0, 0)


def test_an_error_closes_every_span_on_its_way():
    clock = Clock()
    with pytest.raises(ValueError, match="no"), root("rollout", clock) as whole, span("model"):  # noqa: PT012
        clock.now += 5
        raise ValueError("no")
    clock.now += 5
    with span("later"):
        pass
    assert tree(whole) == ("rollout", 5.0, [("model", 5.0, [])])


def test_tasks_started_in_a_span_are_charged_to_it_each_on_its_own():
    clock = Clock()

    async def call(name: str, begin: asyncio.Event, end: asyncio.Event) -> None:
        with span(name):
            begin.set()
            await end.wait()

    async def main() -> Span:
        with root("rollout", clock) as whole, span("tools"):
            begun, done = [asyncio.Event(), asyncio.Event()], [asyncio.Event(), asyncio.Event()]
            first = asyncio.create_task(call("a", begun[0], done[0]))
            await begun[0].wait()
            clock.now += 1
            second = asyncio.create_task(call("b", begun[1], done[1]))
            await begun[1].wait()
            clock.now += 2
            done[0].set()
            await first
            clock.now += 4
            done[1].set()
            await second
        return whole

    whole = asyncio.run(main())
    assert tree(whole) == ("rollout", 7.0, [("tools", 7.0, [("a", 3.0, []), ("b", 6.0, [])])])


def test_counts_stay_on_the_span_that_was_open_and_sum_upwards():
    with root("rollout", Clock()) as whole:
        tally("retries")
        with span("model") as model:
            tally("retries")
            tally("bytes", 10)
            tally("bytes", 5)
    assert (whole.count("retries"), whole.count("bytes"), whole.count("none")) == (2.0, 15.0, 0.0)
    assert model.counts == {"retries": 1.0, "bytes": 15.0}


def test_without_a_root_a_span_is_measured_and_nobody_is_told():
    tally("lost")
    with span("alone") as alone:
        tally("kept")
    assert (list(alone.children), alone.counts, alone.seconds >= 0) == ([], {"kept": 1.0}, True)
