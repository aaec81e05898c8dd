"""The account of one rollout's time, exact to the tick: the parts and what is left add up to the whole."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.timing.made_spans import Clock
from velodrome.collector.account import account, timing
from velodrome.timing.spans import Span, root, span, tally


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
    clock, second = Clock(), 1_000_000
    with root("rollout", clock) as spans:
        with span("model"):
            with span("connection"):
                clock.now += 64
            with span("backoff"):
                clock.now += 2
                tally("retries", 2)
                tally("rate_limited")
            clock.now += 4
        with span("tools"), span("tool:f"):
            clock.now += 8
        with span("verify"), span("judge"):
            tally("rate_limited")
            clock.now += 16
        clock.now += 32
    waits = [["connection", 0, 64 * second, {}, []]]
    waits += [["backoff", 64 * second, 2 * second, {"retries": 2.0, "rate_limited": 1.0}, []]]
    judge = ["judge", 78 * second, 16 * second, {"rate_limited": 1.0}, []]
    parts = {"queue_s": 0.0, "session_s": 0.0, "model_s": 4.0, "tools_s": 8.0, "verify_s": 16.0, "other_s": 32.0}
    parts |= {"connection_s": 64.0, "backoff_s": 2.0, "total_s": 126.0}
    assert timing(spans) == {
        **parts,
        "model_calls": 1,
        "retries": 2,
        "rate_limited": 2,  # wherever they were met
        "tree": [
            ["model", 0, 70 * second, {}, waits],
            ["tools", 70 * second, 8 * second, {}, [["tool:f", 70 * second, 8 * second, {}, []]]],
            ["verify", 78 * second, 16 * second, {}, [judge]],
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


HERE_AND_THERE = ["@agent", 1.0, [["model", 4.0, [["@model", 2.0, [["queue", 8.0, []]]]]], ["verify", 16.0, []]]]
ALONE = ["tool:f", 2.0, [["queue", 1.0, []]]]


@pytest.mark.parametrize(
    ("shape", "parts", "calls"),
    [
        ([HERE_AND_THERE], {"queue_s": 8.0, "model_s": 6.0, "verify_s": 16.0, "other_s": 1.0, "total_s": 31.0}, 1),
        ([["plan", 2.0, []], ["model", 3.0, []]], {"plan_s": 2.0, "model_s": 3.0, "total_s": 5.0}, 1),
        (
            [ALONE, ["tools", 0.0, [["tool:f", 4.0, []], ["tool:g", 8.0, []]]]],
            {"queue_s": 1.0, "tools_s": 14.0, "total_s": 15.0},
            0,
        ),
    ],
    ids=["time in another process counts as if it were here", "a part of the agent's own", "a tool call by itself"],
)
def test_a_part_is_charged_its_time_wherever_it_was_spent(shape: list[Any], parts: dict[str, float], calls: int):
    result = timing(made(shape, Clock()))
    assert {name: value for name, value in result.items() if name.endswith("_s") and value} == parts
    assert result["model_calls"] == calls


names = st.sampled_from(
    ["model", "tools", "verify", "session", "queue", "limit:x", "connection", "backoff", "@there", "tool:x", "judge"]
)
nodes = st.recursive(
    st.tuples(names, st.integers(0, 1000), st.just([])),
    lambda below: st.tuples(names, st.integers(0, 1000), st.lists(below, max_size=4)),
    max_leaves=20,
)


@settings(max_examples=50)
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


def test_what_surrounded_a_rollout_is_beside_its_parts_and_a_change_of_the_limit_in_one_row_only():
    spans = made([["model", 3.0, []]], Clock())
    around = {"in_flight": 3, "limit": 16, "pace": [[8, 16, "try more"]]}
    assert account(spans, around) == timing(spans) | {"in_flight": 3, "limit": 16, "pace": [[8, 16, "try more"]]}
    assert account(spans, around) == timing(spans) | {"in_flight": 3, "limit": 16}
    assert account(spans, None) == timing(spans)
