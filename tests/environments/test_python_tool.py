"""python_tool: an interpreter of its own for each rollout, which keeps its variables and cannot be broken for good."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.resources_servers.playing import Json, closing, example_tasks, opened, rewards, says, score
from velodrome.environments.python_tool.app import PythonTool
from velodrome.environments.python_tool.session import read_reply
from velodrome.resources_servers.answers import last_words, plain_words

pytestmark = pytest.mark.slow
TASKS = example_tasks("python_tool")


def outputs(*codes: str, **settings: Any) -> list[str]:
    """What the tool shows of each code in one session."""
    return opened(PythonTool(**settings), {}, *(("python", {"code": code}) for code in codes))


def test_variables_functions_and_imports_stay_and_the_last_value_is_shown():
    assert outputs(
        "import math\nx = 20\ndef f(n): return n + 1",
        "print('x is', x)\nf(x) + math.gcd(4, 6)",
        "_",
        "x = None\nx",
        "'text'",
        "for i in range(2): i",
    ) == ["(no output)", "x is 20\n23\n", "23\n", "(no output)", "'text'\n", "(no output)"]
    [text] = outputs("print('a' * 5000 + 'b' * 5000)", max_output_bytes=1000)
    assert text.startswith("a" * 500 + "\n… 9001 bytes left out …\n" + "b" * 499)


def test_errors_are_short_tracebacks_of_the_code_and_the_interpreter_continues():
    error, syntax, left, deep, again = outputs(
        "x = 5\ndef f(n):\n    return n / 0\nf(1)", "x = = 1", "import sys\nsys.exit(3)", "def g(): g()\ng()", "x"
    )
    assert error.startswith('Traceback (most recent call last):\n  File "<cell>", line 4, in <module>\n    f(1)\n')
    assert error.endswith("ZeroDivisionError: division by zero\n")
    assert "SyntaxError" in syntax
    assert left.endswith("SystemExit: 3\n")
    assert "RecursionError" in deep
    assert len(deep) < 2000
    assert again == "5\n"


def test_output_of_programs_that_it_starts_is_seen_and_there_is_nothing_to_read():
    assert outputs(
        "import os, subprocess\nos.system('echo from a shell')\nos.write(1, b'raw\\n')\nprint('printed')",
        "subprocess.run(['cat'], capture_output=True).stdout",
        "try:\n    input()\nexcept EOFError:\n    print('no input')",
    ) == ["from a shell\nraw\nprinted\n", "b''\n", "no input\n"]


def test_code_that_takes_too_long_is_stopped_and_the_answer_says_that_variables_are_lost():
    first, slow, lost, kept = outputs(
        "x = 1\nopen('kept.txt', 'w').write('kept')",
        "while True: pass",
        "x",
        "open('kept.txt').read()",
        call_timeout_s=1,
    )
    assert first == "4\n"
    assert "longer than 1 s" in slow
    assert "variables are lost" in slow
    assert "NameError" in lost
    assert kept == "'kept'\n"


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import os\nos._exit(7)", "ended with exit code 7"),
        ("import os\nfor n in range(3, 64):\n    try: os.write(n, b'{}\\n')\n    except OSError: pass", "was damaged"),
        (
            "import os\nfor n in range(3, 64):\n    try: os.write(n, b'[' * 99999 + b'\\n')\n    except OSError: pass",
            "was damaged",
        ),
        ("import os\npid = os.fork()\nprint('child' if pid == 0 else 'parent')", "parent"),
    ],
)
def test_whatever_the_code_does_the_next_call_has_an_interpreter(code: str, told: str):
    broken, after = outputs(code, "1 + 1")
    assert told in broken
    assert after == "2\n"


@pytest.mark.parametrize(
    ("expected", "text", "reward", "extracted"),
    [
        (36, "it is 36.0", 1.0, "36.0"),
        ("Tuesday", "so\n\n**Answer:** `tuesday`.\n", 1.0, "tuesday"),
        ("Tuesday", "Answer: Tuesday or Monday", 0.0, "Tuesday or Monday"),
        ("[1, 2]", "Answer: [1,2]", 1.0, "[1,2]"),
        ("Tuesday", "", 0.0, None),
    ],
)
def test_the_end_of_the_answer_counts(expected: Any, text: str, reward: float, extracted: str | None):
    response = says(text, ("python", "{}", "36"))
    result = score(PythonTool(), {"expected_answer": expected}, response)
    assert result == {"reward": reward, "accuracy": reward, "extracted_answer": extracted, "num_python_calls": 1}


def test_sessions_at_once_have_their_own_files_and_calls_of_one_turn_run_one_after_the_other():
    environment = PythonTool()

    async def rollout(number: int) -> list[str]:
        handle = await environment.open({"files": {"a/b.txt": f"é{number}"}})
        await environment.call(handle, "python", {"code": f"seen = [{number}]"})
        code = "seen.append(open('a/b.txt').read())\n[seen[0], seen[-1], len(seen)]"
        calls = [environment.call(handle, "python", {"code": code}) for _ in range(3)]
        texts = await asyncio.gather(*calls)
        await environment.close(handle)
        return sorted(texts)

    async def use() -> list[list[str]]:
        return await asyncio.gather(*map(rollout, range(4)))

    texts = closing(environment, use())
    assert texts == [[f"[{n}, 'é{n}', {count}]\n" for count in (2, 3, 4)] for n in range(4)]
    assert environment.sessions == {}


def test_hostile_answers_are_read_at_their_end():
    for text in ("answer" * 500_000, "(" * 2_000_000, "\ud800\x00" * 100_000, "\n" * 1_000_000, "answer:" * 300_000):
        assert len(last_words(text) or "") <= 20_000
    assert plain_words("  'A ,  b'. ") == "a,b"


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[" * 99_999,
        b'{"mark": "x", "text": ""}',
        b'{"mark": "m", "text": "\\ud800"}',
    ],
)
def test_what_is_not_a_reply_is_none(line: bytes):
    assert read_reply(line, "m") is None


def test_a_lost_sandbox_is_told_to_the_model():
    environment = PythonTool()

    async def use() -> str:
        state = await environment.seed_session({})
        await state.close()
        return await state.run("1")

    assert closing(environment, use()) == "error: the sandbox has ended; no more code can be run"


def test_the_cheats_are_real_where_the_task_is_in_the_sandbox_they_are_paid():
    class LeavesTheTaskInside(PythonTool):
        async def seed_session(self, task: Json) -> Any:
            return await super().seed_session(task | {"files": {"task.json": json.dumps(task)}})

    environment = LeavesTheTaskInside()
    cheat = environment.cheats(TASKS["prime_sum"])["read_the_answer_from_files"]
    assert rewards(environment, TASKS["prime_sum"], {"cheat": cheat}) == {"cheat": 1.0}
