"""Programs from a model, run on test cases in the sandbox.

The rule: only inputs go into the sandbox, and bounded text comes out. The expected outputs and the comparison stay
outside, so a program can only pass by printing or returning the right values.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from velodrome.environments.code_gen.cases import (
    CaseSet,
    Whitespace,
    last_program,
    read_cases,
    same_output,
    same_value,
)
from velodrome.environments.code_gen.cheats import code_cheats, wrong_programs
from velodrome.environments.sandbox import Limits, Ran, Sandbox, SandboxEnded, Sandboxes
from velodrome.errors import TaskError
from velodrome.http.limiter import Limiter
from velodrome.machine import cores
from velodrome.records.conversation import Response
from velodrome.resources_servers.environment import Environment
from velodrome.settings.component import Field

HARNESS = Path(__file__).with_name("harness.py").read_text(encoding="utf-8")
_STOPS = {"time": "time limit", "cpu": "time limit", "memory": "memory limit", "ended": "sandbox lost"}
_WALL = 3  # a waiting program or a busy machine may take this many times its CPU time


@dataclass
class Judged:
    """The results of the cases so far."""

    passed: int = 0
    verdict: str = "passed"
    problem: str = ""
    spent_s: float = 0.0


class CodeGen(Environment):
    """The reward is 1.0 if the last ```python block of the answer passes all cases; or the fraction it passes."""

    partial_credit: bool = Field(False, description="the reward is the fraction of cases passed; all of them are run")
    time_limit_s: float = Field(10.0, gt=0, description="CPU time of one case; three times as long may pass")
    total_time_limit_s: float = Field(60.0, gt=0, description="all cases of a task; those left over count as failed")
    memory_limit_mb: int = Field(512, gt=0, description="memory of a program")
    tolerance: float = Field(1e-6, ge=0, description="of numbers with a decimal point, absolute or relative")
    whitespace: Whitespace = Field(
        "lines",
        description="`lines`: spaces at the end of lines are ignored; `tokens`: all spaces and line breaks",
    )
    max_concurrent: int | None = Field(None, gt=0, description="programs that run at once (one per core)")
    allow_unsafe: bool = Field(False, description="run programs without a sandbox where none is possible")
    verify_timeout_s: float = Field(3600.0, gt=0, description="one `verify`, with its wait for other programs to end")

    def setup(self) -> None:
        """Create the limiter and the sandboxes; the first program starts the first process."""
        self._places = Limiter("sandbox", self.max_concurrent or cores(), "max_concurrent", divided=True)
        self._boxes = Sandboxes(
            limits=Limits(
                wall_s=_WALL * self.time_limit_s, cpu_s=self.time_limit_s, memory_mb=self.memory_limit_mb, processes=32
            ),
            allow_unsafe=self.allow_unsafe,
        )

    async def seed_session(self, task: dict[str, Any]) -> None:
        """Check that there is a sandbox, before the first model call."""
        await self._boxes.check()

    async def verify(self, task: dict[str, Any], response: Response) -> dict[str, Any]:
        """Run the program on the cases, up to the first that fails unless there is partial credit."""
        cases = read_cases(task)
        total = len(cases.inputs)
        program = last_program(response.text)
        if program is None:
            return {"reward": 0.0, "accuracy": 0.0, "passed": 0, "total": total, "verdict": "no program"}
        prelude = task.get("prelude") or ""
        if not isinstance(prelude, str):
            raise TaskError('"prelude" must be a text: code that is put before the program')
        files = {"solution.py": (prelude + program).encode("utf-8", "replace")}
        if cases.entry_point is not None:
            files["harness.py"] = HARNESS.encode()
        async with self._places:
            box = await self._boxes.open(files=files)
            try:
                judged = await self._judge(box, cases)
            finally:
                await box.close()
        all_passed = float(judged.passed == total)
        return {
            "reward": judged.passed / total if self.partial_credit else all_passed,
            "accuracy": all_passed,
            "passed": judged.passed,
            "total": total,
            "verdict": judged.verdict,
            **({"problem": judged.problem} if judged.problem else {}),
        }

    async def _judge(self, box: Sandbox, cases: CaseSet) -> Judged:
        judged = Judged()
        for index, (arguments, expected) in enumerate(zip(cases.inputs, cases.outputs, strict=True)):
            verdict, problem = "time limit", "no time was left for the case"
            if judged.spent_s < self.total_time_limit_s:
                ran, right = await self._run_case(box, cases, arguments, expected)
                verdict, problem = verdict_of(ran, right)
                judged.spent_s += max(ran.cpu_s, ran.wall_s / _WALL)
            if verdict == "passed":
                judged.passed += 1
            elif judged.verdict == "passed":
                judged.verdict, judged.problem = verdict, f"case {index}: {problem}" if problem else f"case {index}"
            if verdict != "passed" and not self.partial_credit:
                break
        return judged

    async def _run_case(self, box: Sandbox, cases: CaseSet, arguments: Any, expected: Any) -> tuple[Ran, bool]:
        """Run one case in a separate process; also whether its result is the expected one."""
        mark = secrets.token_hex(16)
        argv, stdin = ["python3", "solution.py"], arguments
        if cases.entry_point is not None:
            argv[1] = "harness.py"
            stdin = json.dumps({"mark": mark, "entry_point": cases.entry_point, "arguments": arguments})
        try:
            ran = await box.run(argv, stdin=stdin)
        except SandboxEnded as error:  # an earlier case ended the sandbox
            return error.ran, False
        if cases.entry_point is None:
            return ran, same_output(ran.stdout, expected, self.tolerance, self.whitespace)
        values = returned(ran.stdout, mark)
        return ran, any(
            same_value(value, each, self.tolerance) for value in values for each in cases.accepted(expected)
        )

    def reference_answer(self, task: dict[str, Any]) -> str | None:
        """The task's `reference_solution`."""
        solution = task.get("reference_solution")
        return None if solution is None else f"```python\n{solution}```"

    def wrong_answers(self, task: dict[str, Any]) -> dict[str, Any]:
        """Programs that fail at least one case."""
        return wrong_programs(read_cases(task), self.reference_answer(task))

    def cheats(self, task: dict[str, Any]) -> dict[str, Any]:
        """Programs that try to pass without solving the task."""
        return code_cheats(read_cases(task))

    async def aclose(self) -> None:
        """End the sandboxes too."""
        await self._boxes.aclose()
        await super().aclose()


def returned(stdout: str, mark: str) -> list[Any]:
    """The value in the last marked line, as a list of one; an empty list if there is none."""
    marked = [line for line in stdout.splitlines() if line.startswith(mark)]
    try:
        return [json.loads(marked[-1].removeprefix(mark))] if marked else []
    except (ValueError, RecursionError):
        return []


def verdict_of(ran: Ran, right: bool) -> tuple[str, str]:
    """The verdict on one case, and the last line of stderr if the program failed."""
    if ran.stopped:
        return _STOPS.get(ran.stopped, f"{ran.stopped} limit"), ""
    if ran.exit_code != 0:
        words = ran.stderr[-2000:].split("\n")
        return "runtime error", next((line.strip()[:200] for line in reversed(words) if line.strip()), "")
    return ("passed", "") if right else ("wrong answer", "")
