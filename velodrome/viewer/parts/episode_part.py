"""The part of a rollout's page that shows an episode: the data of the player, and a table of steps."""

from __future__ import annotations

import json
from html import escape
from itertools import accumulate
from typing import Any

from markupsafe import Markup

from velodrome.viewer.parts.episode import Action, Episode
from velodrome.viewer.parts.safe_text import attribute

Json = dict[str, Any]

_MOST_AGENTS = 32  # with their own line
_MOST_ENTRIES = 12_000  # of the table, steps times agents
_NAME = 40  # characters of an action's name


def episode_part(episode: Episode | str | None) -> Json | None:
    """The values of the template; None if there is no episode."""
    if episode is None:
        return None
    if isinstance(episode, str):
        return {"flaw": episode}
    agents = min(episode.agents, _MOST_AGENTS)
    listed = min(episode.shown, max(1, _MOST_ENTRIES // agents))
    names = [attribute(name, _NAME) for name in episode.names]
    return {
        "flaw": None,
        "agents": agents,
        "more_agents": episode.agents - agents,
        "steps": episode.steps,
        "shown": episode.shown,
        "ended": episode.ended,
        "taught": episode.taught is not None,
        "acted": episode.actions is not None,
        "paid": episode.rewards is not None,
        "drawn": episode.pictures is not None or episode.own is not None,
        "own": episode.own.images[0] if episode.own else None,
        "every": episode.own.every if episode.own else 1,
        "film": Markup(_quoted(_film(episode, names, agents))),
        "table": _table(episode, names, agents, listed),
        "listed": listed,
    }


def _means(episode: Episode) -> list[float]:
    """The mean reward of the agents in each step."""
    return [sum(row) / episode.agents for row in episode.rewards or ()]


def _film(episode: Episode, names: list[str], agents: int) -> Json:
    """The data of the player. Every value is a checked number or colour, or an escaped text."""

    def cut(column: list[list[Any]] | None) -> list[list[Any]] | None:
        return column and [row[:agents] for row in column]

    film: Json = {
        "steps": episode.shown,
        "of": episode.steps,
        "names": names,
        "actions": cut(episode.actions),
        "taught": cut(episode.taught),
        "rewards": cut(episode.rewards),
        "means": _means(episode) if episode.rewards else None,
    }
    if episode.own:
        film |= {"images": episode.own.images, "every": episode.own.every}
    elif episode.pictures:
        pictures = episode.pictures
        film |= {"letters": pictures.letters, "colours": pictures.colours}
        film |= {"marks": pictures.marks, "frames": pictures.frames}
    return film


def _quoted(film: Json) -> str:
    """The data as the value of an attribute in single quotes, in ASCII: JSON has many double quotes."""
    return escape(json.dumps(film, separators=(",", ":")), quote=False).replace("'", "&#39;")


def _table(episode: Episode, names: list[str], agents: int, listed: int) -> list[Json]:
    means = _means(episode)[:listed]
    running = list(accumulate(means))

    def action_text(action: Action) -> str:
        if isinstance(action, list):
            return ", ".join(f"{number:.4g}" for number in action)
        return names[action] if 0 <= action < len(names) else str(action)

    def cell(step: int, agent: int) -> Json:
        acted = episode.actions[step][agent] if episode.actions else None
        taught = episode.taught[step][agent] if episode.taught else None
        return {
            "action": "" if acted is None else action_text(acted),
            "teacher": action_text(taught) if taught is not None and taught != acted else "",
            "reward": episode.rewards[step][agent] if episode.rewards else 0,
        }

    return [
        {
            "step": step + 1,
            "agents": [cell(step, agent) for agent in range(agents)],
            "reward": means[step] if means else None,
            "running": running[step] if running else None,
        }
        for step in range(listed)
    ]
