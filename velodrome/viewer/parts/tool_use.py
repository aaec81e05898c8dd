"""Which tools the rollouts of a file called: how often, how often in vain, and the rewards of rollouts that did."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from velodrome.checks.texts import is_tool_error
from velodrome.records.rows import Unread, read_facts
from velodrome.stats.first_names import FirstNames

Json = dict[str, Any]

_MOST_TOOLS = 200
_LONGEST_NAME = 100


@dataclass(slots=True)
class ToolUse:
    """One tool. `failed` counts results that are errors, `results` those that can be told to be errors or not."""

    rollouts: int = 0
    calls: int = 0
    results: int = 0
    failed: int = 0
    scored: int = 0
    rewards: float = 0.0


def read_tool_use(path: Path) -> list[Json]:
    """The tools of a file, the most called first."""
    tools: FirstNames[ToolUse] = FirstNames(_MOST_TOOLS, ToolUse)
    for facts in read_facts(path, Unread(path)):
        if not facts.tool_calls:
            continue
        names = [name[:_LONGEST_NAME] for name, _ in facts.calls if type(name) is str and name]
        for name in names:
            if (tool := tools.of(name)) is not None:
                tool.calls += 1
        for name in set(names):
            if (tool := tools.of(name)) is not None:
                tool.rollouts += 1
                tool.scored += facts.reward is not None
                tool.rewards += facts.reward or 0.0
        for name, result in facts.results:
            if (tool := tools.get(name[:_LONGEST_NAME])) is not None:
                tool.results += 1
                tool.failed += is_tool_error(result)
    order = sorted(tools.items(), key=lambda each: (-each[1].calls, each[0]))
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
