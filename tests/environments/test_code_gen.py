"""code_gen: programs are read from answers, run on cases in the sandbox and compared outside; cheats earn nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.resources_servers.playing import Json, closing, example_tasks, says
from velodrome.environments.code_gen.app import CodeGen, returned
from velodrome.environments.code_gen.cases import last_program, read_cases, same_output, same_value
from velodrome.environments.code_gen.cheats import fenced
from velodrome.environments.sandbox import Ran, Sandbox

TASKS = example_tasks("code_gen")
ADD = {"test_cases": {"inputs": ["1 2\n", "3 4\n", "5 6\n", "7 8\n"], "outputs": ["3\n", "7\n", "11\n", "15\n"]}}
DOUBLE = {
    "entry_point": "double",
    "test_cases": {"inputs": [[1], [2.5], ["a"], [[1]]], "outputs": [2, 5, "aa", [1, 1]]},
}


def scored(task: Json, texts: Any, owner: type[CodeGen] = CodeGen, **settings: Any) -> Any:
    """The score of a text, or the scores of several by name, by one environment."""
    environment = owner(**settings)
    named = {"": texts} if isinstance(texts, str) else texts

    async def use() -> dict[str, Json]:
        return {name: await environment.score("1", task, says(text)) for name, text in named.items()}

    scores = closing(environment, use())
    return scores[""] if isinstance(texts, str) else scores


def test_the_last_closed_block_is_the_program():
    programs = {
        "first\n```python\na\n```\nthen\n```python\nb\nc\n```\nend": "b\nc\n",
        "```python\na\n```\n```\nthe output\n```": "a\n",
        "```py\na\n```\n```bash\nls\n```": "a\n",
        "1. so:\n   ```Python3\n   a\n   ```": "   a\n",
        "```python\r\nx = '\x0c\u2028'\r\n```\r\n": "x = '\x0c\u2028'\r\n",
        "```python\nnot closed": None,
        "inline ```python a``` only": None,
        "```python\n" + "#" * 300_000 + "\n```": None,
    }
    assert {text: last_program(text) for text in programs} == programs


def test_programs_are_read_and_numbers_compared_in_one_pass_over_hostile_texts():
    for text in ("```python\n" * 40_000, "```\n" * 40_001, "`" * 400_000, "\n" * 400_000):
        assert (last_program(text) or "").strip() == ""
    for start in ("", ".", "1e"):
        assert not same_output(start + "1" * 100_000 + "x", "0.5", 1e-6)


def test_printed_text_is_compared_as_judges_do():
    cases = [
        ("1 2  \n\n\n", "1 2\n", True),
        ("1 2\r\n", "1 2\n", True),
        ("1  2", "1 2", False),
        ("\n1 2", "1 2", False),
        ("0.3333333", "0.333333333333", True),
        ("1000000.5", "1000000.9", True),
        ("2", "2.0", True),
        ("2.0", "2", False),
        ("inf", "1e400", False),
    ]
    results = [(printed, expected, same_output(printed, expected, 1e-6)) for printed, expected, _ in cases]
    assert results == cases


def test_with_tokens_all_whitespace_is_the_same():
    same = [same_output("1   2\n\n3.0000001", expected, 1e-6, "tokens") for expected in ("1 2 3.0", "1 2")]
    assert same == [True, False]


@pytest.mark.parametrize(
    ("answer", "expected", "same"),
    [
        (True, 1, False),
        (0.1 + 0.2, 0.3, True),
        ([1, 2], [2, 1], False),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        (float("nan"), float("nan"), True),
        (float("inf"), 1e308, False),
        (2**100, float(2**100), True),
        (2**100 + 2**60, float(2**100), False),
        (10**400, 1e308, False),
        (999_999.9999999, 1_000_000, True),
        (1e20, 10**20 + 1, False),
    ],
)
def test_returned_values_are_compared_as_json(answer: Any, expected: Any, same: bool):
    assert same_value(answer, expected, 1e-6) is same


ONE = {"inputs": ["1"], "outputs": ["2"]}


@pytest.mark.parametrize(
    ("task", "inputs", "outputs", "name"),
    [
        (ADD, ["1 2\n", "3 4\n", "5 6\n", "7 8\n"], ["3\n", "7\n", "11\n", "15\n"], None),
        ({"test_cases": json.dumps(ONE)}, ["1"], ["2"], None),
        ({"test_cases": [{"input": "1", "output": "2"}]}, ["1"], ["2"], None),
        ({"test_cases": {"inputs": [["1", "2"]], "outputs": [["3"]]}}, ["1\n2"], ["3"], None),
        ({"test_cases": {"fn_name": "f", "inputs": [[1]], "outputs": [[2]]}}, [[1]], [[2]], "f"),
        ({"verifier_metadata": {"unit_tests": {**ONE, "fn_name": None}}}, ["1"], ["2"], None),
    ],
)
def test_cases_are_read_in_the_shapes_that_data_has(task: Json, inputs: Any, outputs: Any, name: str | None):
    cases = read_cases(task)
    assert (cases.inputs, cases.outputs, cases.entry_point) == (inputs, outputs, name)


@pytest.mark.slow
def test_programs_get_the_verdicts_of_a_judge():
    right = "print(sum(map(int, input().split())))"
    programs = {
        right: (1.0, 4, "passed"),
        "a, b = map(int, input().split())\nprint(a + b if a < 5 else 0)": (0.5, 2, "wrong answer"),
        "1 / 0": (0.0, 0, "runtime error"),
        "print(": (0.0, 0, "runtime error"),
        f"{right}\nraise SystemExit(1)": (0.0, 0, "runtime error"),
        "x = bytearray(1 << 34)": (0.0, 0, "memory limit"),
        "while True: print('x' * 1000)": (0.0, 0, "output limit"),
        "while True: pass": (0.0, 0, "time limit"),
        "print('\ud800')": (0.0, 0, "wrong answer"),
        "print(\x00)": (0.0, 0, "runtime error"),
    }
    texts = {program: fenced(program) for program in programs} | {"none": "no code"}
    scores = scored(ADD, texts, partial_credit=True, time_limit_s=1, total_time_limit_s=4)
    verdicts = {name: (score["reward"], score["passed"], score["verdict"]) for name, score in scores.items()}
    assert verdicts == {**programs, "none": (0.0, 0, "no program")}
    assert scores["1 / 0"]["problem"] == "case 0: ZeroDivisionError: division by zero"
    first = {"reward": 0.0, "accuracy": 0.0, "passed": 1, "total": 4, "verdict": "wrong answer", "problem": "case 1"}
    half = fenced("a, b = map(int, input().split())\nprint(a + b if a < 3 or a == 7 else 0)")
    assert scored(ADD, half) == first  # without partial credit


@pytest.mark.slow
def test_functions_are_called_and_may_print():
    functions = {
        "print('hello')\ndef double(x):\n    print('now', end='', flush=True)\n    return x * 2": 4,
        "class Solution:\n    def double(self, x):\n        return x + x": 4,
        "def double(x):\n    return tuple(x * 2) if isinstance(x, list) else x * 2": 4,
        "def double(x: List[int]):\n    return x * 2": 4,  # of the prelude
        "def double(x):\n    return object()": 0,
        "import sys\ndef double(x):\n    sys.exit(0)": 0,
        "def double(x):\n    print(x * 2)": 0,
    }
    task = {**DOUBLE, "prelude": "from typing import List\n"}
    scores = scored(task, {code: fenced(code) for code in functions}, partial_credit=True)
    assert {code: score["passed"] for code, score in scores.items()} == functions
    wraps = {"test_cases": {"fn_name": "f", "inputs": [[1]], "outputs": [[2]]}}  # in a list, as APPS does
    texts = {"wrapped": fenced("def f(x):\n    return [2]"), "bare": fenced("def f(x):\n    return 2")}
    assert [score["reward"] for score in scored(wraps, texts).values()] == [1.0, 1.0]
    assert scored({**wraps, "entry_point": "f"}, texts["bare"])["reward"] == 0.0


@pytest.mark.slow
def test_a_program_that_waits_is_stopped_and_the_cases_that_are_left_over_fail_unrun():
    runs: list[Any] = []

    class Counted(CodeGen):
        async def _run_case(self, *rest: Any) -> tuple[Ran, bool]:
            runs.append(rest)
            return await super()._run_case(*rest)

    score = scored(ADD, fenced("import time\ntime.sleep(60)"), Counted, time_limit_s=0.2, total_time_limit_s=0.1)
    assert (score["reward"], score["verdict"], len(runs)) == (0.0, "time limit", 1)


def test_what_is_not_a_value_is_none():
    lines = ["", "m", 'm{"a":', "m" + "[" * 200_000, "m" + "9" * 10_000]
    assert [returned(f"{line}\n", "m") for line in lines] == [[]] * len(lines)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sum_of_line", "run_lengths"])
def test_cheats_earn_nothing_even_with_partial_credit_and_mistakes_not_all(name: str):
    cheats = CodeGen().cheats(TASKS[name])
    assert scored(TASKS[name], fenced(TASKS[name]["reference_solution"]))["reward"] == 1.0
    rewards = {cheat: score["reward"] for cheat, score in scored(TASKS[name], cheats, partial_credit=True).items()}
    assert rewards == dict.fromkeys(cheats, 0.0)
    assert len(cheats) >= 7
    wrong = scored(TASKS[name], CodeGen().wrong_answers(TASKS[name]), partial_credit=True)
    assert max(score["reward"] for score in wrong.values()) < 0.5
    assert wrong["only_the_first_case"]["passed"] == 1


@pytest.mark.slow
def test_nothing_of_what_is_expected_is_in_the_sandbox():
    seen: list[bytes] = []

    class Watched(CodeGen):
        async def _run_case(self, box: Sandbox, *rest: Any) -> tuple[Ran, bool]:
            ran, right = await super()._run_case(box, *rest)
            seen.extend([await box.read(name) or b"" for name in await box.files()])
            return ran, right

    task = {"entry_point": "f", "test_cases": {"inputs": [["in"]], "outputs": ["it is expected"]}}
    assert scored(task, fenced("def f(x):\n    return x"), Watched)["reward"] == 0.0
    assert seen
    assert not any(b"it is expected" in data for data in seen)
