"""Data sets of programs in the shapes of APPS, HumanEval and MBPP become tasks of code_gen, as docs/data.md says."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.resources_servers.playing import ROOT, Json, score
from velodrome.cli.main import main as velo
from velodrome.environments.code_gen.app import CodeGen

pytestmark = pytest.mark.slow  # programs run in a sandbox

SCRIPT = ROOT / "examples" / "humaneval_tasks.py"
APPS = {
    "problem_id": 7,
    "question": "Print twice the number that you read.",
    "input_output": json.dumps({"inputs": ["2\n", "5\n"], "outputs": ["4\n", "10\n"]}),
    "difficulty": "introductory",
}
APPS_FUNCTION = APPS | {
    "problem_id": 8,
    "input_output": json.dumps({"fn_name": "twice", "inputs": [[2], [5]], "outputs": [[4], [10]]}),
}
HUMANEVAL = {
    "task_id": "Ours/0",
    "prompt": 'from typing import List\n\n\ndef halves(values: List[int]) -> List[float]:\n    """Half of each."""\n',
    "entry_point": "halves",
    "test": "def check(candidate):\n    assert candidate([2, 3]) == [1, 1.5], 'some'\n    assert candidate([]) == []\n"
    "    assert not candidate([])\n    assert candidate([x for x in range(3)]) == [0, 0.5, 1]\n"
    "    assert candidate((1, 2)) == [0.5, 1]\n    assert len(candidate([1])) == 1\n",
}
NEAR = {
    "task_id": "Ours/1",
    "prompt": "def part(x: float) -> float:\n",
    "entry_point": "part",
    "test": "def check(candidate):\n    assert abs(candidate(3.5) - 0.5) < 1e-6\n    assert candidate(2.0) == 0.0\n",
}
UNUSABLE = NEAR | {
    "task_id": "Ours/2",
    "test": "def check(candidate):\n    for n in range(3):\n        assert candidate(n) == n\n",
}
MBPP = {
    "task_id": 3,
    "text": "Write a function that swaps a pair.",
    "test_list": ["assert swap(1, 2) == (2, 1)", "assert swap('a', None) == (None, 'a')"],
}


def write(path: Path, *rows: Json) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rewards(tasks: Path, programs: list[str]) -> list[float]:
    rows = map(json.loads, tasks.read_text().splitlines())
    texts = [f"```python\n{program}\n```" for program in programs]
    return [score(CodeGen(), row, text)["reward"] for row, text in zip(rows, texts, strict=True)]


def test_the_command_of_the_docs_turns_apps_into_tasks(tmp_path: Path):
    page = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    words = shlex.split(next(iter(re.findall(r"^velo (data prepare apps\.jsonl.*)$", page, re.MULTILINE))))
    source, tasks = write(tmp_path / "apps.jsonl", APPS, APPS_FUNCTION), tmp_path / "tasks.jsonl"
    assert velo([{"apps.jsonl": str(source), "tasks.jsonl": str(tasks)}.get(word, word) for word in words]) == 0
    right = ["print(2 * int(input()))", "def twice(x):\n    return 2 * x"]
    assert rewards(tasks, right) == [1.0, 1.0]
    assert rewards(tasks, ["print(4)", "def twice(x):\n    return 4"]) == [0.0, 0.0]


def test_the_script_of_the_docs_turns_asserts_into_cases(tmp_path: Path):
    source, tasks = write(tmp_path / "h.jsonl", HUMANEVAL, NEAR, UNUSABLE, MBPP), tmp_path / "tasks.jsonl"
    made = subprocess.run([sys.executable, SCRIPT, source, tasks], capture_output=True, text=True, check=True)
    assert made.stdout == "3 tasks of 4 rows; 5 asserts were left out\n"
    rows = [json.loads(line) for line in tasks.read_text().splitlines()]
    assert [row["test_cases"] for row in rows] == [
        {"inputs": [[[2, 3]], [[]]], "outputs": [[1, 1.5], []]},
        {"inputs": [[3.5], [2.0]], "outputs": [0.5, 0.0]},
        {"inputs": [[1, 2], ["a", None]], "outputs": [[2, 1], [None, "a"]]},
    ]
    right = [
        "def halves(values: List[int]) -> List[float]:\n    return [each / 2 for each in values]",
        "def part(x):\n    return x % 1",
        "def swap(a, b):\n    return b, a",
    ]
    assert rewards(tasks, right) == [1.0, 1.0, 1.0]
