"""What the rule on sessions finds: sessions that stay open, files, threads and processes left."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from collections.abc import Callable
from typing import Any

import pytest

import velodrome
from velodrome import Environment, tool

Json = dict[str, Any]
TASKS = [{"id": f"t{n}", "responses_create_params": {"input": "count"}, "goal": n + 1} for n in range(4)]


class Tally(Environment):
    """Each rollout counts for itself."""

    async def seed_session(self, task: Json) -> list[int]:
        return []

    async def close_session(self, session: list[int]):
        session.clear()

    @tool
    async def count(self, session: list[int]) -> int:
        """One more."""
        session.append(1)
        return len(session)

    async def verify(self, task: Json, response: Any, session: list[int]) -> Json:
        return {"reward": float(len(session) == task["goal"]), "count": len(session)}

    def reference_answer(self, task: Json) -> Any:
        return [{"tool_calls": [{"name": "count"}] * task["goal"]}, "done"]

    def clear(self):
        """End what was left."""


class StaysOpen(Tally):
    async def close(self, session: str):
        pass


class FailsToClose(Tally):
    async def close_session(self, session: list[int]):
        raise KeyError("gone")


class Shares(Tally):
    shared_state = []  # noqa: RUF012 - the fault

    async def seed_session(self, task: Json) -> list[int]:
        self.shared_state.clear()
        return self.shared_state


def leaving(leave: Callable[[], Any], clear: Callable[[Any], Any]) -> Callable[[], Tally]:
    class Leaves(Tally):
        """Each session leaves something behind."""

        def setup(self):
            self.left: list[Any] = []

        async def seed_session(self, task: Json) -> list[int]:
            self.left.append(leave())
            return []

        def clear(self):
            for each in self.left:
                clear(each)

    return Leaves


def waiting_thread() -> threading.Event:
    over = threading.Event()
    threading.Thread(target=over.wait, daemon=True).start()
    return over


def end(process: subprocess.Popen[bytes]):
    process.kill()
    process.wait()


def findings(environment: Tally) -> list[str]:
    try:
        report = asyncio.run(velodrome.examine(environment, TASKS, only=["sessions"]))
        return [finding.seen for finding in report.rules["sessions"].findings]
    finally:
        environment.clear()


def test_sessions_that_are_closed_and_forgotten_are_fine():
    assert findings(Tally()) == []


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (StaysOpen, "open sessions"),
        (FailsToClose, "opened and closed: ToolError: close_session: KeyError: 'gone'"),
        (Shares, "interleaved"),
        (leaving(lambda: os.open(os.devnull, os.O_RDONLY), os.close), "open files"),
        (leaving(waiting_thread, threading.Event.set), "threads"),
        (leaving(lambda: subprocess.Popen(["sleep", "600"]), end), "child processes"),
    ],
)
def test_what_is_mixed_up_or_left_over_is_found(make: Callable[[], Any], told: str):
    assert any(told in seen for seen in findings(make())), told
