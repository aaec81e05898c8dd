"""What the rule on sessions finds: sessions that stay open, states that are kept, files, threads and processes left."""

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

    async def close_session(self, session: list[int]) -> None:
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


class StaysOpen(Tally):
    async def close(self, session: str) -> None:
        pass


class KeepsStates(Tally):
    def setup(self) -> None:
        self._all: list[Any] = []

    async def seed_session(self, task: Json) -> list[int]:
        self._all.append([])
        return self._all[-1]


class FailsToClose(Tally):
    async def close_session(self, session: list[int]) -> None:
        raise KeyError("gone")


class Shares(Tally):
    shared_state = []  # noqa: RUF012 - the fault

    async def seed_session(self, task: Json) -> list[int]:
        self.shared_state.clear()
        return self.shared_state


class LeavesFiles(Tally):
    def setup(self) -> None:
        self.left: list[int] = []

    async def seed_session(self, task: Json) -> list[int]:
        self.left.append(os.open(os.devnull, os.O_RDONLY))
        return []

    def clear(self) -> None:
        for each in self.left:
            os.close(each)


class LeavesThreads(Tally):
    def setup(self) -> None:
        self.over = threading.Event()

    async def seed_session(self, task: Json) -> list[int]:
        threading.Thread(target=self.over.wait, daemon=True).start()
        return []

    def clear(self) -> None:
        self.over.set()


class LeavesProcesses(Tally):
    def setup(self) -> None:
        self.left: list[subprocess.Popen[bytes]] = []

    async def seed_session(self, task: Json) -> list[int]:
        command = ["sleep", "600"]
        self.left.append(subprocess.Popen(command))  # noqa: ASYNC220 - as careless as it is meant to be
        return []

    def clear(self) -> None:
        for each in self.left:
            each.kill()
            each.wait()


def findings(environment: Any) -> list[str]:
    try:
        report = asyncio.run(velodrome.examine(environment, TASKS, only=["sessions"]))
        return [finding.seen for finding in report.rules["sessions"].findings]
    finally:
        getattr(environment, "clear", lambda: None)()


def test_sessions_that_are_closed_and_forgotten_are_fine():
    assert findings(Tally()) == []


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (StaysOpen, "open sessions"),
        (KeepsStates, "closed sessions are still held"),
        (FailsToClose, "opened and closed: ToolError: close_session: KeyError: 'gone'"),
        (Shares, "interleaved"),
        (LeavesFiles, "open files"),
        (LeavesThreads, "threads"),
        (LeavesProcesses, "child processes"),
    ],
)
def test_what_is_mixed_up_or_left_over_is_found(make: Callable[[], Any], told: str):
    assert any(told in seen for seen in findings(make())), told
