"""Spans that another process told: none is lost to folding, and a stranger's header ends nothing."""

from __future__ import annotations

import json
from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from velodrome.collector.account import timing
from velodrome.serving import wire
from velodrome.timing import spans


def test_a_tree_that_had_to_be_folded_still_tells_how_many_model_calls_there_were() -> None:
    with spans.root("@agent") as tree:
        for _ in range(300):
            with spans.span("model"), spans.span("@policy"):
                spans.tally("tokens", 3)
    header = wire.spans_header(tree)
    with spans.root("rollout") as rollout:
        wire.graft(header, rollout)
    assert len(header) < 8000
    assert timing(rollout)["model_calls"] == 300


odd_numbers = st.one_of(st.integers(-(10**20), 10**20), st.floats(), st.sampled_from(["1", "nan", None, [], {}]))
names = st.one_of(st.text(max_size=5), st.sampled_from(["model", "queue", "", "@x", "tools"]), st.none(), st.integers())
counts = st.one_of(st.dictionaries(st.sampled_from(["retries", "tokens", "pid", "folded"]), odd_numbers), st.none())
trees = st.recursive(
    st.tuples(names, odd_numbers, odd_numbers, counts, st.just([])),
    lambda below: st.tuples(names, odd_numbers, odd_numbers, counts, st.lists(below, max_size=3)),
    max_leaves=8,
)


@settings(max_examples=40)
@given(trees, odd_numbers, odd_numbers)
def test_a_strangers_header_ends_no_rollout(tree: Any, at_us: Any, pid: Any) -> None:
    header = json.dumps({"host": wire.host(), "pid": pid, "at_us": at_us, "tree": tree})
    with spans.root("rollout") as rollout:
        wire.graft(header, rollout)
    result = timing(rollout)
    assert orjson.loads(orjson.dumps(result)) == result
    assert all(value >= 0 for name, value in result.items() if name.endswith("_s") and name != "other_s")


def test_a_tree_that_is_too_deep_is_no_tree() -> None:
    nested = '["model",0,1,{},[' * 300 + "]]" * 300
    header = f'{{"host": "{wire.host()}", "pid": 1, "at_us": 0, "tree": {nested}}}'
    with spans.root("rollout") as rollout:
        wire.graft(header, rollout)
    assert list(rollout.children) == []
