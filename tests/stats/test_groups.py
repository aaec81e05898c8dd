"""The numbers of groups are those of the rows in them; files add up; hostile rows are notes."""

from __future__ import annotations

import random
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.planted import Row, scored, write
from velodrome.errors import InputError
from velodrome.records.facts import RowFacts
from velodrome.records.rollout import encode
from velodrome.records.zst import pack
from velodrome.stats.compare import compare
from velodrome.stats.draws import MOST_VOTES
from velodrome.stats.group import MetricsSettings, RolloutGroup, answer_of
from velodrome.stats.groups import read_groups
from velodrome.stats.intervals import mean_interval
from velodrome.stats.metrics import read_metrics
from velodrome.stats.metrics_text import metrics_report
from velodrome.stats.numbers import numbers_of
from velodrome.stats.several import compare_several


def grouped(path: Path, rows: list[Any], **settings: Any) -> Any:
    """What `velo metrics` says of a file of these rows."""
    return read_groups([write(path / "r.jsonl", rows)], MetricsSettings(**settings))


def test_an_interval_of_numbers_within_0_and_1_stays_there_and_so_does_a_difference(tmp_path: Path):
    partly = [1.0] * 12 + [0.97, 0.9, 0.96, 0.95, 0.1, 0.98, 0.93, 0.94, 0.99, 0.91, 0.92, 0.2]
    paths = []
    for name, values in (("a", partly), ("b", [1 - value for value in partly])):
        rows = [scored(f"t{n}/0", value, wide=10 * value) for n, value in enumerate(values)]
        paths.append(write(tmp_path / f"{name}.jsonl", rows))
    for path in paths:
        field = read_groups([path], MetricsSettings(level=0.999))["run"]["fields"]
        reward, wide = field["reward"], field["wide"]
        assert 0 <= reward["low"] < reward["mean"] < reward["high"] <= 1
        assert (reward["low"] == 0) != (reward["high"] == 1)
        assert wide["low"] < 0 or wide["high"] > 10  # another number is not cut
    each = compare([paths[0]], [paths[1]], MetricsSettings(level=0.999))["fields"][0]
    assert (each["name"], each["low"]) == ("reward", -1)
    several = compare_several(paths, MetricsSettings(level=0.999))["fields"][0]["runs"]
    assert (several[0]["high"], several[1]["low"]) == (1, 0)


def test_times_and_counts_have_no_interval_below_zero(tmp_path: Path):
    values = [0.0] * 29 + [0.001 * place for place in range(1, 13)] + [3.0]
    rows = [
        scored(f"t{n}/0", usage={"total_tokens": round(1000 * value)}, score=value, verify_s=value)
        for n, value in enumerate(values)
    ]
    fields = grouped(tmp_path, rows)["run"]["fields"]
    low, high = mean_interval(values, [1] * len(values), 0.95) or (0.0, 0.0)
    ends = [(fields[name]["low"], fields[name]["high"]) for name in ("score", "verify_s")]
    assert (low < 0, ends) == (True, [(low, high), (0.0, high)])  # a score may be anything
    assert fields["tokens"]["low"] == 0.0


def test_a_rollout_s_numbers_are_its_own_and_those_of_its_parts():
    calls = {"role": "assistant", "tool_calls": [{}, {}]}
    rollout = {"id": 7, "reward": 1, "flag": True, "name": "x", "verify_s": 9.0}
    rollout |= {
        "output": [calls, {"role": "tool", "content": "4"}, {"role": "assistant", "content": "It is 4."}],
        "usage": {"total_tokens": 30, "input_tokens": 20, "output_tokens": None},
        "meta": {"timing": {"total_s": 1.5, "verify_s": 0.1, "model_calls": 2}},
    }
    parts = {"tools": 2.0, "turns": 2.0, "length": 8.0, "tokens": 30.0, "input_tokens": 20.0, "total_s": 1.5}
    own = {"reward": 1.0, "flag": 1.0, "verify_s": 9.0}  # which win
    assert numbers_of(RowFacts(rollout)) == {**own, **parts}


