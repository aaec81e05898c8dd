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

from velodrome.errors import InputError
from velodrome.records.facts import RowFacts
from velodrome.records.rollout import encode
from velodrome.records.zst import pack
from velodrome.stats.draws import MOST_VOTES
from velodrome.stats.group import GroupRow, MetricsSettings, RolloutGroup, answer_of
from velodrome.stats.groups import RunReading, natural, read_groups
from velodrome.stats.intervals import mean_interval
from velodrome.stats.metrics import read_metrics
from velodrome.stats.numbers import numbers_of


def row(key: str, reward: float | None = 1.0, *, agent: str = "a", **fields: Any) -> dict[str, Any]:
    return {
        "responses_create_params": {"input": "x"},
        "output": [],
        "reward": reward,
        **fields,
        "meta": {"key": key, "agent": agent},
    }


def write(path: Path, *rows: Any) -> Path:
    path.write_bytes(b"".join(each if isinstance(each, bytes) else encode(each) for each in rows))
    return path


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
        "response": {"content": "It is 4."},
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


def test_a_rollout_without_a_response_is_as_long_as_the_last_thing_said():
    output = [{"role": "assistant", "content": "no"}, {"role": "assistant", "content": "four"}, {"role": "tool"}]
    assert numbers_of(RowFacts({"output": output}))["length"] == 4.0


def test_a_field_is_described_over_the_rows_that_have_it(tmp_path: Path):
    path = write(
        tmp_path / "r.jsonl", row("a/0", 1, score=2), row("b/0", 0.0, score=4), row("c/0", None), row("d/0", 0.5)
    )
    found = read_groups([path], MetricsSettings(level=0))
    assert found["run"]["fields"]["reward"] == {
        "n": 3,
        "mean": 0.5,
        "std": 0.5,
        "min": 0.0,
        "median": 0.5,
        "max": 1.0,
        "low": None,
        "high": None,
        "median_error": 0.0,
    }
    assert found["run"]["fields"]["score"]["median"] == 4.0  # the upper of the two in the middle
    assert (found["run"]["rollouts"], found["run"]["tasks"]) == (4, 4)


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
    path = write(
        tmp_path / "r.jsonl",
        row("t0/0", difficulty=10, info={"level": 1}, agent="b"),
        row("t1/0", difficulty="hard", agent="a"),
        row("t2/0", difficulty=2, **{"dotted.name": "x"}),
        row("t3/0", difficulty=None),
    )
    found = read_groups([path], MetricsSettings(by=by))
    assert [group["group"] for group in found["groups"]] == names
    assert sum(group["rollouts"] for group in found["groups"]) == 4


def test_a_field_that_no_row_has_is_a_mistake(tmp_path: Path):
    path = write(tmp_path / "r.jsonl", row("a/0"))
    with pytest.raises(InputError, match="--by nope: no rollout has it"):
        read_groups([path], MetricsSettings(by="nope"))


def test_numbers_come_before_texts_and_those_without_a_name_last():
    names = ["(none)", "b", "10", "9", "nan", "-1", "(others)", "inf", "a"]
    assert sorted(names, key=natural) == ["-1", "9", "10", "a", "b", "inf", "nan", "(none)", "(others)"]


