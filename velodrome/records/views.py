"""A task and a rollout as objects: thin views of the dicts in files.

A `Task` is a dict, so it goes wherever a task goes. A `Rollout` gives names to the parts of a row; `rollout["field"]`
and `rollout.row` reach the row itself.
"""

from __future__ import annotations

from typing import Any

from velodrome.records.conversation import Response, ToolCall
from velodrome.records.rollout import response_of, task_of

Json = dict[str, Any]


class Task(dict[str, Any]):
    """One task: what the model is asked, and any fields that the verifier needs.

    `Task("What is 2 + 2?", expected_answer="4")` is the row
    `{"responses_create_params": {"input": "What is 2 + 2?"}, "expected_answer": "4"}`.
    """

    def __init__(self, input: str | list[Json], *, params: Json | None = None, **fields: Any) -> None:
        super().__init__(responses_create_params={"input": input, **(params or {})}, **fields)

    @property
    def input(self) -> Any:
        """What the model is asked: a text, or a list of messages."""
        return _part(self, "responses_create_params").get("input")

    @property
    def params(self) -> Json:
        """The whole request: input, tools, sampling."""
        return _part(self, "responses_create_params")


class Rollout:
    """One rollout: a row of a rollouts file."""

    __slots__ = ("row",)

    def __init__(self, row: Json) -> None:
        self.row = row

    @property
    def key(self) -> str:
        """`<task id>/<repeat>`; empty if the row has none."""
        return str(_part(self.row, "meta").get("key") or "")

    @property
    def reward(self) -> float | None:
        """The reward; None if it is deferred."""
        reward = self.row.get("reward")
        return reward if isinstance(reward, int | float) else None

    @property
    def text(self) -> str:
        """The final answer."""
        return str(_part(self.row, "response").get("content") or "")

    @property
    def messages(self) -> list[Json]:
        """Everything that was said and done after the prompt, tool results included."""
        messages = self.row.get("output")
        return messages if isinstance(messages, list) else []

    @property
    def usage(self) -> Json:
        """Tokens, summed over the model calls."""
        return _part(self.row, "usage")

    @property
    def timing(self) -> Json:
        """Where the time of this rollout went."""
        return _part(_part(self.row, "meta"), "timing")

    @property
    def task(self) -> Task:
        """The task it was made from."""
        task = Task("")
        task.clear()
        task.update(task_of({"meta": {}, **self.row}))
        return task

    @property
    def response(self) -> Response:
        """The response as the verifier saw it."""
        return Response(response_of({"response": {}, "output": [], **self.row}))

    @property
    def tool_calls(self) -> list[ToolCall]:
        """Every tool call in order, with its result."""
        return self.response.tool_calls

    def __getitem__(self, name: str) -> Any:
        return self.row[name]

    def __contains__(self, name: object) -> bool:
        return name in self.row

    def get(self, name: str, default: Any = None) -> Any:
        """A field of the row, or the default."""
        return self.row.get(name, default)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rollout) and self.row == other.row

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Rollout(key={self.key!r}, reward={self.reward!r}, text={self.text[:60]!r})"


def _part(row: Any, name: str) -> Json:
    part = row.get(name)
    return part if isinstance(part, dict) else {}
