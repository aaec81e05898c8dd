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
from planted import Row, scored, write

from velodrome.errors import InputError
from velodrome.records.facts import RowFacts
from velodrome.records.rollout import encode
from velodrome.records.zst import pack
from velodrome.stats.draws import MOST_VOTES
from velodrome.stats.group import MetricsSettings, RolloutGroup, answer_of
from velodrome.stats.groups import natural, read_groups, read_run
from velodrome.stats.intervals import mean_interval
from velodrome.stats.metrics import read_metrics, read_shards
from velodrome.stats.numbers import numbers_of


def grouped(path: Path, rows: list[Any], **settings: Any) -> Any:
    """What `velo metrics` says of a file of these rows."""
    return read_groups([write(path / "r.jsonl", rows)], MetricsSettings(**settings))


def test_times_and_counts_have_no_interval_below_zero(tmp_path: Path):
    values = [0.0] * 29 + [0.001 * place for place in range(1, 13)] + [3.0]
    rows = [
        scored(f"t{n}/0", usage={"total_tokens": round(1000 * value)}, score=value, verify_s=value)
        for n, value in enumerate(values)
    ]
    fields = grouped(tmp_path, rows)["run"]["fields"]
    raw = mean_interval(values, [1] * len(values), 0.95)
    assert raw is not None
    assert raw[0] < 0
    assert (fields["score"]["low"], fields["score"]["high"]) == raw  # it may be anything
    assert (fields["verify_s"]["low"], fields["verify_s"]["high"]) == (0.0, raw[1])
    assert fields["tokens"]["low"] == 0.0


def test_a_rollout_s_numbers_are_its_own_and_those_of_its_parts():
    rollout = {
        "id": 7,
        "reward": 1,
        "flag": True,
        "name": "x",
        "verify_s": 9.0,
        "output": [
            {"role": "assistant", "tool_calls": [{}, {}]},
            {"role": "tool", "content": "4"},
            {"role": "assistant", "content": "It is 4."},
        ],
        "usage": {"total_tokens": 30, "input_tokens": 20, "output_tokens": None},
        "meta": {"timing": {"total_s": 1.5, "verify_s": 0.1, "model_calls": 2}},
    }
    assert numbers_of(RowFacts(rollout)) == {
        "reward": 1.0,
        "flag": 1.0,
        "verify_s": 9.0,  # the row's own wins
        "tools": 2.0,
        "turns": 2.0,
        "length": 8.0,
        "tokens": 30.0,
        "input_tokens": 20.0,
        "total_s": 1.5,
    }


def test_a_field_is_described_over_the_rows_that_have_it(tmp_path: Path):
    rows = [scored("a/0", 1, score=2), scored("b/0", 0.0, score=4), scored("c/0", None), scored("d/0", 0.5)]
    run = grouped(tmp_path, rows, level=0)["run"]
    spread = {"n": 3, "mean": 0.5, "std": 0.5, "min": 0.0, "median": 0.5, "max": 1.0}
    assert run["fields"]["reward"] == {**spread, "low": None, "high": None, "median_error": 0.0}
    assert run["fields"]["score"]["median"] == 4.0  # the upper of the two in the middle
    assert (run["rollouts"], run["tasks"]) == (4, 4)


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("difficulty", ["2", "10", "hard", "(none)"]),
        ("agent", ["a", "b"]),
        ("task", ["t0", "t1", "t2", "t3"]),
        ("info.level", ["1", "(none)"]),
        ("dotted.name", ["x", "(none)"]),
        ("info", ['{"level":1}', "(none)"]),
    ],
)
def test_rows_are_grouped_by_agent_task_or_any_field(tmp_path: Path, by: str, names: list[str]):
    rows = [
        scored("t0/0", difficulty=10, info={"level": 1}, agent="b"),
        scored("t1/0", difficulty="hard"),
        scored("t2/0", difficulty=2, **{"dotted.name": "x"}),
        scored("t3/0", difficulty=None),
    ]
    groups = grouped(tmp_path, rows, by=by)["groups"]
    assert [group["group"] for group in groups] == names
    assert sum(group["rollouts"] for group in groups) == 4
    with pytest.raises(InputError, match="by=nope"):
        grouped(tmp_path, rows, by="nope")