ROWS = st.lists(
    st.builds(
        lambda task, repeat, reward, kind, extra: row(f"t{task}/{repeat}", reward, kind=kind, **extra),
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
def test_every_group_is_what_a_file_of_its_rows_alone_would_be(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any]
):
    folder = tmp_path_factory.mktemp("g")
    wanted = MetricsSettings(by="kind", ks=(1, 2))
    found = read_groups([write(folder / "all.jsonl", *rows)], wanted)
    for kind in {each["kind"] for each in rows}:
        own = [each for each in rows if each["kind"] == kind]
        alone = read_groups([write(folder / "own.jsonl", *own)], MetricsSettings(ks=(1, 2)))
        group = next(each for each in found["groups"] if each["group"] == kind)
        assert group == {"group": kind, **alone["run"]}
    for name, field in found["run"]["fields"].items():
        numbers = [numbers_of(RowFacts(each))[name] for each in rows if name in numbers_of(RowFacts(each))]
        assert (field["n"], field["median"]) == (len(numbers), sorted(numbers)[len(numbers) // 2])
        assert field["mean"] == pytest.approx(mean(numbers))
        assert field["std"] == (pytest.approx(stdev(numbers), abs=1e-9) if len(numbers) > 1 else None)


@settings(max_examples=40, deadline=None)
@given(rows=ROWS)
def test_the_means_and_pass_rates_are_those_that_are_printed_without_a_flag(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any]
):
    path = write(tmp_path_factory.mktemp("g") / "r.jsonl", *rows)
    flat, _ = read_metrics(path)
    found = read_groups([path], MetricsSettings(level=0))
    assert found["metrics"] == flat
    for name in ("reward", "score"):
        if name in flat:
            assert found["run"]["fields"][name]["mean"] == pytest.approx(flat[name])
    for name in flat:
        if name.startswith("pass@"):
            assert found["run"]["rates"][name]["value"] == pytest.approx(flat[name])


def test_rates_are_over_the_tasks_that_have_k_scored_rollouts(tmp_path: Path):
    rows = [row(f"a/{n}", float(n < 2), extracted_answer="36" if n < 2 else None) for n in range(3)]
    rows += [row("b/0", 1.0, extracted_answer="1"), row("b/1", 0.0, extracted_answer="2"), row("b/2", None)]
    found = read_groups([write(tmp_path / "r.jsonl", *rows)], MetricsSettings(ks=(1, 2, 3, 9), level=0))
    rates = {name: (rate["tasks"], rate["value"]) for name, rate in found["run"]["rates"].items()}
    assert rates == {
        "pass@1": (2, pytest.approx((2 / 3 + 1 / 2) / 2)),
        "pass@2": (2, 1.0),
        "pass^2": (2, pytest.approx((1 / 3 + 0) / 2)),
        "majority@2": (2, pytest.approx((1 + 1 / 2) / 2)),
        "pass@3": (1, 1.0),
        "pass^3": (1, 0.0),
        "majority@3": (1, 1.0),
    }
    assert found["notes"] == ["no task has 9 scored rollouts; the most is 3"]


def test_a_few_tasks_with_more_rollouts_than_the_others_make_no_rate_unless_asked_for(tmp_path: Path):
    rows = [row(f"{task}/{n}", extracted_answer="1") for task in range(5) for n in range(9 if task < 2 else 3)]
    path = write(tmp_path / "r.jsonl", *rows)
    kinds = ("pass@", "pass^", "majority@")
    usual = read_groups([path], MetricsSettings(level=0))["run"]["rates"]
    assert list(usual) == ["pass@1", *(f"{kind}{k}" for k in (2, 3) for kind in kinds)]
    asked = read_groups([path], MetricsSettings(ks=(9,), level=0))["run"]["rates"]
    assert {name: rate["tasks"] for name, rate in asked.items()} == {f"{kind}9": 2 for kind in kinds}


def test_where_no_rollout_has_an_answer_there_is_no_majority(tmp_path: Path):
    found = read_groups([write(tmp_path / "r.jsonl", row("a/0"), row("a/1"))])
    assert list(found["run"]["rates"]) == ["pass@1", "pass@2", "pass^2"]


def test_the_reward_from_which_a_rollout_passes_can_be_set(tmp_path: Path):
    path = write(tmp_path / "r.jsonl", row("a/0", 0.6), row("a/1", 0.4))
    found = read_groups([path], MetricsSettings(pass_at=0.5))
    assert found["run"]["rates"]["pass@1"]["value"] == found["metrics"]["pass@1"] == 0.5
    assert read_groups([path])["run"]["rates"]["pass@1"]["value"] == 0.0


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


@pytest.mark.parametrize(
    "none", [{}, {"extracted_answer": None, "response": {"content": "x"}}, {"response": {"content": " "}}]
)
def test_an_empty_answer_is_no_answer(none: Any):
    assert answer_of(RowFacts(none)) == 0


def test_of_very_many_tries_the_first_repeats_vote_whatever_their_order_and_every_try_counts_for_pass_rates():
    tries = [GroupRow("t", n, {"reward": float(n % 4 < 3)}, 2 + (n % 4 == 3), False, False) for n in range(400)]
    ballots = []
    for seed in range(3):
        random.Random(seed).shuffle(tries)
        group = RolloutGroup(MetricsSettings())
        group.extend(tries)
        ballots.append(group.ballot(0))
        assert dict(group.rates([1]))["pass@1"] == [(0, 0.75)]
        assert [name for name, _ in group.rates([64])] == ["pass@64", "pass^64"]
    assert ballots == [(((8, 0), (24, 24)), 0)] * 3
    assert MOST_VOTES == 32


def test_intervals_are_of_tasks_and_not_of_their_rollouts(tmp_path: Path):
    chance = random.Random(1)
    rows = [row(f"t{task}/{n}", float(chance.random() < task / 30)) for task in range(30) for n in range(4)]
    reward = read_groups([write(tmp_path / "r.jsonl", *rows)])["run"]["fields"]["reward"]
    means = [sum(each["reward"] for each in rows[at : at + 4]) / 4 for at in range(0, 120, 4)]
    assert mean_interval(means, [4] * 30, 0.95, share_of=(0.0, 1.0)) == (reward["low"], reward["high"])


def test_rows_are_counted_where_they_belong_however_many_there_are(tmp_path: Path):
    rows = [row(f"t{n // 4}/{n % 4}", float(n % 3 == 0), kind="xyz"[n % 3]) for n in range(5000)]
    found = read_groups([write(tmp_path / "r.jsonl", *rows)], MetricsSettings(by="kind", level=0))
    told = [
        (each["group"], each["rollouts"], each["tasks"], each["fields"]["reward"]["mean"]) for each in found["groups"]
    ]
    assert told == [("x", 1667, 1250, 1.0), ("y", 1667, 1250, 0.0), ("z", 1666, 1250, 0.0)]


def test_rows_without_a_key_count_in_means_and_in_no_pass_rate(tmp_path: Path):
    rows = [{"output": [], "reward": float(n % 2)} for n in range(10)]
    found = read_groups([write(tmp_path / "r.jsonl", *rows)])
    assert (found["run"]["tasks"], found["run"]["rates"]) == (0, {})
    assert found["run"]["fields"]["reward"]["low"] < 0.5 < found["run"]["fields"]["reward"]["high"]


def test_shards_are_one_run_and_a_key_in_two_of_them_counts_once(tmp_path: Path):
    rows = [row(f"t{task}/{n}", float(task % 2)) for task in range(10) for n in range(2)]
    whole = write(tmp_path / "whole.jsonl", *rows)
    one = write(tmp_path / "one.jsonl", *rows[:12], row("far/99999999", 0.0))
    two = tmp_path / "two.jsonl.zst"
    two.write_bytes(b"".join(pack(encode(each)) for each in [*rows[8:], row("far/99999999", 1.0)]))
    found = read_groups([one, two])
    in_order = [*rows[:12], row("far/99999999", 0.0), *rows[12:]]
    expected = read_groups([write(tmp_path / "all.jsonl", *in_order)])
    assert found["run"] == expected["run"]
    assert found["notes"] == [
        f"{two}: 5 of its 13 rollouts have keys that an earlier file has; each key is counted once, from the file "
        "named first (velo compare sets two runs side by side)"
    ]
    assert read_groups([whole])["notes"] == []


def test_a_key_that_failed_in_one_shard_and_was_kept_in_another_has_not_failed(tmp_path: Path):
    one, two = write(tmp_path / "one.jsonl", row("a/0")), write(tmp_path / "two.jsonl", row("b/0"))
    write(tmp_path / "one.failures.jsonl", {"key": "b/0"}, {"key": "c/0"})
    write(tmp_path / "two.failures.jsonl", {"key": "c/0"}, {"key": "d/0"})
    assert read_groups([one, two])["metrics"]["rollouts/failed"] == 2


def deep(levels: int) -> Any:
    found: Any = 1
    for _ in range(levels):
        found = [found]
    return found


HOSTILE = [
    b"[1]\n",
    b"5\n",
    b"null\n",
    b'{"reward":1,"meta":{"key":"a/0"\n',
    b'\xff\xfe{"reward":1}\n',
    b"[" * 2000 + b"\n",
]
LOOSE = [
    b'{"reward": NaN}\n',
    b'{"reward": 1, "text": "\\ud800"}\n',
    b'{"reward":1,"output":["x"]}\n',
    b'{"reward":1,"usage":[1]}\n',
    b'{"reward":1,"meta":{"key":"no repeat"}}\n',
    b'{"reward":1,"meta":{"key":["a/0"]}}\n',
    b'{"reward":1,"meta":[1]}\n',
]
ODD = [
    {"reward": "high", "meta": {"key": "o0/0"}},
    {"reward": 1e308, "meta": {"key": "o1/0"}},
    {"reward": -1e308, "meta": {"key": "o1/1", "timing": "soon"}},
    {"reward": True, "meta": {"key": "o2/-5"}, "usage": {"total_tokens": "many"}},
    {"reward": 1, "extracted_answer": deep(300), "kind": deep(300), "meta": {"key": "o3/0"}},
    {"reward": 1, "text": "x" * 1_000_000, "kind": "x" * 1_000_000, "meta": {"key": "o4/0"}},
    {"reward": 1, "kind": {"a": 1}, "response": {"content": ["x"]}, "meta": {"key": "/0", "agent": 5}},
]


@pytest.mark.parametrize("by", [None, "kind", "agent", "task", "kind.a"])
def test_hostile_rows_are_notes_or_counted_exactly_as_without_a_flag(tmp_path: Path, by: str | None):
    odd = [orjson.dumps(each) + b"\n" if "extracted_answer" not in each else _nested(each) for each in ODD]
    path = write(tmp_path / "r.jsonl", *HOSTILE, *LOOSE, *odd)
    again = write(tmp_path / "s.jsonl", *HOSTILE, *odd)
    found = read_groups([path], MetricsSettings(by=by))
    flat, notes = read_metrics(path)
    assert found["metrics"] == flat
    assert (
        found["notes"]
        == notes
        == [
            *(f"{path}:{number}: not a rollout; it is not counted" for number in range(1, len(HOSTILE) + 1)),
            "meta: 1 of 14 rollouts have it in a wrong type; they are counted without it",
            "meta.key: 4 of 14 rollouts have it in a wrong type; they are counted without it",
            "meta.timing: 1 of 14 rollouts have it in a wrong type; they are counted without it",
            "output: 1 of 14 rollouts have it in a wrong type; they are counted without it",
            "reward: 2 of 14 rollouts have it in a wrong type; they are counted without it",
            "usage: 1 of 14 rollouts have it in a wrong type; they are counted without it",
            "usage.total_tokens: 1 of 14 rollouts have it in a wrong type; they are counted without it",
            "reward: 11 of 12 numbers are counted; the rest are NaN or infinite",
        ]
    )
    kept = len(LOOSE) + len(ODD)
    assert found["run"]["rollouts"] == kept == sum(group["rollouts"] for group in found["groups"]) or by is None
    assert all(len(group["group"]) <= 200 for group in found["groups"])
    orjson.dumps(found)
    assert read_groups([path, again], MetricsSettings(by=by))["run"]["rollouts"] == kept


def _nested(each: dict[str, Any]) -> bytes:
    levels = b"[" * 300 + b"1" + b"]" * 300
    return b'{"reward":1,"extracted_answer":%s,"kind":%s,"meta":{"key":"%s"}}\n' % (
        levels,
        levels,
        each["meta"]["key"].encode(),
    )


def test_too_many_bad_lines_are_counted_and_not_listed(tmp_path: Path):
    path = write(tmp_path / "r.jsonl", *([b"{\n"] * 50))
    notes = read_groups([path])["notes"]
    assert (len(notes), notes[-1]) == (21, f"{path}: 30 more lines are not rollouts")


@pytest.mark.parametrize(("by", "hint"), [("task", ""), ("kind", "; --fields reward keeps more apart")])
def test_groups_without_end_end_in_one(tmp_path: Path, by: str, hint: str):
    rows = [row(f"t{n:02}/0", 1.0, kind=f"t{n:02}") for n in range(30)]
    random.Random(3).shuffle(rows)  # the first by name are kept, not the first in the file
    path = write(tmp_path / "r.jsonl", *rows)
    reading = RunReading(MetricsSettings(by=by), most_cells=10 if by == "task" else 40).read([path])
    assert {name: group.rows for name, group in reading.groups.items()} == {
        **{f"t{n:02}": 1 for n in range(10)},
        "(others)": 20,
    }
    assert reading.notes == [f"there are too many groups to keep apart: 20 rollouts are in '(others)'{hint}"]


def test_numbers_without_end_are_kept_up_to_a_bound(tmp_path: Path):
    path = write(tmp_path / "r.jsonl", *(row(f"t{n}/0", **{f"n{n}_{m}": 1 for m in range(100)}) for n in range(20)))
    found = read_groups([path])
    assert len(found["run"]["fields"]) == 1000
    assert found["run"]["fields"]["reward"]["n"] == 20
    assert "more different numbers than are kept" in found["notes"][0]


def test_only_the_numbers_asked_for_are_there_and_the_reward(tmp_path: Path):
    path = write(tmp_path / "r.jsonl", row("a/0", score=1, other=2))
    found = read_groups([path], MetricsSettings(fields=frozenset({"score", "nope"})))
    assert list(found["run"]["fields"]) == ["reward", "score"]
    assert found["notes"] == ["no rollout has a number 'nope'"]


def test_deferred_and_incomplete_rollouts_are_counted_by_group(tmp_path: Path):
    deferred = row("a/0", None, kind="x")
    deferred["meta"]["verification"] = "deferred"
    path = write(tmp_path / "r.jsonl", deferred, row("b/0", kind="y", response={"status": "incomplete"}))
    found = read_groups([path], MetricsSettings(by="kind"))
    told = [{name: group.get(name) for name in ("deferred", "incomplete")} for group in found["groups"]]
    assert told == [{"deferred": 1, "incomplete": None}, {"deferred": None, "incomplete": 1}]
    assert "reward" not in found["groups"][0]["fields"]


def test_an_empty_file_has_no_numbers(tmp_path: Path):
    found = read_groups([write(tmp_path / "r.jsonl")], MetricsSettings(by="agent"))
    assert found["run"] == {"rollouts": 0, "tasks": 0, "fields": {}, "rates": {}}
    assert (found["groups"], found["notes"]) == ([], [])
