"""The account of one rollout's time, exact to the tick: the parts and what is left add up to the whole."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from velodrome import collect
from velodrome.collector.account import Surroundings, account, timing
from velodrome.timing.spans import Span, root, span, tally

PARTS = ("queue_s", "session_s", "model_s", "backoff_s", "tools_s", "verify_s", "other_s")


class Clock:
    """Time that passes only when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def made(shape: list[Any], clock: Clock) -> Span:
    """A rollout from `[name, seconds before its children, children]` nodes."""

    def act(nodes: list[Any]) -> None:
        for name, seconds, below in nodes:
            with span(name):
                clock.now += seconds
                act(below)

    with root("rollout", clock) as spans:
        act(shape)
    return spans


def test_the_time_of_a_rollout_is_taken_apart_by_its_spans():
    clock = Clock()
    with root("rollout", clock) as spans:
        for _ in range(2):
            with span("model"):
                with span("queue"):
                    clock.now += 1
                with span("connection"):
                    clock.now += 64
                with span("backoff"):
                    clock.now += 2
                    tally("retries", 2)
                clock.now += 4
        with span("tools"), span("tool:f"):
            clock.now += 8
        with span("verify"):
            clock.now += 16
        clock.now += 32
    second = 1_000_000
    waits = [
        [
            ["queue", at, second, {}, []],
            ["connection", at + second, 64 * second, {}, []],
            ["backoff", at + 65 * second, 2 * second, {"retries": 2.0}, []],
        ]
        for at in (0, 71 * second)
    ]
    assert timing(spans) == {
        "queue_s": 2.0,
        "session_s": 0.0,
        "model_s": 8.0,
        "tools_s": 8.0,
        "verify_s": 16.0,
        "connection_s": 128.0,
        "backoff_s": 4.0,
        "other_s": 32.0,
        "total_s": 198.0,
        "model_calls": 2,
        "retries": 4,
        "tree": [
            ["model", 0, 71 * second, {}, waits[0]],
            ["model", 71 * second, 71 * second, {}, waits[1]],
            ["tools", 142 * second, 8 * second, {}, [["tool:f", 142 * second, 8 * second, {}, []]]],
            ["verify", 150 * second, 16 * second, {}, []],
        ],
    }


def test_of_tools_side_by_side_the_waits_of_the_one_that_worked_longest_are_taken_out():
    clock = Clock()
    with root("rollout", clock) as spans, span("tools") as tools:
        clock.now += 10
        for name, waited in (("tool:a", 3.0), ("tool:b", 8.0)):
            with span(name) as call:
                pass
            call.start, call.end = tools.start, tools.start + 10
            waiting = Span("queue", clock)
            waiting.start, waiting.end = tools.start, tools.start + waited
            call.adopt(waiting)
    result = timing(spans)
    assert (result["queue_s"], result["tools_s"], result["other_s"], result["total_s"]) == (3.0, 7.0, 0.0, 10.0)


def test_time_in_another_process_is_charged_as_if_it_were_here_and_the_hop_is_what_is_left():
    clock = Clock()
    shape = [["@agent", 1.0, [["model", 4.0, [["@model", 2.0, [["queue", 8.0, []]]]]], ["verify", 16.0, []]]]]
    result = timing(made(shape, clock))
    assert {name: result[name] for name in PARTS if name in result} | {"calls": result["model_calls"]} == {
        "queue_s": 8.0,
        "session_s": 0.0,
        "model_s": 6.0,
        "tools_s": 0.0,
        "verify_s": 16.0,
        "other_s": 1.0,
        "calls": 1,
    }


def test_a_span_of_an_agents_own_is_a_part_of_its_own():
    result = timing(made([["plan", 2.0, []], ["model", 3.0, []]], Clock()))
    assert (result["plan_s"], result["model_s"], result["other_s"], result["total_s"]) == (2.0, 3.0, 0.0, 5.0)


def test_a_call_by_itself_is_charged_to_the_tools_as_several_are():
    shape = [["tool:f", 2.0, [["queue", 1.0, []]]], ["tools", 0.0, [["tool:f", 4.0, []], ["tool:g", 8.0, []]]]]
    result = timing(made(shape, Clock()))
    assert {name: value for name, value in result.items() if name.endswith("_s") and value} == {
        "queue_s": 1.0,
        "tools_s": 14.0,
        "total_s": 15.0,
    }


def test_a_rate_limit_is_counted_wherever_it_was_met():
    with root("rollout", Clock()) as spans, span("verify"), span("judge"):
        tally("rate_limited")
        tally("retries")
    assert {name: timing(spans)[name] for name in ("rate_limited", "retries")} == {"rate_limited": 1, "retries": 1}


names = st.sampled_from(
    ["model", "tools", "verify", "session", "queue", "limit:x", "connection", "backoff", "@there", "tool:x", "judge"]
)
nodes = st.recursive(
    st.tuples(names, st.integers(0, 1000), st.just([])),
    lambda below: st.tuples(names, st.integers(0, 1000), st.lists(below, max_size=4)),
    max_leaves=20,
)


@given(st.lists(nodes, max_size=6))
def test_the_parts_and_what_is_left_add_up_to_the_total_whatever_the_tree(shape: list[Any]):
    result = timing(made(shape, Clock()))
    parts = [value for name, value in result.items() if name.endswith("_s") and name != "total_s"]
    assert round(sum(parts), 5) == result["total_s"] == sum(seconds(node) for node in shape)


def seconds(node: Any) -> float:
    return float(node[1]) + sum(seconds(child) for child in node[2])


def test_a_tree_of_too_many_spans_is_folded_by_name_and_says_how_many_they_were():
    result = timing(made([["@agent", 0.0, [["model", 1.0, []], ["tools", 0.0, [["tool:f", 2.0, []]]]] * 500]], Clock()))
    [agent] = result["tree"]
    assert agent[4] == [
        ["model", 0, 500_000_000, {"folded": 500}, []],
        ["tools", 1_000_000, 1000_000_000, {"folded": 500}, [["tool:f", 1_000_000, 1000_000_000, {"folded": 500}, []]]],
    ]
    assert (result["model_s"], result["tools_s"], result["model_calls"]) == (500.0, 1000.0, 500)


def test_what_surrounded_a_rollout_stands_beside_its_parts():
    spans = made([["model", 3.0, []]], Clock())
    assert account(spans, None) == timing(spans)
    first = account(spans, Surroundings(in_flight=3, limit=16))
    assert {name: value for name, value in first.items() if name not in timing(spans)} == {"in_flight": 3, "limit": 16}
    later = account(spans, Surroundings(3, 16, write_s=0.00004, cpu=0.25, lag_s=0.001))
    assert {name: value for name, value in later.items() if name not in timing(spans)} == {
        "in_flight": 3,
        "limit": 16,
        "write_s": 0.00004,
        "cpu": 0.25,
        "lag_s": 0.001,
    }


def test_a_loop_that_another_rollout_holds_is_not_time_spent_writing():
    held_s = 0.2

    async def main() -> list[float]:
        together, arrivals = asyncio.Barrier(8), iter(range(8))

        async def agent(task: Any) -> dict[str, Any]:
            number = next(arrivals)
            await together.wait()
            if number == 6:  # the last that wakes: the others have ended and are not written yet
                time.sleep(held_s)  # noqa: ASYNC251
                await asyncio.sleep(0.01)
            return {"output": "an answer", "reward": 1.0}

        run = await collect(["a"], agent, repeats=8, parallel=8, progress=False)
        return [each.row["meta"]["timing"].get("write_s", 0.0) for each in run.rollouts]

    assert max(asyncio.run(main())) < held_s