def test_rows_are_grouped_by_agent_task_or_any_field(tmp_path: Path):
    rows = [
        scored("t0/0", difficulty=10, info={"level": 1}, agent="b", response={"status": "incomplete"}),
        scored("t1/0", difficulty="hard", response={"status": "completed"}),
        scored("t2/0", difficulty=2, **{"dotted.name": "x"}),
        scored("t3/0", difficulty=None),
    ]
    for by, names in {
        "difficulty": ["2", "10", "hard", "(none)"],
        "agent": ["a", "b"],
        "task": ["t0", "t1", "t2", "t3"],
        "status": ["completed", "incomplete", "(none)"],
        "info.level": ["1", "(none)"],
        "dotted.name": ["x", "(none)"],
    }.items():
        groups = grouped(tmp_path, rows, by=by)["groups"]
        assert [group["group"] for group in groups] == names
        assert sum(group["rollouts"] for group in groups) == 4
    with pytest.raises(InputError, match="by=nope"):
        grouped(tmp_path, rows, by="nope")


ROWS = st.lists(
    st.builds(
        lambda task, repeat, reward, kind, extra: scored(f"t{task}/{repeat}", reward, kind=kind, **extra),
        st.integers(0, 4),
        st.integers(0, 99),
        st.none() | st.sampled_from([0.0, 0.5, 1.0]) | st.floats(-5, 5),
        st.sampled_from(["x", "y"]),
        st.fixed_dictionaries({}, optional={"score": st.floats(-9, 9), "usage": st.just({"total_tokens": 3})}),
    ),
    max_size=30,
    unique_by=lambda each: each["meta"]["key"],
)


