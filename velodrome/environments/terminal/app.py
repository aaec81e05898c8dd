"""Tasks for a model with a shell in the sandbox.

What counts are the files that a rollout leaves, looked at from outside; the checks are never in the sandbox.
"""

from __future__ import annotations

from typing import Any

from velodrome.environments.sandbox import Limits, Sandboxes
from velodrome.environments.sandbox.pool import open_with_files, texts_by_path
from velodrome.environments.terminal.cheats import commands, shell_cheats
from velodrome.environments.terminal.checks import Left, held_before, holds, read_checks
from velodrome.environments.terminal.session import Shell
from velodrome.http.limiter import Limiter
from velodrome.machine import cores
from velodrome.records.conversation import Response
from velodrome.resources_servers.environment import Environment, tool
from velodrome.settings.component import Field


class Terminal(Environment):
    """The reward is 1.0 if all checks of the task hold; or the fraction of them."""

    partial_credit: bool = Field(False, description="the reward is the fraction of checks that hold")
    command_timeout_s: float = Field(20.0, gt=0, description="one command, in CPU time; three times as long may pass")
    memory_limit_mb: int = Field(512, gt=0, description="memory of a command")
    disk_limit_mb: int = Field(64, gt=0, description="all files of a rollout")
    max_output_chars: int = Field(10_000, gt=100, description="of a longer output the model sees both ends")
    max_concurrent: int | None = Field(None, gt=0, description="commands that run at once (one per core)")
    allow_unsafe: bool = Field(False, description="run commands without a sandbox where none is possible")
    session_timeout_s: float = Field(3600.0, gt=0, description="the start of a session, with its wait for others")
    tool_timeout_s: float = Field(3600.0, gt=0, description="one tool call, with its wait for other calls to end")
    verify_timeout_s: float = Field(3600.0, gt=0, description="one `verify`, with its wait for other calls to end")

    def setup(self) -> None:
        """Create the limiter and the sandboxes; the first rollout starts the first process."""
        self._places = Limiter("sandbox", self.max_concurrent or cores(), "max_concurrent", divided=True)
        limits = Limits(
            wall_s=3 * self.command_timeout_s,
            cpu_s=self.command_timeout_s,
            memory_mb=self.memory_limit_mb,
            disk_mb=self.disk_limit_mb,
        )
        self._boxes = Sandboxes(limits=limits, allow_unsafe=self.allow_unsafe)

    async def seed_session(self, task: dict[str, Any]) -> Shell:
        """A sandbox with the task's `files`. Checks that already hold must still hold at the end, and earn nothing."""
        checks = read_checks(task)
        box = await open_with_files(self._boxes, task)
        try:
            left = Left(box, self._boxes, texts_by_path(task))
            async with self._places:
                held = await held_before(left, checks, self.partial_credit)
        except BaseException:
            await box.close()
            raise
        return Shell(box, self._places, self.max_output_chars, held)

    async def close_session(self, session: Shell) -> None:
        """End the sandbox."""
        await session.box.close()

    @tool
    async def shell(self, command: str, session: Shell) -> str:
        """Run a command in bash and return what it writes. Files, the working folder and exported variables stay.

        command: one or more lines for bash; nothing keeps running after it
        """
        return await session.run(command) or "(no output)"

    async def verify(self, task: dict[str, Any], response: Response, session: Shell) -> dict[str, Any]:
        """Run the checks on the current files."""
        left = Left(session.box, self._boxes, texts_by_path(task))
        checks = read_checks(task)
        async with self._places:
            results = [await holds(left, check) for check in checks]
        earning = [good for good, before in zip(results, session.held, strict=True) if not before]
        kept = all(good for good, before in zip(results, session.held, strict=True) if before)
        passed = sum(earning) if kept else 0
        whole = float(passed == len(earning))
        return {
            "reward": passed / len(earning) if self.partial_credit else whole,
            "accuracy": whole,
            "passed": passed,
            "total": len(earning),
            "failed_checks": [check["type"] for check, good in zip(checks, results, strict=True) if not good],
            "num_shell_calls": sum(call.name == "shell" for call in response.tool_calls),
        }

    def reference_answer(self, task: dict[str, Any]) -> Any:
        """The task's `reference_commands`."""
        lines = task.get("reference_commands")
        return None if lines is None else commands(lines)

    def wrong_answers(self, task: dict[str, Any]) -> dict[str, Any]:
        """Answers that leave the task undone, or undo it."""
        lines = task.get("reference_commands") or []
        return {
            "only_says_so": "Done.",
            "looks_and_stops": commands(["ls -la", "cat *"]),
            "in_another_folder": commands(
                ["mkdir -p elsewhere && cp -r * elsewhere/ 2>/dev/null; cd elsewhere", *lines]
            ),
            "removes_it_again": commands([*lines, "cd /tmp; cd - >/dev/null; find . -type f -delete"]),
        }

    def cheats(self, task: dict[str, Any]) -> dict[str, Any]:
        """Commands that try to pass the checks without doing the task."""
        return shell_cheats([check["path"] for check in read_checks(task) if "path" in check])

    async def aclose(self) -> None:
        """End the sandboxes too."""
        await super().aclose()
        await self._boxes.aclose()