def test_numbers_come_before_texts_and_those_without_a_name_last():
    names = ["(none)", "b", "10", "9", "nan", "-1", "(others)", "inf", "a"]
    assert sorted(names, key=natural) == ["-1", "9", "10", "a", "b", "inf", "nan", "(none)", "(others)"]


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
    assert {name: (rate["tasks"], rate["value"]) for name, rate in result["run"]["rates"].items()} == {
        "pass@1": (2, pytest.approx((2 / 3 + 1 / 2) / 2)),
        "pass@2": (2, 1.0),
        "pass^2": (2, pytest.approx((1 / 3 + 0) / 2)),
        "majority@2": (2, pytest.approx((1 + 1 / 2) / 2)),
        "pass@3": (1, 1.0),
        "pass^3": (1, 0.0),
        "majority@3": (1, 1.0),
    }
    assert result["notes"] == ["no task has 9 scored rollouts; the most is 3"]


def test_a_few_tasks_with_more_rollouts_than_the_others_make_no_rate_unless_requested(tmp_path: Path):
    rows = [scored(f"{task}/{n}", extracted_answer="1") for task in range(5) for n in range(9 if task < 2 else 3)]
    kinds = ("pass@", "pass^", "majority@")
    usual = grouped(tmp_path, rows, level=0)["run"]["rates"]
    assert list(usual) == ["pass@1", *(f"{kind}{k}" for k in (2, 3) for kind in kinds)]
    requested = grouped(tmp_path, rows, ks=(9,), level=0)["run"]["rates"]
    assert {name: rate["tasks"] for name, rate in requested.items()} == {f"{kind}9": 2 for kind in kinds}
    assert list(grouped(tmp_path, [scored("a/0"), scored("a/1")])["run"]["rates"]) == ["pass@1", "pass@2", "pass^2"]


def test_the_reward_from_which_a_rollout_passes_can_be_set(tmp_path: Path):
    rows = [scored("a/0", 0.6), scored("a/1", 0.4)]
    result = grouped(tmp_path, rows, pass_at=0.5)
    assert result["run"]["rates"]["pass@1"]["value"] == result["metrics"]["pass@1"] == 0.5
    assert grouped(tmp_path, rows)["run"]["rates"]["pass@1"]["value"] == 0.0


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"extracted_answer": "36"}, {"extracted_answer": " 36. "}, True),
        ({"extracted_answer": "Paris"}, {"extracted_answer": "PARIS"}, True),
        ({"extracted_answer": 36}, {"extracted_answer": "36"}, True),
        ({"extracted_answer": [1, 2]}, {"extracted_answer": [2, 1]}, False),
        ({"response": {"content": "It is  36."}}, {"response": {"content": "it is\n36"}}, True),
        ({"response": {"content": "36"}}, {"output": [{"role": "assistant", "content": "36"}]}, True),
        ({"extracted_answer": "1", "response": {"content": "a"}}, {"extracted_answer": "1"}, True),
    ],
)
def test_answers_are_the_same_but_for_case_spaces_and_a_full_stop(one: Any, other: Any, same: bool):
    assert (answer_of(RowFacts(one)) == answer_of(RowFacts(other))) is same
    assert answer_of(RowFacts(one)) != 0
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


def test_intervals_are_of_tasks_and_not_of_their_rollouts(tmp_path: Path):
    chance = random.Random(1)
    rows = [scored(f"t{task}/{n}", float(chance.random() < task / 30)) for task in range(30) for n in range(4)]
    reward = grouped(tmp_path, rows)["run"]["fields"]["reward"]
    means = [sum(each["reward"] for each in rows[at : at + 4]) / 4 for at in range(0, 120, 4)]
    assert mean_interval(means, [4] * 30, 0.95, share_of=(0.0, 1.0)) == (reward["low"], reward["high"])


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


def test_a_key_that_failed_in_one_shard_and_was_kept_in_another_has_not_failed(tmp_path: Path):
    one = write(tmp_path / "one.jsonl", [scored("a/0")], [{"key": "b/0"}, {"key": "c/0"}])
    two = write(tmp_path / "two.jsonl", [scored("b/0")], [{"key": "c/0"}, {"key": "d/0"}])
    assert read_groups([one, two])["metrics"]["rollouts/failed"] == 2


