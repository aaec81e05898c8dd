"""The job as a taskset of verifiers: a tool server that all rollouts share, and a task with one reward."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import verifiers.v1 as vf
from calculator_job import calculate, read_questions

__all__ = ["CalculatorTaskset"]


class CalculatorToolset(vf.Toolset[vf.SharedToolsetConfig]):
    """One tool."""

    TOOL_PREFIX = None

    @vf.tool
    async def calculator(self, expression: str) -> str:
        """Evaluate an arithmetic expression."""
        return calculate(expression)


class CalculatorData(vf.TaskData):
    """A question and its answer."""

    answer: str


class CalculatorTask(vf.Task[CalculatorData]):
    """One reward."""

    @vf.reward(weight=1.0)
    async def right(self, trace: vf.Trace) -> float:
        """1 if the last message ends with the answer."""
        return float(trace.last_reply.endswith(f" {self.data.answer}"))


class CalculatorConfig(vf.TasksetConfig):
    """Where the questions are."""

    input: Path = Path()
    count: int = 0
    tools: vf.SharedToolsetConfig = vf.SharedToolsetConfig()


class CalculatorTaskset(vf.Taskset[CalculatorTask, CalculatorConfig]):
    """The questions of a file."""

    def load(self) -> Iterator[CalculatorTask]:
        """Every question as a task."""
        for each in read_questions(self.config.input, self.config.count):
            data = CalculatorData(prompt=each.user, system_prompt=each.system, answer=each.answer)
            yield CalculatorTask(data, self.config.task)

    @classmethod
    def toolsets(cls, config: CalculatorConfig) -> list[vf.Toolset]:
        """The tool server."""
        return [CalculatorToolset(config.tools)]


if __name__ == "__main__":
    CalculatorToolset.run()
