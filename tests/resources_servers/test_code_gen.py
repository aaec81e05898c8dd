"""code_gen: programs are read from answers, run on cases in the sandbox and compared outside; cheats earn nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from velodrome.errors import TaskError
from velodrome.resources_servers.code_gen.app import CodeGen, returned
from velodrome.resources_servers.code_gen.code_gen_cases import last_program, read_cases
from velodrome.resources_servers.code_gen.code_gen_cheats import CLAIM, fenced
from velodrome.resources_servers.code_gen.code_gen_compare import same_output, same_value
from velodrome.sandbox import Ran, Sandbox

Json = dict[str, Any]
Says = Callable[..., Json]
HOME = Path(__file__).parents[2] / "velodrome" / "resources_servers" / "code_gen"
TASKS = {row["id"]: row for row in map(json.loads, (HOME / "data" / "example.jsonl").read_text().splitlines())}
ADD = {"test_cases": {"inputs": ["1 2\n", "3 4\n", "5 6\n", "7 8\n"], "outputs": ["3\n", "7\n", "11\n", "15\n"]}}
DOUBLE = {
    "entry_point": "double",
    "test_cases": {"inputs": [[1], [2.5], ["a"], [[1]]], "outputs": [2, 5, "aa", [1, 1]]},
}


@pytest.fixture
def scored(says: Says) -> Callable[..., Any]:
    """The score of a text, or the scores of several, by one environment."""

    def score(task: Json, texts: str | dict[str, str], owner: type[CodeGen] = CodeGen, **settings: Any) -> Any:
        async def main() -> list[Json]:
            environment = owner(**settings)
            try:
                named = {"": texts} if isinstance(texts, str) else texts
                return [await environment.score("1", task, says(text)) for text in named.values()]
            finally:
                await environment.aclose()

        scores = asyncio.run(main())
        return scores[0] if isinstance(texts, str) else dict(zip(texts, scores, strict=True))

    return score


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("```python\na\n```", "a\n"),
        ("first\n```python\na\n```\nthen\n```python\nb\nc\n```\nend", "b\nc\n"),
        ("```python\na\n```\n```\nthe output\n```", "a\n"),
        ("```\na\n```", "a\n"),
        ("```py\na\n```\n```bash\nls\n```", "a\n"),
        ("1. so:\n   ```Python3\n   a\n   ```", "   a\n"),
        ("```python\na\n```\n```python\nnot closed", "a\n"),
        ("```python\r\nx = '\x0c\u2028'\r\n```\r\n", "x = '\x0c\u2028'\r\n"),
        ("```python\nnot closed", None),
        ("inline ```python a``` only", None),
        ("```rust\nfn main() {}\n```", None),
        ("no code", None),
        ("", None),
        ("```python\n" + "#" * 300_000 + "\n```", None),
    ],
)
def test_the_last_closed_block_is_the_program(text: str, program: str | None) -> None:
    assert last_program(text) == program


def test_reading_a_program_takes_one_pass_over_hostile_texts() -> None:
    for text in ("```python\n" * 400_000, "```\n" * 400_001, "`" * 4_000_000, "\n" * 4_000_000):
        assert (last_program(text) or "").strip() == ""


@pytest.mark.parametrize(
    ("printed", "expected", "same"),
    [
        ("1 2\n", "1 2", True),
        ("1 2  \n\n\n", "1 2\n", True),
        ("1 2\r\n", "1 2\n", True),
        (" 1 2", "1 2", False),
        ("1  2", "1 2", False),
        ("1\n2", "1 2", False),
        ("\n1 2", "1 2", False),
        ("", "", True),
        ("1", "", False),
        ("0.3333333", "0.333333333333", True),
        ("x  1.50", "x 1.5", True),
        ("0.334", "0.333333333333", False),
        ("1000000.5", "1000000.9", True),
        ("2", "2.0", True),
        ("2.0", "2", False),
        ("1e3", "1000.0", True),
        ("nan", "1.5", False),
        ("inf", "1e400", False),
        ("1_0.0", "10.0", False),
        ("Yes", "YES", False),
    ],
)
def test_printed_text_is_compared_as_judges_do(printed: str, expected: str, same: bool) -> None:
    assert same_output(printed, expected, 1e-6) is same


@pytest.mark.parametrize("printed", ["1" * 1_000_000 + "x", "." + "1" * 1_000_000 + "x", "1e" + "1" * 1_000_000 + "x"])
def test_a_long_line_of_digits_is_compared_in_linear_time(printed: str) -> None:
    assert not same_output(printed, "0.5", 1e-6)


def test_with_tokens_all_whitespace_is_the_same() -> None:
    assert same_output("1   2\n\n3.0000001", "1 2 3.0", 1e-6, "tokens")
    assert not same_output("1 2", "1 2 3", 1e-6, "tokens")


@pytest.mark.parametrize(
    ("answer", "expected", "same"),
    [
        (3, 3, True),
        (3.0, 3, True),
        (True, 1, False),
        (1, True, False),
        (None, None, True),
        (None, 0, False),
        ("3", 3, False),
        (0.1 + 0.2, 0.3, True),
        (0.31, 0.3, False),
        ([1, [2.0000001]], [1, [2]], True),
        ([1, 2], [2, 1], False),
        ([], None, False),
        ({"a": [1]}, {"a": [1]}, True),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        (float("nan"), float("nan"), True),
        (float("inf"), 1e308, False),
        (2**100, float(2**100), True),
        (2**100 + 2**60, float(2**100), False),
        (10**400, 1e308, False),
        (10**400, 10**400, True),
        (1_000_000.9, 1_000_000, False),
        (999_999.9999999, 1_000_000, True),
        (1.23456e15, 1_234_560_000_000_001, False),
        (1e20, 10**20, True),
        (1e20, 10**20 + 1, False),
        (float("nan"), 3, False),
    ],
)
def test_returned_values_are_compared_as_json(answer: Any, expected: Any, same: bool) -> None:
    assert same_value(answer, expected, 1e-6) is same


@pytest.mark.parametrize(
    ("task", "inputs", "outputs", "name"),
    [
        (ADD, ADD["test_cases"]["inputs"], ADD["test_cases"]["outputs"], None),
        ({"test_cases": json.dumps(ADD["test_cases"])}, ["1 2\n", "3 4\n", "5 6\n", "7 8\n"], None, None),
        ({"input_output": json.dumps({"inputs": ["1"], "outputs": ["2"]})}, ["1"], ["2"], None),
        ({"test_cases": [{"input": "1", "output": "2"}]}, ["1"], ["2"], None),
        ({"test_cases": {"input": ["1"], "output": ["2"]}}, ["1"], ["2"], None),
        ({"test_cases": {"inputs": [["1", "2"]], "outputs": [["3"]]}}, ["1\n2"], ["3"], None),
        ({"test_cases": {"fn_name": "f", "inputs": [[1]], "outputs": [[2]]}}, [[1]], [[2]], "f"),
        (
            {"verifier_metadata": {"unit_tests": {"inputs": ["1"], "outputs": ["2"], "fn_name": None}}},
            ["1"],
            ["2"],
            None,
        ),
    ],
)
def test_cases_are_read_in_the_shapes_that_data_has(task: Json, inputs: Any, outputs: Any, name: str | None) -> None:
    cases = read_cases(task)
    assert (cases.inputs, cases.entry_point) == (inputs, name)
    assert outputs is None or cases.outputs == outputs


@pytest.mark.parametrize(
    ("task", "named"),
    [
        ({}, '"test_cases"'),
        ({"test_cases": "not json"}, '"test_cases"'),
        ({"test_cases": {"inputs": [], "outputs": []}}, '"inputs"'),
        ({"test_cases": {"inputs": ["1"]}}, '"outputs"'),
        ({"test_cases": {"inputs": ["1"], "outputs": []}}, '"outputs"'),
        ({"test_cases": {"inputs": ["1", "2"], "outputs": ["1"]}}, "2 inputs for 1 outputs"),
        ({"test_cases": {"inputs": [1], "outputs": ["1"]}}, "an input is a text"),
        ({"test_cases": {"inputs": ["1", "2"], "outputs": ["", "\n"]}}, "every output is empty"),
        ({"entry_point": "f", "test_cases": {"inputs": [[1]], "outputs": [None]}}, "every output is empty"),
        ({**ADD, "entry_point": "f"}, "list of arguments"),
        ({**DOUBLE, "entry_point": "os.system('x')"}, '"entry_point"'),
        ({**ADD, "prelude": 7}, '"prelude"'),
    ],
)
def test_a_task_without_usable_cases_is_a_bad_task_and_not_a_zero(scored: Any, task: Json, named: str) -> None:
    with pytest.raises(TaskError, match=named.replace("(", r"\(")):
        scored(task, fenced("print(1)"))


def test_programs_get_the_verdicts_of_a_judge(scored: Any) -> None:
    scores = scored(
        ADD,
        {
            "right": fenced("print(sum(map(int, input().split())))"),
            "half": fenced("a, b = map(int, input().split())\nprint(a + b if a < 5 else 0)"),
            "wrong": fenced("print(0)"),
            "raises": fenced("1 / 0"),
            "syntax": fenced("print("),
            "exit code": fenced("print(sum(map(int, input().split())))\nraise SystemExit(1)"),
            "memory": fenced("x = bytearray(1 << 34)"),
            "output": fenced("while True: print('x' * 1000)"),
            "time": fenced("while True: pass"),
            "none": "no code",
            "surrogate": fenced("print('\ud800')"),
            "nul": fenced("print(\x00)"),
        },
        partial_credit=True,
        time_limit_s=1,
        total_time_limit_s=4,
    )
    assert {name: (score["reward"], score["passed"], score["verdict"]) for name, score in scores.items()} == {
        "right": (1.0, 4, "passed"),
        "half": (0.5, 2, "wrong answer"),
        "wrong": (0.0, 0, "wrong answer"),
        "raises": (0.0, 0, "runtime error"),
        "syntax": (0.0, 0, "runtime error"),
        "exit code": (0.0, 0, "runtime error"),
        "memory": (0.0, 0, "memory limit"),
        "output": (0.0, 0, "output limit"),
        "time": (0.0, 0, "time limit"),
        "none": (0.0, 0, "no program"),
        "surrogate": (0.0, 0, "wrong answer"),
        "nul": (0.0, 0, "runtime error"),
    }
    assert scores["raises"]["problem"] == "case 0: ZeroDivisionError: division by zero"
    assert {score["total"] for score in scores.values()} == {4}


def test_hostile_programs_are_scored_like_any_other(scored: Any) -> None:
    right = "print(sum(map(int, input().split())))"
    programs = {
        "nested": "x = " + "(" * 100_000 + ")" * 100_000,
        "recursion in C": "x = []\nfor _ in range(10**6): x = [x]\nrepr(x)\nprint(x == x)",
        "a long line": "x = 1" + " + 1" * 50_000,
        "bytes that are no text": "import os\nos.write(1, bytes(range(256)) * 100)",
        "closed output": "import os\nos.close(1)\nos.close(2)",
        "no input read": "print(1)",
        "killed": "import os\nos.kill(0, 9)",
    }
    texts = {name: fenced(program) for name, program in programs.items()}
    texts |= {"deletes itself": fenced(f"import os\nos.remove('solution.py')\n{right}"), "right": fenced(right)}
    scores = scored(ADD, texts, partial_credit=True)
    passed = {name: score["passed"] for name, score in scores.items()}
    assert passed == {**dict.fromkeys(programs, 0), "deletes itself": 1, "right": 4}


def test_without_partial_credit_the_first_failure_ends_it_and_nothing_is_earned(scored: Any) -> None:
    half = fenced("a, b = map(int, input().split())\nprint(a + b if a < 3 or a == 7 else 0)")
    score = scored(ADD, half)
    assert score == {
        "reward": 0.0,
        "accuracy": 0.0,
        "passed": 1,
        "total": 4,
        "verdict": "wrong answer",
        "problem": "case 1",
    }


def test_a_program_that_waits_is_stopped_and_the_cases_that_are_left_over_fail_unrun(scored: Any) -> None:
    runs: list[Any] = []

    class Counted(CodeGen):
        async def _run_case(self, *rest: Any) -> tuple[Ran, bool]:
            runs.append(rest)
            return await super()._run_case(*rest)

    limits = {"partial_credit": True, "time_limit_s": 0.2, "total_time_limit_s": 0.1}
    score = scored(ADD, fenced("import time\ntime.sleep(60)"), Counted, **limits)
    assert (score["reward"], score["verdict"], len(runs)) == (0.0, "time limit", 1)


def test_functions_are_called_and_may_print(scored: Any) -> None:
    scores = scored(
        DOUBLE,
        {
            "function": fenced(
                "print('hello')\ndef double(x):\n    print('now', end='', flush=True)\n    return x * 2"
            ),
            "Solution": fenced("class Solution:\n    def double(self, x):\n        return x + x"),
            "tuple": fenced("def double(x):\n    return tuple(x * 2) if isinstance(x, list) else x * 2"),
            "missing": fenced("def twice(x):\n    return x * 2"),
            "object": fenced("def double(x):\n    return object()"),
            "leaves": fenced("import sys\ndef double(x):\n    sys.exit(0)"),
            "print": fenced("def double(x):\n    print(x * 2)"),
        },
        partial_credit=True,
    )
    assert {name: score["passed"] for name, score in scores.items()} == {
        "function": 4,
        "Solution": 4,
        "tuple": 4,
        "missing": 0,
        "object": 0,
        "leaves": 0,
        "print": 0,
    }


def test_a_value_that_apps_wraps_in_a_list_is_accepted_bare_or_wrapped(scored: Any) -> None:
    task = {"test_cases": {"fn_name": "f", "inputs": [[1]], "outputs": [[2]]}}
    wrapped, bare = fenced("def f(x):\n    return [2]"), fenced("def f(x):\n    return 2")
    assert [scored(task, text)["reward"] for text in (wrapped, bare)] == [1.0, 1.0]
    assert scored({**task, "entry_point": "f"}, bare)["reward"] == 0.0


def test_the_prelude_comes_before_the_program(scored: Any) -> None:
    task = {**DOUBLE, "prelude": "from typing import List\n"}
    assert scored(task, fenced("def double(x: List[int]):\n    return x * 2"))["reward"] == 1.0


@pytest.mark.parametrize("line", ["", "m", 'm{"a":', "m" + "[" * 200_000, "m" + "9" * 10_000])
def test_what_is_not_a_value_is_none(line: str) -> None:
    assert returned(f"{line}\n", "m") == []


def test_the_reference_solutions_pass_all_their_cases(scored: Any) -> None:
    for name, task in TASKS.items():
        score = scored(task, fenced(task["reference_solution"]))
        assert (name, score["reward"], score["passed"]) == (name, 1.0, len(task["test_cases"]["inputs"]))
    assert len(TASKS) >= 12


@pytest.mark.parametrize("name", ["sum_of_line", "run_lengths"])
def test_cheats_earn_nothing_even_with_partial_credit_and_mistakes_not_all(scored: Any, name: str) -> None:
    cheats = CodeGen().cheats(TASKS[name])
    rewards = {cheat: score["reward"] for cheat, score in scored(TASKS[name], cheats, partial_credit=True).items()}
    assert rewards == dict.fromkeys(cheats, 0.0)
    assert len(cheats) >= 10
    wrong = scored(TASKS[name], CodeGen().wrong_answers(TASKS[name]), partial_credit=True)
    assert max(score["reward"] for score in wrong.values()) < 0.5
    assert wrong["only_the_first_case"]["passed"] == 1


class TrustsTheExitCode(CodeGen):
    async def _run_case(self, box: Sandbox, *rest: Any) -> tuple[Ran, bool]:
        ran, _ = await super()._run_case(box, *rest)
        return ran, ran.exit_code == 0


class TrustsAFile(CodeGen):
    async def _run_case(self, box: Sandbox, *rest: Any) -> tuple[Ran, bool]:
        ran, _ = await super()._run_case(box, *rest)
        return ran, await box.read("result.json") == CLAIM.encode()


class KeepsTheTestsInside(CodeGen):
    async def _judge(self, box: Sandbox, cases: Any) -> Any:
        await box.write("test_cases.json", json.dumps({"inputs": cases.inputs, "outputs": cases.outputs}))
        return await super()._judge(box, cases)


class ComparesInside(CodeGen):
    async def _run_case(self, box: Sandbox, cases: Any, given: Any, expected: Any) -> tuple[Ran, bool]:
        check = f"import solution\nprint(solution.{cases.entry_point}(*{given!r}) == {expected!r})"
        ran = await box.run(["python3", "-c", check])
        return ran, ran.stdout.endswith("True\n")


@pytest.mark.parametrize(
    ("owner", "task", "cheat"),
    [
        (TrustsTheExitCode, "sum_of_line", "exit_zero_early"),
        (TrustsAFile, "sum_of_line", "forge_the_result_file"),
        (KeepsTheTestsInside, "sum_of_line", "read_the_tests"),
        (KeepsTheTestsInside, "run_lengths", "read_the_tests"),
        (ComparesInside, "run_lengths", "return_what_equals_everything"),
    ],
)
def test_the_cheats_are_real_a_checker_with_the_fault_pays_for_them(
    scored: Any, owner: type[CodeGen], task: str, cheat: str
) -> None:
    assert scored(TASKS[task], owner().cheats(TASKS[task])[cheat], owner)["reward"] == 1.0
    assert scored(TASKS[task], owner().cheats(TASKS[task])[cheat])["reward"] == 0.0


def test_nothing_of_what_is_expected_is_in_the_sandbox(scored: Any) -> None:
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


def test_a_lost_sandbox_is_a_failed_case(scored: Any) -> None:
    class Lossy(CodeGen):
        async def _run_case(self, box: Sandbox, *rest: Any) -> tuple[Ran, bool]:
            await box.close()
            return await super()._run_case(box, *rest)

    score = scored(ADD, fenced("print(1)"), Lossy, partial_credit=True)
    assert (score["reward"], score["verdict"]) == (0.0, "sandbox lost")