@settings(max_examples=60, deadline=None)
@given(rows=ROWS)
def test_every_group_is_what_its_rows_alone_would_be_and_the_run_is_what_is_printed_without_a_flag(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row]
):
    folder = tmp_path_factory.mktemp("g")
    both = grouped(folder, rows, by="kind", ks=(1, 2))
    assert both["metrics"] == read_metrics(folder / "r.jsonl")[0]
    for group in both["groups"]:
        own = [each for each in rows if each["kind"] == group["group"]]
        assert group == {"group": group["group"], **grouped(folder, own, ks=(1, 2))["run"]}
    for name, field in both["run"]["fields"].items():
        numbers = [numbers_of(RowFacts(each))[name] for each in rows if name in numbers_of(RowFacts(each))]
        assert (field["n"], field["median"]) == (len(numbers), sorted(numbers)[len(numbers) // 2])
        assert field["mean"] == pytest.approx(mean(numbers)) == pytest.approx(both["metrics"].get(name, mean(numbers)))
        assert field["std"] == (pytest.approx(stdev(numbers), abs=1e-9) if len(numbers) > 1 else None)
    for name, rate in both["run"]["rates"].items():
        assert rate["value"] == pytest.approx(both["metrics"].get(name, rate["value"]))


def test_rates_are_over_the_tasks_that_have_k_scored_rollouts(tmp_path: Path):
    rows = [scored(f"a/{n}", float(n < 2), extracted_answer="36" if n < 2 else None) for n in range(3)]
    rows += [scored("b/0", 1.0, extracted_answer="1"), scored("b/1", 0.0, extracted_answer="2"), scored("b/2", None)]
    result = grouped(tmp_path, rows, ks=(1, 2, 3, 9), level=0)
    rates = result["run"]["rates"]
    of_two = {"pass@1": 7 / 12, "pass@2": 1.0, "pass^2": 1 / 6, "majority@2": 3 / 4}
    of_three = {"pass@3": 1.0, "pass^3": 0.0, "majority@3": 1.0}
    assert {name: rate["value"] for name, rate in rates.items()} == pytest.approx(of_two | of_three)
    assert {name: rate["tasks"] for name, rate in rates.items()} == dict.fromkeys(of_two, 2) | dict.fromkeys(
        of_three, 1
    )
    assert result["notes"] == ["no task has 9 scored rollouts; the most is 3"]


def test_answers_are_the_same_but_for_case_spaces_and_a_full_stop():
    for one, other, same in (
        ({"extracted_answer": "Paris"}, {"extracted_answer": " PARIS. "}, True),
        ({"extracted_answer": 36}, {"extracted_answer": "36"}, True),
        ({"extracted_answer": [1, 2]}, {"extracted_answer": [2, 1]}, False),
        ({"response": {"content": "It is  36."}}, {"response": {"content": "it is\n36"}}, True),
        ({"response": {"content": "36"}}, {"output": [{"role": "assistant", "content": "36"}]}, True),
        ({"extracted_answer": "1", "response": {"content": "a"}}, {"extracted_answer": "1"}, True),
    ):
        assert (answer_of(RowFacts(one)) == answer_of(RowFacts(other)) != 0) is same
    for none in ({}, {"extracted_answer": None, "response": {"content": "x"}}, {"response": {"content": " "}}):
        assert answer_of(RowFacts(none)) == 0


def test_of_very_many_tries_the_first_repeats_vote_whatever_their_order_and_every_try_counts_for_pass_rates():
    tries = [(RowFacts(scored(f"t/{n}", float(n % 4 < 3))), 2 + (n % 4 == 3)) for n in range(400)]
    for seed in range(3):
        random.Random(seed).shuffle(tries)
        group = RolloutGroup(MetricsSettings())
        for facts, answer in tries:
            group.add(facts, facts.numbers, answer)
        assert group.ballot(0) == (((8, 0), (24, 24)), 0)
        assert dict(group.rates([1]))["pass@1"].values == {0: 0.75}
        assert [name for name, _ in group.rates([64])] == ["pass@64", "pass^64"]
    assert MOST_VOTES == 32


def test_rows_without_a_key_count_in_means_and_in_no_pass_rate(tmp_path: Path):
    run = grouped(tmp_path, [{"output": [], "reward": float(n % 2)} for n in range(10)])["run"]
    assert (run["tasks"], run["rates"]) == (0, {})
    assert run["fields"]["reward"]["low"] < 0.5 < run["fields"]["reward"]["high"]


def test_shards_are_one_run_and_a_key_in_two_of_them_counts_once(tmp_path: Path):
    rows = [scored(f"t{task}/{n}", float(task % 2)) for task in range(10) for n in range(2)]
    first = [*rows[:12], scored("far/99999999", 0.0), scored("t0", 0.0)]
    one = write(tmp_path / "one.jsonl", first)
    two = tmp_path / "two.jsonl.zst"
    two.write_bytes(b"".join(pack(encode(each)) for each in [*rows[8:], scored("far/99999999"), scored("t0")]))
    result = read_groups([one, two])
    assert result["run"] == grouped(tmp_path, [*first, *rows[12:]])["run"]
    assert result["notes"][0].startswith(f"{two}: 6 of its 14 rollouts have keys that an earlier file has")


def test_hostile_values_name_groups_that_can_be_printed(tmp_path: Path):
    deep = b"[" * 300 + b"1" + b"]" * 300
    rows = [
        b'{"reward":1,"extracted_answer":%s,"kind":%s,"meta":{"key":"o3/0"}}\n' % (deep, deep),
        {"reward": 1, "kind": "x" * 1_000_000, "meta": {"key": "o4/0"}},
        {"reward": 1, "kind": {"a": 1}, "response": {"content": ["x"]}, "meta": {"key": "/0", "agent": 5}},
    ]
    for by in ("kind", "agent", "kind.a"):
        result = grouped(tmp_path, rows, by=by)
        assert sum(group["rollouts"] for group in result["groups"]) == result["run"]["rollouts"] == len(rows)
        assert all(len(group["group"]) <= 200 for group in result["groups"])
        assert result["notes"] == read_metrics(tmp_path / "r.jsonl")[1]
        orjson.dumps(result)


def test_tasks_are_solved_useful_for_learning_or_hopeless(tmp_path: Path):
    rewards = {"all": (1, 1), "some": (1, 0), "none": (0, 0), "partly": (0.2, 0.4)}
    rows = [scored(f"{task}/{at}", reward) for task, pair in rewards.items() for at, reward in enumerate(pair)]
    result = grouped(tmp_path, rows, by="task")
    assert result["difficulty"] == {"solved": ["all"], "useful": ["partly", "some"], "hopeless": ["none"]}
    assert "1 solved (every rollout passed), 2 useful for learning" in metrics_report(result)
    assert "+num_repeats=4" in metrics_report(grouped(tmp_path, [scored("all/0", 1)], by="task"))
