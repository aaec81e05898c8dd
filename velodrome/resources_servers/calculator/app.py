"""Sums for a model with a calculator. Its code is `async def` because all it does is bounded: no thread is needed."""

from __future__ import annotations

from typing import Any

from velodrome.errors import TaskError
from velodrome.records.conversation import Response
from velodrome.resources_servers.answer import expected_value, last_number, same, value_of
from velodrome.resources_servers.calculator.arithmetic import evaluate
from velodrome.resources_servers.environment import Environment, tool


class Calculator(Environment):
    """The reward is 1.0 if the last number of the answer is the expected one."""

    @tool
    async def calculator(self, expression: str) -> str:
        """Evaluate an arithmetic expression.

        expression: numbers with + - * / // % ** and parentheses, functions such as sqrt and log, pi and e
        """
        return evaluate(expression)

    async def verify(self, task: dict[str, Any], response: Response) -> dict[str, Any]:
        """Compare the last number of the answer with `expected_answer`."""
        if task.get("expected_answer") is None:
            raise TaskError('no "expected_answer" in the task; a sum is checked against a number')
        expected = expected_value(task["expected_answer"])
        if expected is None:
            raise TaskError(f'"expected_answer" must be a number, not {str(task["expected_answer"])[:80]!r}')
        extracted = last_number(response.text)
        value = None if extracted is None else value_of(extracted)
        right = 1.0 if value is not None and same(value, expected) else 0.0
        return {"reward": right, "accuracy": right, "extracted_answer": extracted}
