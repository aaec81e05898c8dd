"""State that lasts for one rollout: a counter that starts where the task says and that two tools work on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from velodrome.errors import TaskError
from velodrome.records.conversation import Response
from velodrome.resources_servers.environment import Environment, tool


@dataclass(slots=True)
class Counter:
    """The state of one session."""

    value: int


class ExampleSessionStateMgmt(Environment):
    """The reward is 1.0 if the session's counter ends at `expected_count`."""

    async def seed_session(self, task: dict[str, Any]) -> Counter:
        """Start at the task's `initial_count`, or at 0."""
        return Counter(whole_number(task, "initial_count", 0))

    @tool
    async def increment_counter(self, count: int, session: Counter) -> dict[str, Any]:
        """Add to the counter.

        count: how much to add; may be negative
        """
        if abs(count) > 10**9:
            raise ValueError("count must be between -1000000000 and 1000000000")
        session.value += count
        return {"success": True}

    @tool
    async def get_counter_value(self, session: Counter) -> dict[str, Any]:
        """Read the counter."""
        return {"count": session.value}

    async def verify(self, task: dict[str, Any], response: Response, session: Counter) -> dict[str, Any]:
        """Compare the counter, not what the model says of it."""
        expected = whole_number(task, "expected_count", None)
        return {"reward": float(session.value == expected), "final_count": session.value}


def whole_number(task: dict[str, Any], name: str, default: int | None) -> int:
    """One field of the task that has to be a whole number."""
    value = task.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TaskError(f'"{name}" must be a whole number, not {str(value)[:80]!r}')
    return value
