"""`velo data difficulty`: solved, useful and hopeless tasks, and how sure that is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from velodrome.cli.main import main
from velodrome.stats.task_difficulty import rate_interval

REWARDS = {"all": [1, 1, 1, 1], "some": [1, 0, 0, 1], "none": [0, 0, 0, 0], "partly": [0.2, 0.4, 0.2, 0.2]}
BUILT_IN = "resources_servers/calculator/data/example.jsonl"
MODEL = """
policy_model:
  responses_api_models:
    scripted_model:
      answers: ["The result is 4."]
"""


def rollouts(folder: Path) -> Path:
    path = folder / "rollouts.jsonl"
    rows = [
        {"responses_create_params": {"input": name}, "output": [], "reward": reward, "meta": {"key": f"{name}/{at}"}}
        for name, rewards in REWARDS.items()
        for at, reward in enumerate(rewards)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    failure = {"key": "gone/0", "boundary": "model", "error": "no answer"}
    (folder / "rollouts.failures.jsonl").write_text(json.dumps(failure) + "\n")
    return path


def tasks(folder: Path, *names: str) -> Path:
    path = folder / "tasks.jsonl"
    rows = [{"id": name, "responses_create_params": {"input": name}} for name in names]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def difficulty(capsys: pytest.CaptureFixture[str], *arguments: Any) -> Any:
    assert main(["data", "difficulty", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_each_task_has_its_class_and_an_interval(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = difficulty(capsys, rollouts(tmp_path))
    assert {name: task["class"] for name, task in report["each"].items()} == {
        "all": "solved",
        "some": "useful",
        "none": "hopeless",
        "partly": "useful",
        "gone": "unknown",
    }
    assert report["classes"] == {"solved": 1, "useful": 2, "hopeless": 1, "unknown": 1}
    assert report["looks_solved"] == {"rollouts": 4, "at_rate": 0.75, "share": 0.75**4}
    assert report["each"]["some"]["rate_interval"] == pytest.approx([0.0676, 0.9324], abs=1e-4)
    assert difficulty(capsys, rollouts(tmp_path), "--right-at", "0.2")["each"]["partly"]["class"] == "solved"


def test_the_table_says_what_few_repeats_may_hide(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "difficulty", str(rollouts(tmp_path))]) == 0
    out = capsys.readouterr().out
    assert "looks solved in 32% of cases" in out
    assert "2 of 4 right, so 7% to 93%" in out


def test_an_interval_holds_the_rate_as_often_as_it_says() -> None:
    from scipy.stats import binom

    for count in (1, 2, 4, 8, 30):
        within = [rate_interval(right, count, 0.95) for right in range(count + 1)]
        for rate in (0.01, 0.2, 0.5, 0.77, 0.95):
            held = [right for right, each in enumerate(within) if each is not None and each[0] <= rate <= each[1]]
            assert sum(binom.pmf(held, count, rate)) >= 0.95
    assert rate_interval(0, 0, 0.95) is None


def test_useful_tasks_are_written_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tasks(tmp_path, "none", "some", "all", "partly", "another")
    useful = tmp_path / "useful.jsonl"
    difficulty(capsys, rollouts(tmp_path), "--tasks", source, "--output", useful)
    lines = source.read_bytes().splitlines(keepends=True)
    assert useful.read_bytes() == lines[1] + lines[3]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "takes rollouts, or +settings of velo collect"),
        (["{file}", "+limit=3"], "not both"),
        (["{file}", "--output", "{folder}/u.jsonl"], "--output needs --tasks"),
        (["{file}", "--output", "{file}", "--tasks", "{tasks}"], "the file that is read"),
        (["{file}", "--output", "{folder}/u.jsonl", "--tasks", "{tasks}"], "1 of the useful tasks are not in it"),
        (["{file}", "--output", "{folder}/u.jsonl", "--tasks", "{folder}/none.jsonl"], "none.jsonl: no such file"),
        (["{file}", "--output", "{folder}/u.jsonl", "--tasks", BUILT_IN], "2 of the useful tasks are not in it"),
        (["{folder}/nothing.jsonl"], "nothing.jsonl"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"file": rollouts(tmp_path), "tasks": tasks(tmp_path, "some"), "folder": tmp_path}
    assert main(["data", "difficulty", *(each.format(**names) for each in arguments)]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "u.jsonl").exists()


def test_it_runs_the_repeats_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.yaml").write_text(MODEL)
    rows = [{"id": name, "responses_create_params": {"input": name}, "expected_answer": name} for name in ("4", "5")]
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = difficulty(
        capsys,
        "+config_paths=[resources_servers/calculator/configs/calculator.yaml,model.yaml]",
        "+agent_name=calculator_simple_agent",
        "+input_jsonl_fpath=sums.jsonl",
        "+output_jsonl_fpath=out.jsonl",
        "+embedded=true",
    )
    assert {name: (task["class"], task["rollouts"]) for name, task in report["each"].items()} == {
        "4": ("solved", 4),
        "5": ("hopeless", 4),
    }


def test_one_rollout_per_task_is_said_to_be_too_few(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = rollouts(tmp_path)
    lines = [line for line in path.read_text().splitlines() if '/0"' in line]
    path.write_text("\n".join(lines) + "\n")
    assert main(["data", "difficulty", str(path)]) == 0
    assert "+num_repeats=4" in capsys.readouterr().out
