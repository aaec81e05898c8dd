"""Two runs: tasks are compared with themselves, and nothing is called better that chance could explain."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.support.planted import Row, Rows, scored, write
from velodrome.errors import InputError
from velodrome.stats.compare import compare, verdict
from velodrome.stats.group import MetricsSettings
from velodrome.stats.intervals import paired_interval
from velodrome.stats.metrics import read_metrics


def row(key: str, reward: float | None = 1.0, **fields: Any) -> Row:
    task = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": f"What is\n{key.split('/')[0]}?"}]
    return scored(key, reward, responses_create_params={"input": task}, **fields)


def compared(folder: Path, a: Rows, b: Rows, **settings: Any) -> Any:
    """Two runs of these rows."""
    files = [[write(folder / f"{name}.jsonl", rows)] for name, rows in (("a", a), ("b", b))]
    return compare(*files, MetricsSettings(**settings))


def field(result: Any, name: str) -> Any:
    return next(each for each in result["fields"] if each["name"] == name)


def noisy(tasks: int, *, better: float, seed: int, repeats: int = 2, first: int = 0) -> Rows:
    """A run over tasks of very different difficulty, which every run shares."""
    chance = random.Random(seed)
    rows = []
    for task in range(first, first + tasks):
        level = random.Random(task).gauss(0.0, 5.0)
        rows += [row(f"t{task}/{n}", level + better + chance.gauss(0.0, 0.3)) for n in range(repeats)]
    return rows


def test_every_task_counts_alike_and_is_compared_with_itself(tmp_path: Path):
    a = [row("x/0", 0.0), row("x/1", 1.0), row("y/0", 1.0), row("only/0", 0.0)]
    result = compared(tmp_path, a, [row("y/0", 0.5), row("x/0", 1.0), row("new/0", 0.0)])
    means = {"name": "reward", "a": 0.75, "b": 0.75, "difference": 0.0, "low": None, "high": None}
    counts = {"paired": True, "tasks": 2, "tasks_a": 2, "tasks_b": 2, "too_few": True}
    assert field(result, "reward") == {**means, **counts}
    assert result["tasks"] == {"both": 2, "only_a": 1, "only_b": 1}
    assert [result[side] for side in "ab"] == [read_metrics(tmp_path / f"{side}.jsonl")[0] for side in "ab"]
    assert result["verdict"] == "too few tasks to tell: reward +0, 2 tasks in both runs"
    assert result["notes"] == ["2 tasks are in one run only; the differences leave them out"]


def test_a_field_with_the_name_of_a_rate_is_listed_beside_it(tmp_path: Path):
    a, b = ([row(f"t{n}/0", 1.0) | {"pass@1": number} for n in range(3)] for number in (5.0, 7.0))
    entries = [each for each in compared(tmp_path, a, b)["fields"] if each["name"] == "pass@1"]
    assert [(each["a"], each["b"]) for each in entries] == [(1.0, 1.0), (5.0, 7.0)]


def test_a_task_with_the_same_id_and_another_prompt_is_told(tmp_path: Path):
    other = {"responses_create_params": {"input": "Something else"}}
    [note] = compared(tmp_path, [row("x/0"), row("y/0")], [row("y/0") | other, row("x/0")])["notes"]
    assert note.startswith("1 task with the same id in both runs and another prompt (the first: y)")


def test_a_difference_that_noise_between_tasks_would_hide_is_found_by_pairing_them(tmp_path: Path):
    a, b = noisy(60, better=0.0, seed=1), noisy(60, better=0.3, seed=2)
    result = compared(tmp_path, a, b)
    entry = field(result, "reward")
    assert 0.1 < entry["low"] < 0.3 < entry["high"] < 0.5
    assert result["verdict"].startswith("B is better: reward +0.")
    assert compared(tmp_path, b, a)["verdict"].startswith("B is worse: reward -0.")
    unpaired = compared(tmp_path, a, noisy(60, better=0.3, seed=2, first=1000))
    assert field(unpaired, "reward")["paired"] is False
    assert unpaired["verdict"].startswith("no difference that 60 tasks could show: reward ")
    assert unpaired["notes"] == ["no task is in both runs: a difference may come from the tasks"]


def test_the_interval_is_of_the_differences_of_tasks(tmp_path: Path):
    before = {f"t{n}": float(n % 3) for n in range(24)}
    after = {f"t{n}": float(n % 4) for n in range(24)}
    a = [row(f"{task}/0", value) for task, value in before.items()]
    b = [row(f"{task}/0", value) for task, value in reversed(after.items())]
    entry = field(compared(tmp_path, a, b), "reward")
    expected = paired_interval([after[task] - before[task] for task in before], 0.95, furthest=None)
    assert (entry["low"], entry["high"]) == expected


def test_two_runs_that_are_the_same_do_not_differ(tmp_path: Path):
    rows = noisy(30, better=0.0, seed=1)
    result = compared(tmp_path, rows, rows)
    assert result["verdict"] == "no difference: the same mean reward in every one of 30 tasks in both runs"
    assert (result["flips"], result["flipped"], result["notes"]) == ([], {"to_pass": 0, "to_fail": 0}, [])
    assert {(each["difference"], each["low"], each["high"]) for each in result["fields"]} == {(0.0, None, None)}
    assert {"reward", "pass@1", "pass@2", "pass^2"} <= {each["name"] for each in result["fields"]}


def test_false_alarms_are_as_rare_as_the_level_says(tmp_path: Path):
    alarms = 0
    for seed in range(60):
        a, b = (noisy(20, better=0.0, seed=2 * seed + run) for run in (0, 1))
        alarms += compared(tmp_path, a, b)["verdict"].startswith("B is ")
    assert alarms <= 7  # of 60 at 5% a mean of 3; 8 or more happen once in a hundred


def test_a_task_flips_when_it_passes_half_the_time_in_one_run_only(tmp_path: Path):
    def tries(task: str, passed: int, of: int) -> list[dict[str, Any]]:
        return [row(f"{task}/{n}", float(n < passed)) for n in range(of)]

    a = [*tries("up", 0, 1), *tries("down", 3, 4), *tries("same", 1, 4), *tries("gone", 1, 1), row("some/0", 0.2)]
    b = [*tries("up", 2, 2), *tries("down", 1, 4), *tries("same", 1, 3), row("none/0", None), row("some/0", 0.6)]
    result = compared(tmp_path, a, b)
    names = ("task", "a_rate", "b_rate", "a_n", "b_n", "prompt")
    up, down = ("up", 0.0, 1.0, 1, 2, "What is up?"), ("down", 0.75, 0.25, 4, 4, "What is down?")
    assert [tuple(flip[name] for name in names) for flip in result["flips"]] == [up, down]
    assert result["flipped"] == {"to_pass": 1, "to_fail": 1}
    assert [each["task"] for each in compared(tmp_path, a, b, pass_at=0.5)["flips"]] == ["some", "up", "down"]


def test_groups_are_compared_on_their_own(tmp_path: Path):
    def run(name: str, hard: float) -> Rows:
        easy = [row(f"e{n}/0", 1.0, kind="easy") for n in range(20)]
        return [*easy, *(row(f"h{n}/0", hard + n / 100, kind="hard") for n in range(20)), row("o/0", kind=name)]

    result = compared(tmp_path, run("a", 0.0), run("b", 0.5), by="kind")
    assert [(group["group"], group["tasks"]["both"], group["verdict"]) for group in result["groups"]] == [
        ("easy", 20, "no difference: the same mean reward in every one of 20 tasks in both runs"),
        ("hard", 20, "B is better: reward +0.5 in every one of 20 tasks in both runs"),
    ]
    assert result["notes"] == ["in one run only, and not compared: a, b"]
    with pytest.raises(InputError, match="by: "):
        compared(tmp_path, [], [], by="task")


def test_a_number_that_one_run_lacks_has_no_difference(tmp_path: Path):
    result = compared(tmp_path, [row("x/0", None, score=2)], [row("x/0", None)])
    entry = field(result, "score")
    assert (entry["a"], entry["b"], entry["difference"], entry["paired"]) == (2.0, None, None, False)
    assert result["verdict"] == "no reward that both runs have: nothing to judge by"
    assert compared(tmp_path, [], [])["verdict"] == compared(tmp_path, [row("x/0")], [])["verdict"] == result["verdict"]
    result = compared(tmp_path, [row("x/0", score=2), row("y/0")], [row("x/0"), row("y/0", score=3)])
    entry = field(result, "score")  # both runs have it, but in no task
    assert (entry["a"], entry["b"], entry["difference"], entry["tasks"]) == (None, None, None, 0)


@pytest.mark.parametrize("later", [{"verify_s": 0, "verify_later_s": 0.3}, {"verify_s": 0}])
def test_verification_that_was_no_part_of_a_run_is_not_compared(tmp_path: Path, later: dict[str, float]):
    def run(timing: dict[str, float], **meta: Any) -> Rows:
        rows = [row(f"t{n}/0", None if meta else 1.0) for n in range(8)]
        for number, each in enumerate(rows):
            each["meta"] |= {"timing": {"total_s": 1.0 + number, **timing}, **meta}
        return rows

    deferred = {} if "verify_later_s" in later else {"verification": "deferred"}
    result = compared(tmp_path, run({"verify_s": 0.5}), run(later, **deferred))
    entry = field(result, "verify_s")
    assert (entry["a"], entry["b"], entry["difference"], entry["low"]) == (0.5, None, None, None)
    assert [note.startswith("B: its rollouts were not verified while they ran") for note in result["notes"]] == [True]
    again = compared(tmp_path, run({"verify_s": 0.5}), run({"verify_s": 0.2, "verify_later_s": 0.3}))
    assert field(again, "verify_s")["difference"] == pytest.approx(-0.3)


def test_failures_and_bad_lines_are_told_by_run(tmp_path: Path):
    write(tmp_path / "b.failures.jsonl", [{"key": "y/0"}])
    assert compared(tmp_path, [row("x/0"), b"{\n"], [row("x/0")])["notes"] == [
        f"A: {tmp_path / 'a.jsonl'}:2: not a rollout; it is not counted",
        "B: 1 rollout failed; failures are in no number here",
    ]


def measured(
    difference: float, low: float | None, high: float | None, a: int = 200, b: int = 200, paired: bool = True
) -> Rows:
    counts = {"tasks": min(a, b), "tasks_a": a, "tasks_b": b, "too_few": min(a, b) < 10}
    return [{"name": "reward", "difference": difference, "low": low, "high": high, **counts, "paired": paired}]


@pytest.mark.parametrize(
    ("fields", "level", "line"),
    [
        (measured(0.12, 0.05, 0.19), 0.95, "B is better: reward +0.12 [0.05, 0.19] (95%, 200 tasks in both runs)"),
        (measured(-0.12, -0.2, -0.05), 0.9, "B is worse: reward -0.12 [-0.2, -0.05] (90%, 200 tasks in both runs)"),
        (
            measured(-0.05, -0.3, 0.2, 20, 11, paired=False),
            0.95,
            "no difference that so many tasks could show: reward -0.05 [-0.3, 0.2] "
            "(95%, 20 tasks in A and 11 in B, not the same ones)",
        ),
        (measured(0.5, None, None, 3, 3), 0.95, "too few tasks to tell: reward +0.5, 3 tasks in both runs"),
    ],
)
def test_the_verdict_says_no_more_than_the_interval(fields: list[dict[str, Any]], level: float, line: str):
    assert verdict(fields, level) == line
