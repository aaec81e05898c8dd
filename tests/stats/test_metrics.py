"""Every number comes from the rows: while collecting, and again from the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.planted import scored as row
from tests.support.planted import write
from velodrome.records.facts import RowFacts
from velodrome.records.rollout import encode, make_rollout
from velodrome.stats.group import MetricsSettings
from velodrome.stats.groups import read_groups
from velodrome.stats.metrics import Tally, failed_keys, read_metrics


def metrics(*rows: dict[str, Any], **options: Any) -> dict[str, Any]:
    tally = Tally(**options)
    for each in rows:
        tally.add(RowFacts(each))
    return tally.metrics()


NO_TOKENS = {"tokens/input": 0, "tokens/output": 0, "tokens/total": 0}


def test_the_means_divide_by_the_rows_that_have_the_field():
    deferred = row("5/0", None, id=5, task_id=6)  # which are names, and not averaged
    deferred["meta"]["verification"] = "deferred"
    rows = [row("a/0", 1.0, speed=3), row("b/0", 0.0, flag=True), row("c/0", None, speed=None, name="x"), deferred]
    counts = {"rollouts/kept": 4, "rollouts/failed": 0, "rollouts/deferred": 1}
    counts |= {"n/reward": 2, "n/speed": 1, "n/flag": 1}
    assert metrics(*rows) == {"reward": 0.5, "speed": 3.0, "flag": 1.0, "avg_tool_calls": 0.0, **counts, **NO_TOKENS}


def answered(key: str, task: dict[str, Any], score: dict[str, Any]) -> dict[str, Any]:
    """A rollout as a collection makes it of a task and what `verify` returned."""
    task = {"responses_create_params": {"input": "x"}, **task}
    return make_rollout(task, {**task, "response": {"output": []}, **score}, {"key": key})


def test_what_verify_returned_is_averaged_and_no_field_of_the_task(tmp_path: Path):
    rows = [
        answered("a/0", {"expected_answer": 5, "secret": 20, "level": 1, "turns": 90}, {"reward": 1.0, "level": 3}),
        answered("b/0", {"expected_answer": 6, "secret": 30, "level": 5, "turns": 90}, {"reward": 0.0, "level": 5}),
    ]
    path = write(tmp_path / "r.jsonl", rows)
    result, _ = read_metrics(path)
    assert {name for name in result if "/" not in name} == {"reward", "level", "avg_tool_calls"}
    assert result["level"] == 4.0  # the second is counted too, though its task has the same number
    fields = read_groups([path], MetricsSettings(by="secret"))
    assert fields["run"]["fields"].keys() == {"reward", "level", "length", "tools", "turns"}
    assert fields["run"]["fields"]["turns"]["max"] == 0
    assert [group["fields"]["level"]["mean"] for group in fields["groups"]] == [3.0, 5.0]
    named = read_groups([path], MetricsSettings(fields=("secret",)))  # by name a field of the task is there
    assert named["run"]["fields"]["secret"]["mean"] == 25.0


def test_of_rows_that_do_not_say_what_verify_returned_all_but_an_answer_key_is_averaged():
    result = metrics(row("a/0", 1.0, speed=3, expected_answer=5.5), row("b/0", 0.0, speed=4, ground_truth=1))
    assert {name for name in result if "/" not in name} == {"reward", "speed", "avg_tool_calls"}


def test_tool_calls_and_tokens_are_counted_over_all_rows():
    calls = [{"role": "assistant", "tool_calls": [{}, {}]}, {"role": "tool"}, {"role": "assistant", "tool_calls": None}]
    usage = {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7, "details": {"cached": 1}, "odd": 1.5}
    result = metrics(
        row("a/0", output=calls, usage=usage), row("b/0", usage={"total_tokens": 3}), row("c/0", usage=None)
    )
    assert result["avg_tool_calls"] == 2 / 3
    assert [result[f"tokens/{kind}"] for kind in ("input", "output", "total")] == [5, 2, 10]


def test_throughput_is_over_the_time_anything_was_running_with_short_pauses():
    rows = [row(f"{n}/0", usage={"total_tokens": 10}) for n in range(4)]
    for each, end in zip(rows, (102.0, 103.0, 105.5, 900.0), strict=True):  # a pause of half a second counts
        each["meta"] |= {"finished_at": end, "timing": {"total_s": 2.0}}
    result = metrics(*rows)
    assert result["throughput/active_s"] == 5.5 + 2.0
    assert (result["throughput/samples_per_s"], result["throughput/tokens_per_s"]) == (4 / 7.5, 40 / 7.5)


def test_pass_at_k_is_there_for_powers_of_two_and_the_most_repeats_that_half_of_the_tasks_have():
    rows = [row(f"a/{n}", float(n == 0)) for n in range(5)] + [row(f"b/{n}", 0.5) for n in range(3)]
    result = metrics(*rows)
    rates = {name: value for name, value in result.items() if name.startswith("pass@")}
    assert rates == pytest.approx({"pass@1": 1 / 10, "pass@2": 1 / 5, "pass@4": 4 / 5, "pass@5": 1.0})
    tasks = {"tasks/pass@1": 2, "tasks/pass@2": 2, "tasks/pass@4": 1, "tasks/pass@5": 1}
    assert {name: value for name, value in result.items() if name.startswith("tasks/")} == tasks


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
    path = write(tmp_path_factory.mktemp("m") / "r.jsonl", rows)
    assert read_metrics(path) == (metrics(*rows), [])


def test_lines_that_are_no_objects_are_named_up_to_twenty_and_count_nowhere(tmp_path: Path):
    bad = [b"[1]\n", b"5\n", b'{"reward":\n', b"NaN\n", b"[" * 2000 + b"\n", *[b"{\n"] * 45]
    path = write(tmp_path / "r.jsonl", [row("a/0", 0.5), *bad])
    result, notes = read_metrics(path)
    assert [note.partition(": ")[0] for note in notes[:20]] == [f"{path}:{number}" for number in range(2, 22)]
    assert notes[20:] == [f"{path}: 30 more lines are not rollouts"]
    assert result == metrics(row("a/0", 0.5))


def test_a_row_with_parts_of_a_wrong_type_is_counted_without_them_and_told(tmp_path: Path):
    path = tmp_path / "r.jsonl"
    odd = [b'{"reward":1,"output":["x"]}', b'{"reward":1,"output":[null]}', b'{"reward":1,"usage":[1]}']
    odd += [b'{"reward":1,"usage":{"total_tokens":"9","input_tokens":4}}', b'{"reward":1,"response":[1]}']
    odd += [b'{"reward":1,"meta":{"finished_at":"now"}}', b'{"reward":1,"meta":{"timing":{"total_s":-1}}}']
    odd += [b'{"reward":1,"meta":{"key":"no repeat"}}', b'{"reward":1,"meta":[]}', b'{"reward":1,"meta":7}']
    odd += [
        b'{"reward":"1"}',
        b'{"reward":[1]}',
        b'{"reward":null,"meta":{"key":null,"timing":{"total_s":null}}}',
        b"{}",
    ]
    path.write_bytes(encode(row("a/0", 0.5)) + b"\n".join(odd) + b"\n")
    result, notes = read_metrics(path)
    wrong = ["output", "usage", "usage.total_tokens", "response", "meta.finished_at", "meta.timing.total_s"]
    counts = dict.fromkeys([*wrong, "meta.key", "meta", "reward"], 1) | {"output": 2, "reward": 2}
    places = [f"{name}: {count} of 15 rollouts" for name, count in sorted(counts.items())]
    assert [note.partition(" have it")[0] for note in notes] == places
    counts = {"rollouts/kept": 15, "rollouts/failed": 0, "n/reward": 11}
    assert result == {"reward": 10.5 / 11, "avg_tool_calls": 0.0, **counts, **NO_TOKENS, "tokens/input": 4}


def test_nan_and_infinity_are_in_no_mean_and_told_and_their_rows_are_kept(tmp_path: Path):
    path = tmp_path / "r.jsonl"
    lines = [f'{{"reward":{reward},"score":{reward},"meta":{{"key":"a/{number}"}}}}\n'
             for number, reward in enumerate(("1.0", "NaN", "-Infinity", "1e999", "0.0", "9" * 400))]  # fmt: skip
    path.write_text("".join(lines) + '{"reward":1,"text":"\\ud800","meta":{"key":"a/6"}}\n')
    result, notes = read_metrics(path)
    assert (result["reward"], result["score"], result["rollouts/kept"]) == (2 / 3, 0.5, 7)
    assert (result["pass@1"], result["pass@3"]) == (pytest.approx(2 / 3), 1.0)
    assert [note.partition(" are")[0] for note in notes] == ["reward: 3 of 7 numbers", "score: 2 of 6 numbers"]


def test_only_keys_that_were_never_kept_have_failed(tmp_path: Path):
    failures = [{"key": "a/0"}, {"key": "b/0"}, {"key": "b/0"}, {"key": ["odd"]}, [1], {"no": "key"}]
    rows = [row("a/0"), {"reward": 1.0, "meta": None}]
    path = write(tmp_path / "r.jsonl", rows, [*failures, b'{"key":"torn'])
    assert failed_keys(path) == {"a/0": 1, "b/0": 2}
    result, notes = read_metrics(path)
    assert (result["rollouts/failed"], result["rollouts/kept"], notes) == (1, 2, [])
