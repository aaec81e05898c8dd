"""Questions that need computing, for a model with a Python interpreter.

Each rollout has an interpreter in a separate sandbox, without the expected answer. Only the final answer counts.
"""

from __future__ import annotations

from typing import Any

from velodrome.environments.python_tool.cheats import calls, python_cheats
from velodrome.environments.python_tool.session import Interpreter
from velodrome.environments.sandbox import Limits, Sandboxes
from velodrome.environments.sandbox.pool import open_with_files
from velodrome.errors import TaskError
from velodrome.http.limiter import Limiter
from velodrome.machine import cores
from velodrome.records.conversation import Response
from velodrome.resources_servers.answers import ends_with
from velodrome.resources_servers.environment import Environment, tool
from velodrome.settings.component import Field


class PythonTool(Environment):
    """The reward is 1.0 if the answer ends with the expected number, or its last line with the expected text."""

    call_timeout_s: float = Field(20.0, gt=0, description="one call; then the interpreter is started again")
    cpu_limit_s: float = Field(300.0, gt=0, description="CPU time of all calls of a rollout")
    memory_limit_mb: int = Field(512, gt=0, description="memory of the interpreter")
    max_output_bytes: int = Field(10_000, gt=100, description="of a longer output the model sees both ends")
    max_concurrent: int | None = Field(None, gt=0, description="calls that run at once (one per core)")
    allow_unsafe: bool = Field(False, description="run code without a sandbox where none is possible")
    tool_timeout_s: float = Field(3600.0, gt=0, description="one tool call, with its wait for other calls to end")

    def setup(self) -> None:
        """Create the limiter and the sandboxes; the first rollout starts the first process."""
        self._places = Limiter("sandbox", self.max_concurrent or cores(), "max_concurrent", divided=True)
        limits = Limits(wall_s=self.call_timeout_s, cpu_s=self.cpu_limit_s, memory_mb=self.memory_limit_mb)
        self._boxes = Sandboxes(limits=limits, allow_unsafe=self.allow_unsafe)

    async def seed_session(self, task: dict[str, Any]) -> Interpreter:
        """A sandbox with the task's `files`; the interpreter starts with the first call."""
        box = await open_with_files(self._boxes, task)
        return Interpreter(box, self._places, self.call_timeout_s, self.max_output_bytes)

    async def close_session(self, session: Interpreter) -> None:
        """End everything that the rollout has started."""
        await session.close()

    @tool
    async def python(self, code: str, session: Interpreter) -> str:
        """Run Python code and return what it prints, and the value of its last expression. Variables stay.

        code: one or more lines of Python 3
        """
        return await session.run(code) or "(no output)"

    async def verify(self, task: dict[str, Any], response: Response) -> dict[str, Any]:
        """Compare the end of the answer with `expected_answer`."""
        expected = task.get("expected_answer")
        if expected is None or isinstance(expected, bool) or not isinstance(expected, int | float | str):
            raise TaskError('no "expected_answer" in the task: a number or a text')
        right, extracted = ends_with(response.text, expected)
        score = {"reward": float(right), "accuracy": float(right), "extracted_answer": extracted}
        return score | {"num_python_calls": sum(call.name == "python" for call in response.tool_calls)}

    def reference_answer(self, task: dict[str, Any]) -> Any:
        """The task's `reference_code`, then the answer."""
        code = task.get("reference_code")
        return None if code is None else calls([code], f"Answer: {task['expected_answer']}")

    def wrong_answers(self, task: dict[str, Any]) -> dict[str, Any]:
        """Answers without the expected end."""
        expected = task["expected_answer"]
        return {
            "another_number_comes_last": f"Answer: {expected}\nChecked 987654321 times.",
            "does_not_say_it": calls([task.get("reference_code", "1")], "It is printed above."),
            "one_digit_too_many": f"Answer: 7{expected}",
            "gives_up": "I cannot compute this.",
        }

    def cheats(self, task: dict[str, Any]) -> dict[str, Any]:
        """Code that searches for the answer, or tries to change the scoring."""
        return python_cheats()

    async def aclose(self) -> None:
        """End the sandboxes too."""
        await super().aclose()
        await self._boxes.aclose()