@pytest.mark.parametrize("by", ["kind", "agent", "task", "kind.a"])
def test_hostile_values_name_groups_that_can_be_printed(tmp_path: Path, by: str):
    deep = b"[" * 300 + b"1" + b"]" * 300
    rows = [
        b'{"reward":1,"extracted_answer":%s,"kind":%s,"meta":{"key":"o3/0"}}\n' % (deep, deep),
        {"reward": 1e308, "meta": {"key": "o1/0"}},
        {"reward": True, "meta": {"key": "o2/-5"}, "usage": {"total_tokens": "many"}},
        {"reward": 1, "kind": "x" * 1_000_000, "meta": {"key": "o4/0"}},
        {"reward": 1, "kind": {"a": 1}, "response": {"content": ["x"]}, "meta": {"key": "/0", "agent": 5}},
    ]
    result = grouped(tmp_path, rows, by=by)
    assert sum(group["rollouts"] for group in result["groups"]) == result["run"]["rollouts"] == len(rows)
    assert all(len(group["group"]) <= 200 for group in result["groups"])
    assert result["notes"] == read_metrics(tmp_path / "r.jsonl")[1]
    orjson.dumps(result)


@pytest.mark.parametrize(("by", "hint"), [("task", ""), ("kind", "; with only the field reward more are kept apart")])
def test_groups_without_end_end_in_one(tmp_path: Path, by: str, hint: str):
    rows = [scored(f"t{n:02}/0", kind=f"t{n:02}") for n in range(30)]
    random.Random(3).shuffle(rows)  # the first by name are kept, not the first in the file
    path = write(tmp_path / "r.jsonl", rows)
    reading = read_run([path], MetricsSettings(by=by), most_cells=10 if by == "task" else 40)
    assert {name: group.rows for name, group in reading.groups.items()} == {
        **{f"t{n:02}": 1 for n in range(10)},
        "(others)": 20,
    }
    assert reading.notes == [f"there are too many groups to keep apart: 20 rollouts are in '(others)'{hint}"]


def test_rows_that_are_appended_while_groups_are_read_again_are_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = write(tmp_path / "r.jsonl", [scored(f"t{n:02}/0") for n in range(20, 50)])
    settings = MetricsSettings(by="task")
    with path.open("ab") as file:
        file.write(b'{"reward":1,"meta":{"key":"t99')  # being written
    before = read_run([path], settings, most_cells=10)
    passes = 0

    def growing(*args: Any, **options: Any) -> Any:
        nonlocal passes
        passes += 1
        taken = read_shards(*args, **options)
        rows = [scored(f"t{20 - passes:02}/{n}") for n in range(3)]
        with path.open("ab") as file:
            file.write(b"".join([b'/0"}}\n' if passes == 1 else b"", *(orjson.dumps(row) + b"\n" for row in rows)]))
        write(path.with_name("r.failures.jsonl"), [{"key": "x/0"}])
        return taken

    monkeypatch.setattr("velodrome.stats.groups.read_shards", growing)
    after = read_run([path], settings, most_cells=10)
    assert passes == 2
    assert {name: group.rows for name, group in after.groups.items()} == {
        **{f"t{n}": 1 for n in range(20, 30)},
        "(others)": 20,
    }
    assert (after.metrics, after.notes) == (before.metrics, before.notes)


def test_only_the_requested_numbers_are_there_and_the_reward(tmp_path: Path):
    result = grouped(tmp_path, [scored("a/0", score=1, other=2)], fields=frozenset({"score", "nope"}))
    assert list(result["run"]["fields"]) == ["reward", "score"]
    assert result["notes"] == ["no rollout has a number 'nope'"]


def test_deferred_and_incomplete_rollouts_are_counted_by_group(tmp_path: Path):
    deferred = scored("a/0", None, kind="x")
    deferred["meta"]["verification"] = "deferred"
    rows = [deferred, scored("b/0", kind="y", response={"status": "incomplete"})]
    first, second = grouped(tmp_path, rows, by="kind")["groups"]
    assert (first["deferred"], "incomplete" in first, "reward" in first["fields"]) == (1, False, False)
    assert (second["incomplete"], "deferred" in second) == (1, False)


def test_groups_by_status_are_those_of_the_response(tmp_path: Path):
    rows = [scored("a/0", response={"status": "completed"}), scored("b/0", response={"status": "incomplete"})]
    assert [group["group"] for group in grouped(tmp_path, rows, by="status")["groups"]] == ["completed", "incomplete"]


def test_an_empty_file_has_no_numbers(tmp_path: Path):
    result = grouped(tmp_path, [], by="agent")
    assert result["run"] == {"rollouts": 0, "tasks": 0, "outcomes": {}, "fields": {}, "rates": {}}
    assert (result["groups"], result["notes"]) == ([], [])
