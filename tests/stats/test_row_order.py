"""What is said of rollouts does not depend on the order of their rows, not in the last digit."""

from __future__ import annotations

import random
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.support.planted import scored
from velodrome.cli.main import main
from velodrome.errors import InputError
from velodrome.profiling.profile import read_profile
from velodrome.records.rollout import encode
from velodrome.stats.compare import compare
from velodrome.stats.group import MOST_FIELDS, MetricsSettings
from velodrome.stats.groups import read_groups, read_run

ORDERS = 3


def rollouts(seed: int, tasks: int, better: float = 0.0) -> list[dict[str, Any]]:
    """Rollouts with every kind of number that sums can get wrong."""
    chance = random.Random(seed)
    rows = []
    for task in range(tasks):
        level = random.Random(task).random()
        for repeat in range(chance.choice((1, 2, 3, 40 if task == 0 else 4))):
            finished = 1.7e9 + chance.uniform(0, 3e5)
            retries = chance.choice((0, 3))
            timing = {"total_s": chance.lognormvariate(0, 2), "model_s": chance.random(), "retries": retries}
            rows.append(
                {
                    "responses_create_params": {"input": f"Question {task}"},
                    "output": [{"role": "assistant", "content": "so " * chance.randrange(9)}],
                    "response": {"content": chance.choice("abc")},
                    "usage": {"total_tokens": chance.randrange(9000)},
                    "reward": float(chance.random() < level + better),
                    "score": chance.gauss(0, 1) * 10 ** chance.randrange(-9, 9),
                    "zero": chance.choice((0.0, -0.0)),
                    "wild": chance.choice((1e308, -1e308, 1e-300, 0.1)),
                    "kind": chance.choice("xyz"),
                    "meta": {"key": f"t{task}/{repeat}", "finished_at": finished, "timing": timing},
                }
            )
    return rows


def orders(rows: list[dict[str, Any]], path: Path) -> Any:
    """The file again and again, its rows in another order each time; the first is sorted by reward."""
    rows.sort(key=lambda row: row["reward"])
    chance = random.Random(1)
    for _ in range(ORDERS):
        path.write_bytes(b"".join(map(encode, rows)))
        yield path
        chance.shuffle(rows)


@pytest.mark.parametrize(
    "words",
    [
        ["metrics", "FILE"],
        ["metrics", "FILE", "--by", "task", "--json"],
        ["metrics", "FILE", "--csv", "--k", "1,2,3"],
        ["compare", "FIXED", "FILE", "--json", "--by", "kind"],
    ],
    ids=" ".join,
)
def test_metrics_and_comparisons_print_the_same_bytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
):
    names = {"FILE": str(tmp_path / "r.jsonl"), "FIXED": str(tmp_path / "a.jsonl")}
    (tmp_path / "a.jsonl").write_bytes(b"".join(map(encode, rollouts(1, 100))))
    printed = set()
    for _ in orders(rollouts(2, 100, better=0.05), tmp_path / "r.jsonl"):
        assert main([names.get(word, word) for word in words]) == 0
        printed.add(capsys.readouterr().out)
    assert len(printed) == 1


def test_a_thousand_sorted_tasks_are_judged_as_if_they_were_shuffled(tmp_path: Path):
    def run(name: str, rewards: list[float]) -> list[Path]:
        rows = [scored(f"t{task}/0", reward) for task, reward in enumerate(rewards)]
        (tmp_path / name).write_bytes(b"".join(map(encode, rows)))
        return [tmp_path / name]

    found = compare(run("a.jsonl", [0.0] * 1000), run("b.jsonl", [1.0] * 510 + [-1.0] * 490))
    assert found["verdict"].startswith("no difference that 1,000 tasks could show: reward +0.02 [-0.04")
    reward = read_groups(run("s.jsonl", [float(task >= 2500) for task in range(5000)]))["run"]["fields"]["reward"]
    assert (reward["low"], reward["high"]) == (pytest.approx(0.4862, abs=1e-3), pytest.approx(0.5138, abs=1e-3))


def test_too_many_numbers_are_left_out_by_name_and_too_many_groups_are_refused(tmp_path: Path):
    rows = [scored(f"t{n}/0", kind=f"k{n % 40}", **{f"n{n}": 0.1 * n, "n": 1}) for n in range(MOST_FIELDS + 200)]
    seen = []
    for path in islice(orders(rows, tmp_path / "r.jsonl"), 2):
        reading = read_run([path], MetricsSettings())
        seen.append((reading.run.summary([1]), reading.notes))
        with pytest.raises(InputError, match="by=kind: 40 groups and more are too many"):
            read_run([path], MetricsSettings(by="kind"), most_cells=400)
    assert all(each == seen[0] for each in seen)
    run, notes = seen[0]
    assert (len(run["fields"]), run["fields"]["reward"]["n"]) == (MOST_FIELDS, len(rows))
    assert "more different numbers than are kept" in notes[0]


def test_a_profile_and_its_verdict_do_not_depend_on_the_order_of_rows_or_of_files(tmp_path: Path):
    path, profiles = tmp_path / "r.jsonl", []
    for _ in orders(rollouts(3, 60), path):
        profile = read_profile(path)
        for slow in profile["slowest"]:
            del slow["line"]
        profiles.append(profile)
    assert profiles == [profiles[0]] * ORDERS
    assert profiles[0]["rows"] > 60
    (tmp_path / "s.jsonl").write_bytes(b"".join(map(encode, rollouts(4, 20))))
    assert read_profile(path, tmp_path / "s.jsonl") == read_profile(tmp_path / "s.jsonl", path)
