"""The rule on sessions: each rollout has its own, and none is left over.

What is counted belongs to this process: open sessions, files, threads and child processes. Pools may
fill at first, so growth is counted from a second round on.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from velodrome.errors import RolloutError, describe
from velodrome.examiner.exam import IN_FLIGHT, Exam
from velodrome.examiner.playing import Player, play_together
from velodrome.examiner.rules import Rule, RuleFinding, RuleResult, differences, nothing_to_compare
from velodrome.examiner.subject import TaskRow

_FEW = 4
_SLACK = IN_FLIGHT // 4  # of pools that fill slowly, per kind
_LOOKS, _LOOK_S = 40, 0.05


class SessionsRule(Rule):
    """Many rollouts of different tasks at once, and what remains of them."""

    name = "sessions"
    about = f"sessions neither mix nor leak with {IN_FLIGHT} rollouts in flight"

    async def examine(self, exam: Exam) -> RuleResult:
        crowd = await exam.crowd()
        if nothing_to_compare(crowd):
            return RuleResult(unchecked=nothing_to_compare(crowd))
        environment = exam.environment
        findings = differences(crowd, await exam.together(), "interleaved")
        if findings:
            return RuleResult(findings, f"{len(crowd)} rollouts at once")
        player = Player(environment)
        before = _counts(environment)
        findings += differences(crowd, await play_together(player, [play.case for play in crowd]), "interleaved again")
        findings += await self._growth(environment, before)
        findings += [finding for row in exam.tasks[:_FEW] for finding in await _opened_and_closed(environment, row)]
        exam.rollouts += len(crowd)
        return RuleResult(findings, f"{2 * len(crowd)} rollouts, {IN_FLIGHT} at once")

    async def _growth(self, environment: Any, before: Counter[str]) -> list[RuleFinding]:
        """What there is more of than before, once it had a moment to end."""
        for look in range(_LOOKS):
            grown = _counts(environment) - before
            grown = Counter({name: count for name, count in grown.items() if count > _allowed(name)})
            if not grown:
                return []
            await asyncio.sleep(_LOOK_S if look else 0)
        return [RuleFinding("", "", f"{count} more {name} after {IN_FLIGHT} rollouts") for name, count in grown.items()]


async def _opened_and_closed(environment: Any, row: TaskRow) -> list[RuleFinding]:
    """A finding if a session cannot be opened and closed, twice. The agent goes on if closing one fails."""
    try:
        session = await environment.open(row.task)
        await environment.close(session)
        await environment.close(session)
    except RolloutError as error:
        place = f" ({error.place})" if error.place else ""
        return [RuleFinding(row.task_id, "", f"opened and closed: {describe(error)[:300]}{place}")]
    return []


def _allowed(name: str) -> int:
    return 0 if name == "open sessions" else _SLACK


def _counts(environment: Any) -> Counter[str]:
    return Counter(
        {
            "open sessions": len(getattr(environment, "sessions", ())),
            "open files": _entries("/proc/self/fd") or _entries("/dev/fd"),
            "threads": threading.active_count(),
            "child processes": len(children()),
        }
    )


def _entries(folder: str) -> int:
    try:
        return len(os.listdir(folder))
    except OSError:
        return 0


def children() -> set[int]:
    """The ids of this process's children, where the system says."""
    pids: set[int] = set()
    for path in Path("/proc/self/task").glob("*/children"):
        try:
            pids.update(map(int, path.read_text().split()))
        except OSError:
            continue
    return pids
