"""A trained policy's episode in a rollout, as a terminal shows it.

Such a row is not a conversation: two sentences take its place, and its reward is a return of any size. What is under
`episode` is untrusted: whatever is malformed is left out, and nothing raises.
"""

from __future__ import annotations

from math import isfinite
from typing import Any, TypeGuard

from velodrome.timing.report import clean, counted

Json = dict[str, Any]

ROWS, COLUMNS = 40, 100  # of a picture
_MOST_RETURNS = 16
_BY_STEP = ("actions", "frames", "rewards", "teacher_actions")
ENDS = {
    "truncated": "its time was over",
    "terminal": "it ended by the rules",
    "unfinished": "it was left before it ended",
}


def episode_lines(row: Json) -> list[str]:
    """What happened in an episode, in a few lines and two pictures."""
    episode: Json = row["episode"]
    lines = [_summary(row, episode)]
    returns = [f"{each:.6g}" for each in episode["returns"] if _is_number(each)] if _is_list(episode, "returns") else []
    if returns:
        more = len(returns) - _MOST_RETURNS
        lines.append(f"returns: {', '.join(returns[:_MOST_RETURNS])}{f' and {more:,} more' if more > 0 else ''}")
    agreement = row.get("agreement_alone")
    if _is_number(agreement) and 0 <= agreement <= 1:
        lines.append(f"agreement with the teacher: {agreement:.1%}")
    frames = episode["frames"] if _is_list(episode, "frames") else []
    for title, picture in (("first", frames[:1]), ("last", frames)) if len(frames) > 1 else (("only", frames),):
        lines += _shown(f"the {title} picture", _drawn(picture))
    if any(_is_list(episode, name) for name in ("actions", "frames")):
        lines.append("velo view plays it")
    return lines


def _summary(row: Json, episode: Json) -> str:
    steps = next((len(episode[name]) for name in _BY_STEP if _is_list(episode, name)), row.get("length"))
    parts = [counted(each, noun) for each, noun in ((episode["agents"], "agent"), (steps, "step")) if _is_count(each)]
    ended = episode.get("ended")
    parts += [ENDS[ended]] if isinstance(ended, str) and ended in ENDS else []
    return ", ".join(parts) or "its agents and steps are not known"


def _shown(title: str, rows: list[str]) -> list[str]:
    """A picture with its title, and how much of it there is room for."""
    if not rows:
        return []
    width = max(map(len, rows))
    if len(rows) > ROWS or width > COLUMNS:
        title += f" ({min(len(rows), ROWS)} of {len(rows):,} rows, {min(width, COLUMNS)} of {width:,} columns)"
    return [f"{title}:", *(f"  {clean(each[:COLUMNS], longest=COLUMNS)}" for each in rows[:ROWS])]


def _drawn(frames: list[Any]) -> list[str]:
    """The last of some frames, as rows of letters: the last whole one, with what changed in it since."""
    whole = next((place for place in reversed(range(len(frames))) if isinstance(frames[place], list)), None)
    if whole is None or not all(isinstance(each, str) for each in frames[whole]) or not frames[whole]:
        return []
    width = len(frames[whole][0])
    if not width or any(len(each) != width for each in frames[whole]):
        return []
    cells = list("".join(frames[whole]))
    for change in frames[whole + 1 :]:
        at, put = (change.get("at"), change.get("put")) if isinstance(change, dict) else (None, None)
        if not isinstance(at, list) or not isinstance(put, str) or len(at) != len(put):
            return []
        for cell, letter in zip(at, put, strict=True):
            if not _is_count(cell) or cell >= len(cells):
                return []
            cells[cell] = letter
    return ["".join(cells[start : start + width]) for start in range(0, len(cells), width)]


def _is_list(episode: Json, name: str) -> bool:
    return isinstance(episode.get(name), list)


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300 and isfinite(value)
