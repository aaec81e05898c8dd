"""Rollouts of several players, split into one rollout for each player.

The key is `<task>:<player>/<repeat>`, so the rollouts of one player of a task are a group in training data and
statistics.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from velodrome.contracts import Json
from velodrome.exchange.imports.foreign import Convert, ForeignFormat
from velodrome.records.conversation import final_text, items
from velodrome.records.rollout import split_key, task_of
from velodrome.records.task import task_id


def rollouts(agent: str | None, source: Path) -> Convert:
    """Rows with `players` and `rewards` -> a row for each player."""
    agent_field = {} if agent is None else {"agent": agent}

    def convert(row: Any, place: int) -> Iterator[Json]:
        players, rewards = _parts(row)
        task_name, repeat = split_key(row["meta"]["key"])
        common = {name: value for name, value in row.items() if name not in ("players", "rewards")}
        for name, conversation in players.items():
            steps = [step.get(name, 0.0) for step in row.get("step_rewards") or () if isinstance(step, dict)]
            yield {
                **common,
                **conversation,
                "response": {**row["response"], "content": final_text(items(conversation["output"]))},
                "player": name,
                "reward": rewards.get(name),
                "step_rewards": steps,
                "meta": {**row["meta"], **agent_field, "key": f"{task_name}:{name}/{repeat}"},
            }

    return convert


def _parts(row: Any) -> tuple[Json, Json]:
    players, rewards = (row.get(name) if isinstance(row, dict) else None for name in ("players", "rewards"))
    if not isinstance(players, dict) or not isinstance(rewards, dict):
        raise ValueError('not a rollout of several players: it has no "players" and "rewards" by name')
    return {name: conversation for name, conversation in players.items() if conversation["output"]}, rewards


def task(row: Any, place: int) -> tuple[str, Json]:
    """The task that was played."""
    _parts(row)
    played = task_of(row)
    return task_id(played), played


FORMAT = ForeignFormat(
    name="players",
    about="rollouts of several players (players_agent): one for each player, with that player's reward",
    rollouts=rollouts,
    tasks=lambda source: task,
)
