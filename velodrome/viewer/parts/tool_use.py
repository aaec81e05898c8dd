"""The tools that the rollouts of a file called: calls, failed results, and the rewards of these rollouts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from velodrome.checks.texts import is_tool_error
from velodrome.records.facts import RowFacts
from velodrome.stats.first_names import FirstNames

Json = dict[str, Any]

_MOST_TOOLS = 200
_LONGEST_NAME = 100


@dataclass(slots=True)
class ToolUse:
    """One tool. `failed` counts results that are errors, `results` those with a text."""

    rollouts: int = 0
    calls: int = 0
    results: int = 0
    failed: int = 0
    scored: int = 0
    rewards: float = 0.0


class ToolTally:
    """The tools of a file, fed rollout by rollout."""

    def __init__(self) -> None:
        self._tools: FirstNames[ToolUse] = FirstNames(_MOST_TOOLS, ToolUse)

    def add(self, facts: RowFacts) -> None:
        if not facts.tool_calls:
            return
        names = [name[:_LONGEST_NAME] for name, _ in facts.calls if type(name) is str and name]
        for name in names:
            if (tool := self._tools.of(name)) is not None:
                tool.calls += 1
        for name in set(names):
            if (tool := self._tools.of(name)) is not None:
                tool.rollouts += 1
                tool.scored += facts.reward is not None
                tool.rewards += facts.reward or 0.0
        for name, result in facts.results:
            if (tool := self._tools.get(name[:_LONGEST_NAME])) is not None:
                tool.results += 1
                tool.failed += is_tool_error(result)

    def report(self) -> list[Json]:
        """The numbers of each tool, the most called first."""
        order = sorted(self._tools.items(), key=lambda each: (-each[1].calls, each[0]))
        return [
            {
                "name": name,
                "rollouts": tool.rollouts,
                "calls": tool.calls,
                "failed": tool.failed,
                "failed_share": tool.failed / tool.results if tool.results else None,
                "mean_reward": tool.rewards / tool.scored if tool.scored else None,
            }
            for name, tool in order
        ]
