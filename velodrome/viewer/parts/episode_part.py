"""The part of a rollout's page that shows an episode: what the player plays, and without scripts a strip of pictures
and a table of steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from itertools import accumulate, groupby
from typing import Any

import orjson
from markupsafe import Markup

from velodrome.viewer.parts.episode import ALPHABET, Action, Episode, OwnPictures, Pictures
from velodrome.viewer.parts.safe_text import attribute

Json = dict[str, Any]

_MOST_AGENTS = 32  # with a line of their own
_MOST_ENTRIES = 12_000  # of the table, steps times agents
_STRIP = 12
_STRIP_CELLS = 60_000  # of all its pictures
_NAME = 40  # characters of an action's name


def episode_part(episode: Episode | str | None) -> Json | None:
    """What the template needs; None if there is no episode."""
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
        "strip": _own_strip(episode.own, listed)
        if episode.own
        else _strip(episode.pictures, listed)
        if episode.pictures
        else [],
        "table": _table(episode, names, agents, listed),
        "listed": listed,
    }


def _means(episode: Episode) -> list[float]:
    """The reward of an agent in each step, over all of them."""
    return [sum(row) / episode.agents for row in episode.rewards or ()]


def _film(episode: Episode, names: list[str], agents: int) -> Json:
    """What the player reads. Everything in it is a checked number, colour or letter, or an escaped name."""

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
        film |= {"letters": ALPHABET, "colours": episode.pictures.colours, "marks": episode.pictures.marks}
        film["frames"] = episode.pictures.frames
    return film


def _quoted(film: Json) -> str:
    """As the value of an attribute between single quotes: JSON is full of double ones."""
    return escape(orjson.dumps(film).decode(), quote=False).replace("'", "&#39;")


def _strip(pictures: Pictures, listed: int) -> list[Json]:
    """Some pictures over the whole episode, each with its step and a link into the table."""
    largest = max(len(cells) for what, cells in pictures.frames if isinstance(what, int))
    last = len(pictures.frames) - 1
    room = max(1, min(_STRIP, last + 1, _STRIP_CELLS // largest))
    wanted = {place * last // max(room - 1, 1) for place in range(room)}
    return [
        {
            "step": place + 1,
            "href": f"#step-{place + 1}" if place < listed else "#steps",
            "picture": picture(cells, width, pictures.colours),
        }
        for place, (width, cells) in enumerate(pictures.drawn())
        if place in wanted
    ]


def _own_strip(own: OwnPictures, listed: int) -> list[Json]:
    """The same of the environment's own pictures."""
    last = len(own.images) - 1
    room = min(_STRIP, last + 1)
    steps = [(place, own.every * place + 1) for place in {at * last // max(room - 1, 1): None for at in range(room)}]
    return [
        {"step": step, "href": f"#step-{step}" if step <= listed else "#steps", "image": own.images[place]}
        for place, step in steps
    ]


def picture(cells: Sequence[str], width: int, colours: Sequence[str]) -> Json:
    """Cells as an SVG has them: a path for each colour, on the commonest of them."""
    paths: dict[str, list[str]] = {}
    for begin in range(0, len(cells), width):
        x = 0
        for letter, run in groupby(cells[begin : begin + width]):
            length = len(list(run))
            paths.setdefault(letter, []).append(f"M{x} {begin // width}h{length}v1h-{length}z")
            x += length
    [(commonest, _)] = Counter(cells).most_common(1)
    shapes = [(colours[ALPHABET.index(letter)], "".join(runs)) for letter, runs in paths.items() if letter != commonest]
    ground = colours[ALPHABET.index(commonest)]
    return {"width": width, "height": len(cells) // width, "ground": ground, "shapes": shapes}


def _table(episode: Episode, names: list[str], agents: int, listed: int) -> list[Json]:
    means = _means(episode)[:listed]
    running = list(accumulate(means))

    def named(action: Action) -> str:
        if isinstance(action, list):
            return ", ".join(f"{number:.4g}" for number in action)
        return names[action] if 0 <= action < len(names) else str(action)

    def cell(step: int, agent: int) -> Json:
        acted = episode.actions[step][agent] if episode.actions else None
        taught = episode.taught[step][agent] if episode.taught else None
        return {
            "action": "" if acted is None else named(acted),
            "teacher": named(taught) if taught is not None and taught != acted else "",
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
