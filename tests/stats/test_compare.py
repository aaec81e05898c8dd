"""Two runs: tasks are compared with themselves, and nothing is called better that chance could explain."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from velodrome.errors import InputError
from velodrome.records.rollout import encode
from velodrome.stats.compare import compare, verdict
from velodrome.stats.group import MetricsSettings
from velodrome.stats.intervals import paired_interval
from velodrome.stats.metrics import read_metrics


def row(key: str, reward: float | None = 1.0, **fields: Any) -> dict[str, Any]:
    asked = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": f"What is\n{key.split('/')[0]}?"}]
    return {"responses_create_params": {"input": asked}, "output": [], "reward": reward, **fields, "meta": {"key": key}}


def write(path: Path, *rows: Any) -> Path:
    path.write_bytes(b"".join(each if isinstance(each, bytes) else encode(each) for each in rows))
    return path


def field(found: dict[str, Any], name: str) -> dict[str, Any]:
    return next(each for each in found["fields"] if each["name"] == name)


def noisy(path: Path, tasks: int, *, better: float, seed: int, repeats: int = 2, first: int = 0) -> Path:
    """A run over tasks of very different difficulty, which every run shares."""
    chance = random.Random(seed)
    rows = []
    for task in range(first, first + tasks):
        level = random.Random(task).gauss(0.0, 5.0)
        rows += [row(f"t{task}/{n}", level + better + chance.gauss(0.0, 0.3)) for n in range(repeats)]
    return write(path, *rows)


def test_every_task_counts_alike_and_is_compared_with_itself(tmp_path: Path):
    a = write(tmp_path / "a.jsonl", row("x/0", 0.0), row("x/1", 1.0), row("y/0", 1.0), row("only/0", 0.0))
    b = write(tmp_path / "b.jsonl", row("y/0", 0.5), row("x/0", 1.0), row("new/0", 0.0))
    found = compare([a], [b])
    assert field(found, "reward") == {
        "name": "reward",
        "a": 0.75,
        "b": 0.75,
        "difference": 0.0,
        "low": None,
        "high": None,
        "paired": True,
        "tasks": 2,
        "tasks_a": 2,
        "tasks_b": 2,
        "too_few": True,
    }
    assert found["tasks"] == {"both": 2, "only_a": 1, "only_b": 1}
    assert (found["a"], found["b"]) == (read_metrics(a)[0], read_metrics(b)[0])
    assert found["verdict"] == "too few tasks to tell: reward +0, 2 tasks in both runs"
    assert found["notes"] == ["2 tasks are in one run only; the differences leave them out"]


def test_a_task_with_the_same_id_and_another_prompt_is_told(tmp_path: Path):
    a = write(tmp_path / "a.jsonl", row("x/0"), row("y/0"))
    other = {"responses_create_params": {"input": "Something else"}}
    b = write(tmp_path / "b.jsonl", row("y/0") | other, row("x/0"))
    assert compare([a], [b])["notes"] == [
        "1 task with the same id in both runs and another prompt (the first: y); they are paired all the same"
    ]


def test_a_difference_that_noise_between_tasks_would_hide_is_found_by_pairing_them(tmp_path: Path):
    a = noisy(tmp_path / "a.jsonl", 60, better=0.0, seed=1)
    b = noisy(tmp_path / "b.jsonl", 60, better=0.3, seed=2)
    found = compare([a], [b])
    told = field(found, "reward")
    assert 0.1 < told["low"] < 0.3 < told["high"] < 0.5
    assert found["verdict"].startswith("B is better: reward +0.")
    assert found["verdict"].endswith("(95%, 60 tasks in both runs)")
    assert compare([b], [a])["verdict"].startswith("B is worse: reward -0.")
    others = noisy(tmp_path / "c.jsonl", 60, better=0.3, seed=2, first=1000)
    unpaired = compare([a], [others])
    assert field(unpaired, "reward")["paired"] is False
    assert unpaired["verdict"].startswith("no difference that 60 tasks could show: reward ")
    assert unpaired["notes"] == ["no task is in both runs: a difference may come from the tasks"]


def test_the_interval_is_of_the_differences_of_tasks(tmp_path: Path):
    before = {f"t{n}": float(n % 3) for n in range(24)}
    after = {f"t{n}": float(n % 4) for n in range(24)}
    a = write(tmp_path / "a.jsonl", *(row(f"{task}/0", value) for task, value in before.items()))
    b = write(tmp_path / "b.jsonl", *(row(f"{task}/0", value) for task, value in reversed(after.items())))
    told = field(compare([a], [b]), "reward")
    expected = paired_interval([after[task] - before[task] for task in before], 0.95, furthest=None)
    assert (told["low"], told["high"]) == expected


def test_two_runs_that_are_the_same_do_not_differ(tmp_path: Path):
    path = noisy(tmp_path / "a.jsonl", 30, better=0.0, seed=1)
    found = compare([path], [path])
    assert found["verdict"] == "no difference: the same mean reward in every one of 30 tasks in both runs"
    assert (found["flips"], found["flipped"], found["notes"]) == ([], {"to_pass": 0, "to_fail": 0}, [])
    told = [(each["difference"], each["low"], each["high"]) for each in found["fields"]]
    assert set(told) == {(0.0, None, None)}
    assert {"reward", "pass@1", "pass@2", "pass^2"} <= {each["name"] for each in found["fields"]}


def test_rounding_is_no_difference(tmp_path: Path):
    a = write(tmp_path / "a.jsonl", *(row(f"t{task}/{n}", 0.1) for task in range(20) for n in range(3)))
    b = write(tmp_path / "b.jsonl", *(row(f"t{task}/0", 0.1) for task in range(20)))
    assert compare([a], [b])["verdict"] == "no difference: the same mean reward in every one of 20 tasks in both runs"


def test_false_alarms_are_as_rare_as_the_level_says(tmp_path: Path):
    alarms = 0
    for seed in range(60):
        a = noisy(tmp_path / "a.jsonl", 20, better=0.0, seed=2 * seed)
        b = noisy(tmp_path / "b.jsonl", 20, better=0.0, seed=2 * seed + 1)
        alarms += compare([a], [b])["verdict"].startswith("B is ")
    assert alarms <= 7  # of 60 at 5% a mean of 3; 8 or more happen once in a hundred


def test_rates_are_compared_for_every_k_that_both_runs_have(tmp_path: Path):
    def run(path: Path, repeats: int, passes: Callable[[int, int], bool]) -> Path:
        tries = [(task, n) for task in range(8) for n in range(repeats)]
        return write(path, *(row(f"t{task}/{n}", float(passes(task, n)), extracted_answer=n) for task, n in tries))

    a = run(tmp_path / "a.jsonl", 4, lambda task, n: n == 0)
    b = run(tmp_path / "b.jsonl", 2, lambda task, n: task < 4)
    found = compare([a], [b])
    told = [(each["name"], each["a"], each["b"]) for each in found["fields"] if set(each["name"]) & set("@^")]
    assert told == [
        ("pass@1", 0.25, 0.5),
        ("pass@2", pytest.approx(0.5), 0.5),
        ("pass^2", 0.0, 0.5),
        ("majority@2", pytest.approx(0.25), 0.5),
    ]


def test_a_task_flips_when_it_passes_half_the_time_in_one_run_only(tmp_path: Path):
    def tries(task: str, passed: int, of: int) -> list[dict[str, Any]]:
        return [row(f"{task}/{n}", float(n < passed)) for n in range(of)]

    a = write(
        tmp_path / "a.jsonl", *tries("up", 0, 1), *tries("down", 3, 4), *tries("same", 1, 4), *tries("gone", 1, 1)
    )
    b = write(tmp_path / "b.jsonl", *tries("up", 2, 2), *tries("down", 1, 4), *tries("same", 1, 3), row("none/0", None))
    found = compare([a], [b])
    assert found["flips"] == [
        {"task": "up", "a_rate": 0.0, "b_rate": 1.0, "a_n": 1, "b_n": 2, "prompt": "What is up?"},
        {"task": "down", "a_rate": 0.75, "b_rate": 0.25, "a_n": 4, "b_n": 4, "prompt": "What is down?"},
    ]
    assert found["flipped"] == {"to_pass": 1, "to_fail": 1}


def test_the_reward_from_which_a_task_passes_can_be_set(tmp_path: Path):
    a, b = write(tmp_path / "a.jsonl", row("x/0", 0.2)), write(tmp_path / "b.jsonl", row("x/0", 0.6))
    assert compare([a], [b])["flips"] == []
    assert [flip["task"] for flip in compare([a], [b], MetricsSettings(pass_at=0.5))["flips"]] == ["x"]


def test_runs_of_several_files_are_one_run_each(tmp_path: Path):
    one, two = write(tmp_path / "1.jsonl", row("x/0", 0.0)), write(tmp_path / "2.jsonl", row("y/0", 1.0))
    both = write(tmp_path / "b.jsonl", row("x/0", 1.0), row("y/0", 1.0))
    found = compare([one, two], [both])
    assert (found["tasks"]["both"], field(found, "reward")["difference"]) == (2, 0.5)
    assert found["files"] == {"a": [str(one), str(two)], "b": [str(both)]}


def test_groups_are_compared_on_their_own(tmp_path: Path):
    def run(path: Path, hard: float) -> Path:
        easy = [row(f"e{n}/0", 1.0, kind="easy") for n in range(20)]
        return write(
            path, *easy, *(row(f"h{n}/0", hard + n / 100, kind="hard") for n in range(20)), row("o/0", kind=path.name)
        )

    found = compare([run(tmp_path / "a", 0.0)], [run(tmp_path / "b", 0.5)], MetricsSettings(by="kind"))
    assert [(group["group"], group["tasks"]["both"], group["verdict"]) for group in found["groups"]] == [
        ("easy", 20, "no difference: the same mean reward in every one of 20 tasks in both runs"),
        ("hard", 20, "B is better: reward +0.5 in every one of 20 tasks in both runs"),
    ]
    assert found["notes"] == ["in one run only, and not compared: a, b"]
    with pytest.raises(InputError, match="--by task"):
        compare([tmp_path / "a"], [tmp_path / "b"], MetricsSettings(by="task"))


def test_a_number_that_one_run_lacks_has_no_difference(tmp_path: Path):
    a = write(tmp_path / "a.jsonl", row("x/0", None, score=2))
    b = write(tmp_path / "b.jsonl", row("x/0", None))
    found = compare([a], [b])
    told = field(found, "score")
    assert (told["a"], told["b"], told["difference"], told["paired"]) == (2.0, None, None, False)
    assert found["verdict"] == "no reward that both runs have: nothing to judge by"


def test_a_number_that_no_common_task_has_in_both_runs_has_no_difference(tmp_path: Path):
    a = write(tmp_path / "a.jsonl", row("x/0", score=2), row("y/0"))
    b = write(tmp_path / "b.jsonl", row("x/0"), row("y/0", score=3))
    told = field(compare([a], [b]), "score")
    assert (told["a"], told["b"], told["difference"], told["tasks"]) == (None, None, None, 0)


def test_runs_of_different_size_say_how_many_tasks_each_has(tmp_path: Path):
    a, b, c = (
        write(tmp_path / f"{name}.jsonl", *(row(f"{name}{n}/0", float(n % 2)) for n in range(count)))
        for name, count in (("a", 20), ("b", 2), ("c", 11))
    )
    few, more = compare([a], [b]), compare([a], [c])
    assert few["verdict"] == "too few tasks to tell: reward +0, 20 tasks in A and 2 in B, not the same ones"
    assert more["verdict"].startswith("no difference that so many tasks could show: reward -0.0455 [")
    assert more["verdict"].endswith(" (95%, 20 tasks in A and 11 in B, not the same ones)")
    told = field(more, "reward")
    assert (told["tasks"], told["tasks_a"], told["tasks_b"]) == (11, 20, 11)


@pytest.mark.parametrize("later", [{"verify_s": 0, "verify_later_s": 0.3}, {"verify_s": 0}])
def test_verification_that_was_no_part_of_a_run_is_not_compared(tmp_path: Path, later: dict[str, float]):
    def run(name: str, timing: dict[str, float], **meta: Any) -> Path:
        rows = [row(f"t{n}/0", None if meta else 1.0) for n in range(8)]
        for number, each in enumerate(rows):
            each["meta"] |= {"timing": {"total_s": 1.0 + number, **timing}, **meta}
        return write(tmp_path / name, *rows)

    deferred = {} if "verify_later_s" in later else {"verification": "deferred"}
    found = compare([run("a.jsonl", {"verify_s": 0.5})], [run("b.jsonl", later, **deferred)])
    told = field(found, "verify_s")
    assert (told["a"], told["b"], told["difference"], told["low"]) == (0.5, None, None, None)
    note = "B: its rollouts were not verified while they ran; total_s there is without verification"
    assert found["notes"] == [note]
    again = compare([run("c.jsonl", {"verify_s": 0.5})], [run("d.jsonl", {"verify_s": 0.2, "verify_later_s": 0.3})])
    assert field(again, "verify_s")["difference"] == pytest.approx(-0.3)


def test_failures_and_bad_lines_are_told_by_run(tmp_path: Path):
    a, b = write(tmp_path / "a.jsonl", row("x/0"), b"{\n"), write(tmp_path / "b.jsonl", row("x/0"))
    write(tmp_path / "b.failures.jsonl", {"key": "y/0"})
    assert compare([a], [b])["notes"] == [
        f"A: {a}:2: not a rollout; it is not counted",
        "B: 1 rollout failed; failures are in no number here",
    ]


@pytest.mark.parametrize("asked", ["What?", [], [{"role": "user", "content": [{"text": "What?"}]}], None, 5, [1], {}])
def test_a_prompt_of_any_shape_is_found_or_left_out(tmp_path: Path, asked: Any):
    rows = [row("x/0", reward) for reward in (0.0, 1.0)]
    for each in rows:
        each["responses_create_params"] = {"input": asked}
    found = compare([write(tmp_path / "a.jsonl", rows[0])], [write(tmp_path / "b.jsonl", rows[1])])
    assert found["flips"][0]["prompt"] in ("What?", "")
    assert (found["flips"][0]["prompt"] == "What?") is ("What?" in str(asked))


def test_empty_runs_can_be_compared(tmp_path: Path):
    empty, some = write(tmp_path / "e.jsonl"), write(tmp_path / "s.jsonl", row("x/0"))
    for a, b in ((empty, empty), (empty, some), (some, empty)):
        found = compare([a], [b])
        assert found["verdict"] == "no reward that both runs have: nothing to judge by"
        orjson.dumps(found)


def told(
    difference: float, low: float | None, high: float | None, tasks: int = 200, **more: Any
) -> list[dict[str, Any]]:
    counts = {"tasks": tasks, "tasks_a": tasks, "tasks_b": tasks, "too_few": tasks < 20}
    return [
        {
            "name": "reward",
            "difference": difference,
            "low": low,
            "high": high,
            **counts,
            "paired": True,
            "too_few": tasks < 20,
            **more,
        }
    ]


@pytest.mark.parametrize(
    ("fields", "level", "line"),
    [
        (told(0.12, 0.05, 0.19), 0.95, "B is better: reward +0.12 [0.05, 0.19] (95%, 200 tasks in both runs)"),
        (told(-0.12, -0.2, -0.05), 0.9, "B is worse: reward -0.12 [-0.2, -0.05] (90%, 200 tasks in both runs)"),
        (
            told(0.01, -0.03, 0.05, paired=False),
            0.95,
            "no difference that 200 tasks could show: reward +0.01 [-0.03, 0.05] "
            "(95%, 200 tasks a run, not the same ones)",
        ),
        (told(0.5, None, None, 3), 0.95, "too few tasks to tell: reward +0.5, 3 tasks in both runs"),
        (
            told(0.5, None, None),
            0.0,
            "reward +0.5, 200 tasks in both runs; whether that is chance was not asked (--ci 0)",
        ),
    ],
)
def test_the_verdict_says_no_more_than_the_interval(fields: list[dict[str, Any]], level: float, line: str):
    assert verdict(fields, level) == line


def test_sums_beyond_a_float_have_means_all_the_same(tmp_path: Path):
    a, b = (write(tmp_path / f"{name}.jsonl", *(row(f"t{n}/0", 1e308) for n in range(20))) for name in "ab")
    found = compare([a], [b])
    told = field(found, "reward")
    assert (told["a"], told["b"], told["difference"], told["low"]) == (1e308, 1e308, 0.0, None)
    assert found["verdict"] == "no difference: the same mean reward in every one of 20 tasks in both runs"
    assert found["a"]["reward"] == 1e308
    assert found["notes"] == []


@pytest.mark.parametrize("two_values", [True, False])
def test_a_run_whose_rollouts_are_nearly_all_of_one_task_is_not_called_better(tmp_path: Path, two_values: bool):
    chance = random.Random(1)

    def reward() -> float:
        return float(chance.random() < 0.5) if two_values else chance.random()

    a = write(tmp_path / "a.jsonl", *(row(f"a{max(n - 300, 0)}/{n}", reward()) for n in range(330)))
    b = write(tmp_path / "b.jsonl", *(row(f"b{n}/0", reward()) for n in range(30)))
    found = compare([a], [b])
    assert found["verdict"].startswith("too few tasks to tell: reward ")
    assert field(found, "reward")["too_few"]
