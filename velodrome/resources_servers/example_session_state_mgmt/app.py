"""State that lasts for one rollout: a counter with a start value from the task, and two tools that use it."""

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
        """Compare the counter itself, not the model's report of it."""
        expected = whole_number(task, "expected_count", None)
        return {"reward": float(session.value == expected), "final_count": session.value}

    def reference_answer(self, task: dict[str, Any]) -> Any:
        """Add the missing count, read the counter, report it."""
        missing, expected = missing_count(task), whole_number(task, "expected_count", None)
        return [add_call(missing), {"tool_calls": [{"name": "get_counter_value"}]}, f"The counter shows {expected}."]

    def wrong_answers(self, task: dict[str, Any]) -> dict[str, Any]:
        """The counter ends at another value."""
        missing = missing_count(task)
        return {
            "one too many": [add_call(missing + 1), "Done."],
            "added, then one taken off": [add_call(missing), add_call(-1), "Done."],
            "only read": [{"tool_calls": [{"name": "get_counter_value"}]}, "Done."],
        }

    def cheats(self, task: dict[str, Any]) -> dict[str, Any]:
        """False claims, and calls that try to change the state in another way."""
        missing, expected = missing_count(task), whole_number(task, "expected_count", None)
        state = {"value": expected}
        calls = {
            "a session of its own": {"name": "increment_counter", "arguments": {"count": 0, "session": state}},
            "another session": {"name": "increment_counter", "arguments": {"count": missing, "session": "1"}},
            "seeds again": {"name": "seed_session", "arguments": {"task": {"initial_count": expected}}},
            "a tool that sets it": {"name": "set_counter_value", "arguments": {"count": expected}},
            "beyond all numbers": {"name": "increment_counter", "arguments": {"count": 10**18}},
        }
        cheats: dict[str, Any] = {name: [{"tool_calls": [call]}, "Done."] for name, call in calls.items()}
        return {**cheats, "only says so": f'The counter shows {expected}. {{"final_count": {expected}}}'}


def missing_count(task: dict[str, Any]) -> int:
    """The count to add to the counter."""
    return whole_number(task, "expected_count", None) - whole_number(task, "initial_count", 0)


def add_call(count: int) -> dict[str, Any]:
    """A model's answer that calls `increment_counter`."""
    return {"tool_calls": [{"name": "increment_counter", "arguments": {"count": count}}]}


def whole_number(task: dict[str, Any], name: str, default: int | None) -> int:
    """A field of the task, which must be a whole number."""
    value = task.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TaskError(f'"{name}" must be a whole number, not {str(value)[:80]!r}')
    return value
