"""Every number comes from the rows: while collecting, and again from the file."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from velodrome.read.metrics import ActiveTime, Tally, failed_keys, pass_at_k, read_metrics
from velodrome.records.rollout import encode


def row(key: str, reward: float | None = 1.0, **fields: Any) -> dict[str, Any]:
    return {"responses_create_params": {"input": "x"}, "output": [], "reward": reward, **fields, "meta": {"key": key}}


def metrics(*rows: dict[str, Any], **options: Any) -> dict[str, Any]:
    tally = Tally(**options)
    for each in rows:
        tally.add(each)
    return tally.metrics()


def test_the_means_divide_by_the_rows_that_have_the_field():
    found = metrics(row("a/0", 1.0, speed=3), row("b/0", 0.0, flag=True), row("c/0", None, speed=None, name="x"))
    assert found == {
        "reward": 0.5,
        "speed": 3.0,
        "flag": 1.0,
        "avg_tool_calls": 0.0,
        "rollouts/kept": 3,
        "rollouts/failed": 0,
        "tokens/input": 0,
        "tokens/output": 0,
        "tokens/total": 0,
    }


def test_a_deferred_reward_is_counted_as_deferred_and_never_as_zero():
    deferred = row("a/0", None)
    deferred["meta"]["verification"] = "deferred"
    found = metrics(deferred)
    assert "reward" not in found
    assert found["rollouts/deferred"] == 1


def test_a_number_that_is_a_name_is_not_averaged():
    found = metrics(row("5/0", id=5, task_id=6))
    assert found.keys().isdisjoint(("id", "task_id"))


def test_tool_calls_and_tokens_are_counted_over_all_rows():
    calls = [{"role": "assistant", "tool_calls": [{}, {}]}, {"role": "tool"}, {"role": "assistant", "tool_calls": None}]
    usage = {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7, "details": {"cached": 1}, "odd": 1.5}
    found = metrics(
        row("a/0", output=calls, usage=usage), row("b/0", usage={"total_tokens": 3}), row("c/0", usage=None)
    )
    assert found["avg_tool_calls"] == 2 / 3
    assert [found[f"tokens/{kind}"] for kind in ("input", "output", "total")] == [5, 2, 10]


def test_throughput_is_over_the_time_anything_was_running():
    rows = [row(f"{n}/0", usage={"total_tokens": 10}) for n in range(3)]
    for each, end in zip(rows, (102.0, 103.0, 900.0), strict=True):
        each["meta"] |= {"finished_at": end, "timing": {"total_s": 2.0}}
    found = metrics(*rows)
    assert found["throughput/active_s"] == 5.0
    assert (found["throughput/samples_per_s"], found["throughput/tokens_per_s"]) == (3 / 5, 30 / 5)


def test_pass_at_k_is_there_for_powers_of_two_and_the_most_repeats():
    rows = [row(f"a/{n}", float(n == 0)) for n in range(5)] + [row(f"b/{n}", 0.5) for n in range(3)]
    found = metrics(*rows)
    assert {name: value for name, value in found.items() if name.startswith("pass@")} == {
        "pass@1": pytest.approx((1 / 5 + 0) / 2),
        "pass@2": pytest.approx((2 / 5 + 0) / 2),
        "pass@4": pytest.approx(4 / 5),
        "pass@5": 1.0,
    }


def test_pass_at_k_is_left_out_without_repeats_or_when_not_asked_for():
    assert not any(name.startswith("pass@") for name in metrics(row("a/0"), row("b/0")))
    assert not any(name.startswith("pass@") for name in metrics(row("a/0"), row("a/1"), by_task=False))


def test_pass_at_k_equals_counting_every_draw():
    for n in range(1, 8):
        for passed in range(n + 1):
            tries = [index < passed for index in range(n)]
            for k in range(1, n + 1):
                draws = list(combinations(tries, k))
                assert pass_at_k(n, passed, k) == pytest.approx(sum(map(any, draws)) / len(draws)), (n, passed, k)


STRETCH = st.tuples(st.integers(0, 60), st.integers(0, 15)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@settings(max_examples=200, deadline=None)
@given(st.lists(STRETCH, max_size=25))
def test_active_time_is_the_length_of_the_union_in_any_order(stretches: list[tuple[int, int]]):
    active = ActiveTime()
    for start, end in stretches:
        active.add(start, end)
    assert active.seconds == len({second for start, end in stretches for second in range(start, end)})


def test_active_time_forgets_stretches_that_touch():
    active = ActiveTime()
    for second in range(10_000):
        active.add(second, second + 1.5)
    assert (len(active._starts), active.seconds) == (1, 10_000.5)


def test_an_empty_tally_has_counts_and_no_means():
    assert metrics() == {
        "rollouts/kept": 0,
        "rollouts/failed": 0,
        "tokens/input": 0,
        "tokens/output": 0,
        "tokens/total": 0,
    }


ROW = st.builds(
    lambda task, repeat, fields, end: {
        **row(f"t{task}/{repeat}", **fields),
        "meta": {"key": f"t{task}/{repeat}", "finished_at": end, "timing": {"total_s": 1.25}},
    },
    st.integers(0, 2),
    st.integers(0, 3),
    st.fixed_dictionaries(
        {"reward": st.none() | st.floats(-2, 2)},
        optional={
            "score": st.floats(allow_nan=True, allow_infinity=True) | st.integers(-5, 5) | st.booleans() | st.text(),
            "usage": st.dictionaries(st.sampled_from(["input_tokens", "total_tokens"]), st.integers(0, 9)),
            "output": st.lists(st.just({"role": "assistant", "tool_calls": [{"name": "f"}]}), max_size=2),
        },
    ),
    st.floats(1e9, 1e9 + 100),
)


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(ROW, max_size=8))
def test_the_numbers_of_a_file_are_those_of_its_rows(tmp_path_factory: pytest.TempPathFactory, rows: list[Any]):
    path = tmp_path_factory.mktemp("m") / "r.jsonl"
    path.write_bytes(b"".join(map(encode, rows)))
    assert read_metrics(path) == (metrics(*rows), [])


def test_lines_that_are_no_rollouts_are_named_and_count_nowhere(tmp_path: Path):
    path = tmp_path / "r.jsonl"
    bad = [b"[1]", b"5", b'{"reward":', b'{"reward":1,"output":["x"]}', b'{"reward":1,"usage":[1]}']
    bad += [b'{"reward":1,"meta":{"finished_at":"now"}}', b'{"reward":1,"meta":{"key":"no repeat"}}']
    path.write_bytes(encode(row("a/0", 0.5)) + b"\n".join(bad) + b"\n")
    found, notes = read_metrics(path)
    assert notes == [f"{path}:{number}: not a rollout; it is not counted" for number in range(2, len(bad) + 2)]
    assert found == metrics(row("a/0", 0.5))


def test_only_keys_that_were_never_kept_have_failed(tmp_path: Path):
    path = tmp_path / "r.jsonl"
    path.write_bytes(encode(row("a/0")) + encode({"reward": 1.0, "meta": None}))
    failures = [{"key": "a/0"}, {"key": "b/0"}, {"key": "b/0"}, {"key": ["odd"]}, [1], {"no": "key"}]
    (tmp_path / "r.failures.jsonl").write_bytes(b"".join(map(encode, failures)) + b'{"key":"torn')
    assert failed_keys(path) == {"a/0": 1, "b/0": 2}
    found, notes = read_metrics(path)
    assert (found["rollouts/failed"], found["rollouts/kept"], notes) == (1, 2, [])


def test_metrics_are_json():
    assert orjson.loads(orjson.dumps(metrics(row("a/0")))) == metrics(row("a/0"))
