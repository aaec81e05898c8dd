"""The shell of one rollout: each command is a separate process, and ends with everything it started.

The working folder and the exported variables go from one command to the next. The shell writes them after its output,
behind a mark; they are used nowhere but in the same sandbox, so a command that forges them fools itself only.
"""

from __future__ import annotations

import asyncio
import secrets

from velodrome.environments.sandbox import Ran, Sandbox, SandboxEnded
from velodrome.http.limiter import Limiter

MAX_STATE = 1 << 16
SCRIPT = """exec 2>&1
eval "$2"
cd -- "$1" 2>/dev/null
trap 'code=$?; printf "\\nMARK\\n"; pwd; export -p; exit $code' EXIT
eval "$3"
"""


class Shell:
    """One command at a time; `places` are shared with other rollouts while a command runs."""

    def __init__(self, box: Sandbox, places: Limiter, most: int, held: list[bool]) -> None:
        self.box = box
        self.held = held  # the checks that held at the beginning
        self._places = places
        self._most = most
        self._folder, self._exports = ".", ""
        self._one_at_a_time = asyncio.Lock()

    async def run(self, command: str) -> str:
        """Run a command; returns its output, and how it ended if it failed."""
        mark = secrets.token_hex(16)
        argv = ["bash", "-c", SCRIPT.replace("MARK", mark), "bash", self._folder, self._exports, command]
        async with self._one_at_a_time, self._places:
            try:
                ran = await self.box.run(argv)
            except SandboxEnded:
                return "error: the sandbox has ended; no more commands can be run"
        output, found, state = ran.stdout.rpartition(f"\n{mark}\n")
        if not found:
            output = ran.stdout
        elif len(state) < MAX_STATE:
            self._folder, _, self._exports = state.partition("\n")
        return both_ends(output + ran.stderr, self._most) + how_it_ended(ran)


def both_ends(text: str, most: int) -> str:
    """The text, or its beginning and its end if it is longer than `most` characters."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"


def how_it_ended(ran: Ran) -> str:
    """A last line for the model if the command failed."""
    if ran.stopped in ("time", "cpu"):
        return "\n(stopped: it took too long)"
    if ran.stopped:
        return f"\n(stopped: beyond its limit of {ran.stopped})"
    return f"\n(exit code {ran.exit_code})" if ran.exit_code else ""
