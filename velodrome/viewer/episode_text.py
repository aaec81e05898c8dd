"""A trained policy's episode in a rollout, as a terminal shows it: a few lines and two pictures."""

from __future__ import annotations

from collections import deque
from typing import Any

from velodrome.records.bounds import is_count
from velodrome.timing.report import clean, counted
from velodrome.viewer.parts.episode import ALPHABET, Episode, Pictures, how_it_ended, is_reward, read_episode

Json = dict[str, Any]

ROWS, COLUMNS = 40, 100  # of a picture
_MOST_RETURNS = 16


def episode_lines(row: Json) -> list[str]:
    """What happened in an episode. What is under `episode` is untrusted: whatever is malformed is left out."""
    raw, episode = row["episode"], read_episode(row)
    steps = episode.steps if isinstance(episode, Episode) else row.get("length")
    parts = [counted(each, noun) for each, noun in ((raw.get("agents"), "agent"), (steps, "step")) if is_count(each)]
    parts += filter(None, [how_it_ended(raw)])
    lines = [", ".join(parts) or "its agents and steps are not known"]
    returns = raw.get("returns")
    values = [f"{each:.6g}" for each in returns if is_reward(each)] if isinstance(returns, list) else []
    if values:
        more = len(values) - _MOST_RETURNS
        lines.append(f"returns: {', '.join(values[:_MOST_RETURNS])}{f' and {more:,} more' if more > 0 else ''}")
    agreement = row.get("agreement_alone")
    if is_reward(agreement) and 0 <= agreement <= 1:
        lines.append(f"agreement with the teacher: {agreement:.1%}")
    if isinstance(episode, str):
        lines.append(f"it cannot be shown: {episode}")
    elif episode is not None:
        lines += [*(_pictures(episode.pictures) if episode.pictures else ()), "velo view plays it"]
    return lines


def _pictures(pictures: Pictures) -> list[str]:
    """The first and the last picture, in the letters of the file."""
    letters = str.maketrans(ALPHABET[: len(pictures.letters)], pictures.letters)

    def rows(width: int, cells: list[str]) -> list[str]:
        text = "".join(cells).translate(letters)
        return [text[start : start + width] for start in range(0, len(text), width)]

    drawn = pictures.drawn()
    first = rows(*next(drawn))
    last = deque(drawn, 1)
    if not last:
        return _picture("the only picture", first)
    return [*_picture("the first picture", first), *_picture("the last picture", rows(*last[0]))]


def _picture(title: str, rows: list[str]) -> list[str]:
    """A picture with its title, and how much of it there is room for."""
    width = len(rows[0])
    if len(rows) > ROWS or width > COLUMNS:
        title += f" ({min(len(rows), ROWS)} of {len(rows):,} rows, {min(width, COLUMNS)} of {width:,} columns)"
    return [f"{title}:", *(f"  {clean(each[:COLUMNS], longest=COLUMNS)}" for each in rows[:ROWS])]
