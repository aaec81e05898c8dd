"""python_tool: an interpreter of its own for each rollout, which keeps its variables and cannot be broken for good."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from velodrome.errors import TaskError
from velodrome.resources_servers.answer import last_words, plain_words
from velodrome.resources_servers.python_tool.app import PythonTool
from velodrome.resources_servers.python_tool.python_tool_session import read_reply
from velodrome.responses_api_agents.simple_agent.app import SimpleAgent
from velodrome.responses_api_models.scripted_model.app import ScriptedModel

Json = dict[str, Any]
Says = Callable[..., Json]
HOME = Path(__file__).parents[2] / "velodrome" / "resources_servers" / "python_tool"
TASKS = {row["id"]: row for row in map(json.loads, (HOME / "data" / "example.jsonl").read_text().splitlines())}
Use = Callable[[Callable[[str], Awaitable[str]]], Awaitable[Any]]


def session(use: Use, task: Json | None = None, **settings: Any) -> Any:
    """What `use` gives, which is given the tool of one session."""

    async def main() -> Any:
        environment = PythonTool(**settings)
        handle = await environment.open(task or {})

        async def python(code: str) -> str:
            return await environment.call(handle, "python", {"code": code})

        try:
            return await use(python)
        finally:
            await environment.close(handle)
            await environment.aclose()

    return asyncio.run(main())


def outputs(*codes: str, **settings: Any) -> list[str]:
    async def use(python: Callable[[str], Awaitable[str]]) -> list[str]:
        return [await python(code) for code in codes]

    result: list[str] = session(use, **settings)
    return result


def rewards(environment: PythonTool, answers: dict[str, Any], task: Json) -> dict[str, float]:
    """Played through the agent; `{tool_result}` in a text is what the last call gave."""

    async def main() -> dict[str, float]:
        result = {}
        for name, answer in answers.items():
            model = ScriptedModel(answers=answer if isinstance(answer, list) else [answer])
            rollout = await SimpleAgent(model=model, environment=environment).run(task)
            result[name] = rollout["reward"]
        await environment.aclose()
        return result

    return asyncio.run(main())


def test_variables_functions_and_imports_stay_and_the_last_value_is_shown() -> None:
    assert outputs(
        "import math\nx = 20\ndef f(n): return n + 1",
        "print('x is', x)\nf(x) + math.gcd(4, 6)",
        "_",
        "x = None\nx",
        "'text'",
        "for i in range(2): i",
        "",
    ) == ["(no output)", "x is 20\n23\n", "23\n", "(no output)", "'text'\n", "(no output)", "(no output)"]


def test_errors_are_short_tracebacks_of_the_code_and_the_interpreter_continues() -> None:
    error, syntax, left, deep, again = outputs(
        "x = 5\ndef f(n):\n    return n / 0\nf(1)", "x = = 1", "import sys\nsys.exit(3)", "def g(): g()\ng()", "x"
    )
    assert error.splitlines()[:3] == [
        "Traceback (most recent call last):",
        '  File "<cell>", line 4, in <module>',
        "    f(1)",
    ]
    assert error.endswith("ZeroDivisionError: division by zero\n")
    assert "interpreter" not in error
    assert "SyntaxError" in syntax
    assert left.endswith("SystemExit: 3\n")
    assert "RecursionError" in deep
    assert len(deep) < 2000
    assert again == "5\n"


def test_output_of_programs_that_it_starts_is_seen_and_there_is_nothing_to_read() -> None:
    assert outputs(
        "import os, subprocess\nos.system('echo from a shell')\nos.write(1, b'raw\\n')\nprint('printed')",
        "subprocess.run(['cat'], capture_output=True).stdout",
        "try:\n    input()\nexcept EOFError:\n    print('no input')",
    ) == ["from a shell\nraw\nprinted\n", "b''\n", "no input\n"]


def test_of_a_long_output_both_ends_are_shown() -> None:
    [text] = outputs("print('a' * 5000 + 'b' * 5000)", max_output_bytes=1000)
    assert text.startswith("a" * 500 + "\n… 9001 bytes left out …\n" + "b" * 499)


def test_code_that_takes_too_long_is_stopped_and_the_answer_says_that_variables_are_lost() -> None:
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
        ("import os\nos.kill(os.getpid(), 9)", "ended with exit code -9"),
        ("import os\nos.closerange(3, 64)", "error: "),
        ("import os\nfor n in range(3, 64):\n    try: os.write(n, b'{}\\n')\n    except OSError: pass", "was damaged"),
        (
            "import os\nfor n in range(3, 64):\n    try: os.write(n, b'[' * 99999 + b'\\n')\n    except OSError: pass",
            "was damaged",
        ),
        ("x = bytearray(1 << 34)", "MemoryError"),
    ],
)
def test_whatever_the_code_does_the_next_call_has_an_interpreter(code: str, told: str) -> None:
    broken, after = outputs(code, "1 + 1")
    assert told in broken
    assert after == "2\n"


def test_a_child_that_the_code_forks_does_not_answer_in_its_place() -> None:
    assert outputs("import os\npid = os.fork()\nprint('child' if pid == 0 else 'parent')", "1 + 1")[1] == "2\n"


def test_calls_of_one_turn_run_one_after_the_other_in_one_interpreter() -> None:
    async def use(python: Callable[[str], Awaitable[str]]) -> list[str]:
        code = "seen = globals().get('seen', [])\nseen.append(1)\nlen(seen)"
        return await asyncio.gather(*[python(code) for _ in range(5)])

    assert sorted(session(use)) == [f"{n}\n" for n in range(1, 6)]


def test_files_of_the_task_are_there() -> None:
    async def use(python: Callable[[str], Awaitable[str]]) -> str:
        return await python("import os\nopen('a/b.txt').read(), sorted(os.listdir('.'))")

    assert session(use, {"files": {"a/b.txt": "héllo"}}) == "('héllo', ['a'])\n"


def test_64_sessions_at_once_neither_mix_nor_remain() -> None:
    async def main() -> list[str]:
        environment = PythonTool()

        async def rollout(number: int) -> str:
            handle = await environment.open({"files": {"own.txt": str(number)}})
            await environment.call(handle, "python", {"code": f"x = {number}"})
            text = await environment.call(handle, "python", {"code": "x, int(open('own.txt').read())"})
            await environment.close(handle)
            return text

        texts = await asyncio.gather(*map(rollout, range(64)))
        assert environment.sessions == {}
        await environment.aclose()
        return texts

    assert asyncio.run(main()) == [f"({n}, {n})\n" for n in range(64)]


@pytest.mark.parametrize(
    ("expected", "text", "reward", "extracted"),
    [
        ("36", "Answer: 36", 1.0, "36"),
        (36, "it is 36.0", 1.0, "36.0"),
        ("36", "Answer: 36\nin 3 steps", 0.0, "3"),
        ("Tuesday", "Answer: Tuesday", 1.0, "Tuesday"),
        ("Tuesday", "so\n\n**Answer:** `tuesday`.\n", 1.0, "tuesday"),
        ("Tuesday", "The answer is Tuesday", 1.0, "Tuesday"),
        ("Tuesday", "Tuesday", 1.0, "Tuesday"),
        ("Tuesday", "Answer: Tuesday or Monday", 0.0, "Tuesday or Monday"),
        ("Tuesday", "Answer: Tuesday\nI think", 0.0, "I think"),
        ("[1, 2]", "Answer: [1,2]", 1.0, "[1,2]"),
        ("8ca386f2", "Answer: 8ca386f2", 1.0, "8ca386f2"),
        ("Tuesday", "", 0.0, None),
    ],
)
def test_the_end_of_the_answer_counts(
    says: Says, expected: Any, text: str, reward: float, extracted: str | None
) -> None:
    response = says(text, ("python", "{}", "36"))
    score = asyncio.run(PythonTool().score("1", {"expected_answer": expected}, response))
    assert score == {"reward": reward, "accuracy": reward, "extracted_answer": extracted, "num_python_calls": 1}


def test_hostile_answers_are_read_at_their_end() -> None:
    for text in ("answer" * 500_000, "(" * 2_000_000, "\ud800\x00" * 100_000, "\n" * 1_000_000, "answer:" * 300_000):
        assert len(last_words(text) or "") <= 20_000
    assert plain_words("  'A ,  b'. ") == "a,b"


@pytest.mark.parametrize("expected", [None, True, ["1"], {}])
def test_a_task_without_an_answer_is_a_bad_task(says: Says, expected: Any) -> None:
    with pytest.raises(TaskError, match="expected_answer"):
        asyncio.run(PythonTool().score("1", {"expected_answer": expected}, says("1")))


@pytest.mark.parametrize("files", [["a"], {"a": 1}, "a", {"../a": "x"}, {"/a": "x"}])
def test_files_that_are_not_texts_are_a_bad_task(files: Any) -> None:
    async def main() -> None:
        environment = PythonTool()
        try:
            await environment.open({"files": files})
        finally:
            await environment.aclose()

    with pytest.raises(TaskError, match='"files"'):
        asyncio.run(main())


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\xff\n",
        b"[" * 99_999,
        b"{}",
        b"7",
        b'{"mark": "m", "text": 7}',
        b'{"mark": "x", "text": ""}',
        b'{"mark": "m", "text": "\\ud800"}',
    ],
)
def test_what_is_not_a_reply_is_none(line: bytes) -> None:
    assert read_reply(line, "m") is None


def test_a_lost_sandbox_is_told_to_the_model() -> None:
    async def main() -> str:
        environment = PythonTool()
        state = await environment.seed_session({})
        await state.close()
        text = await state.run("1")
        await environment.aclose()
        return text

    assert asyncio.run(main()) == "error: the sandbox has ended; no more code can be run"


def test_the_reference_code_computes_the_expected_answers() -> None:
    for name, task in TASKS.items():
        answer = PythonTool().reference_answer(task)
        assert (name, rewards(PythonTool(), {"": [*answer[:-1], "Answer: {tool_result}"]}, task)) == (name, {"": 1.0})
    assert len(TASKS) >= 12


@pytest.mark.parametrize("name", ["prime_sum", "weekday"])
def test_cheats_earn_nothing(name: str) -> None:
    cheats = PythonTool().cheats(TASKS[name])
    assert rewards(PythonTool(), cheats, TASKS[name]) == dict.fromkeys(cheats, 0.0)
    wrong = PythonTool().wrong_answers(TASKS[name])
    assert rewards(PythonTool(), wrong, TASKS[name]) == dict.fromkeys(wrong, 0.0)
    assert len(cheats) >= 10


def test_the_cheats_are_real_where_the_task_is_in_the_sandbox_they_are_paid() -> None:
    class LeavesTheTaskInside(PythonTool):
        async def seed_session(self, task: Json) -> Any:
            return await super().seed_session(task | {"files": {"task.json": json.dumps(task)}})

    environment = LeavesTheTaskInside()
    cheat = environment.cheats(TASKS["prime_sum"])["read_the_answer_from_files"]
    assert rewards(environment, {"cheat": cheat}, TASKS["prime_sum"]) == {"cheat": 1.0}
