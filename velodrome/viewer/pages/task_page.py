"""The page of one task: every repeat of it side by side, how many passed, and where they part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from velodrome.errors import InputError
from velodrome.index import Entry, Index, Repeats
from velodrome.timing.report import duration
from velodrome.viewer.pages.links import Links
from velodrome.viewer.pages.rollout_page import expected_answer
from velodrome.viewer.parts.dialogue import Said, conversation, final_answer, pretty
from velodrome.viewer.parts.difference import Parting, parting
from velodrome.viewer.parts.render import count, many, number
from velodrome.viewer.parts.safe_text import folded

Json = dict[str, Any]

AT_ONCE = 12  # repeats on one page
_MOST_ANSWERS = 12
_MOST_STEPS = 40
_LABELS = {"reasoning": "Reasoning"}


def task_page(index: Index, links: Links, task: str, since: int = 0) -> Json:
    """What the template needs. A task that is not there is an `InputError`."""
    found = index.repeats(task, since=since, limit=AT_ONCE)
    if found is not None and not found.entries and since:
        since = 0
        found = index.repeats(task, limit=AT_ONCE)
    if found is None:
        raise InputError(f'no task "{task:.100}" in this file')
    shown, there = found.entries, found.task.n + found.task.failed
    rows = [_row(index, entry) for entry in shown]
    talks = [conversation(row) if isinstance(row, dict) else [] for row in rows]
    made = [[said for said in talk if not said.asked] for talk in talks]
    parted = parting(made)
    first = next((row for row in rows if isinstance(row, dict)), {})
    asked = next(([said for said in talk if said.asked] for talk in talks if any(said.asked for said in talk)), [])
    return {
        "task": task,
        "figures": _figures(found),
        "asked": [_asked(said) for said in asked],
        "expected": expected_answer(first),
        "answers": _answers(shown, rows),
        "parting_told": _told(parted, made, there),
        "repeats": [
            _repeat(entry, row, steps, links) for entry, row, steps in zip(shown, rows, parted.repeats, strict=True)
        ],
        "previous": links.task(task, since=max(since - AT_ONCE, 0)) if since else None,
        "next": links.task(task, since=since + AT_ONCE) if since + AT_ONCE < there else None,
    }


def _row(index: Index, entry: Entry) -> Json | str:
    """The row, or why it cannot be shown: a file may change while it is read."""
    try:
        return index.row(entry.number)
    except InputError as error:
        return error.problems[0]


def _figures(repeats: Repeats) -> list[tuple[str, str]]:
    """Of all repeats, shown or not."""
    task = repeats.task
    found = [
        ("pass rate", f"{task.pass_rate:.0%}" if task.pass_rate is not None else "–"),
        ("passed", f"{count(task.passed)} of {count(task.scored)}"),
        ("mean reward", number(task.mean_reward)),
        ("mean time", duration(1000 * repeats.mean_s) if repeats.mean_s is not None else "–"),
    ]
    if task.failed:
        found.append(("failed", count(task.failed)))
    return found


def _asked(said: Said) -> Json:
    text = said.text or pretty([[call.name, call.result] for call in said.calls])
    return {
        "role": said.role,
        "label": said.role.capitalize(),
        "text": folded(text, over=1500, head=1000, tail=300),
    }


def _answers(entries: Sequence[Entry], rows: Sequence[Json | str]) -> list[Json]:
    """Equal answers together, the commonest first; nothing if all differ."""
    found: dict[str, list[float | None]] = {}
    for entry, row in zip(entries, rows, strict=True):
        if isinstance(row, dict) and entry.state != "failed":
            found.setdefault(" ".join(final_answer(row).split())[:2000], []).append(entry.reward)
    if len(found) < 1 or len(found) == len(entries) > 1:
        return []
    order = sorted(found.items(), key=lambda each: -len(each[1]))[:_MOST_ANSWERS]
    return [{"text": text or "(no answer)", "count": len(got), "reward": _mean(got)} for text, got in order]


def _mean(rewards: list[float | None]) -> float | None:
    known = [reward for reward in rewards if reward is not None]
    return sum(known) / len(known) if known else None


def _told(parted: Parting, made: list[list[Said]], there: int) -> str:
    if len(made) < 2:
        return "This task has one rollout." if there < 2 else "One repeat stands here; the others are on other pages."
    if parted.message is None:
        return "Word for word the same, from the first message to the last."
    same, words = parted.message, parted.word
    where = (
        f"begin with {many(same, 'equal message')} and diverge in the next" if same else "diverge in the first message"
    )
    word = (
        "at its first word" if not words else "after its first word" if words == 1 else f"after its first {words} words"
    )
    return f"These {len(made)} repeats {where}, {word}. The first word that differs is marked."


def _repeat(entry: Entry, row: Json | str, steps: Sequence[Any], links: Links) -> Json:
    about = []
    numbers = entry.numbers
    if "tokens" in numbers:
        about.append(many(numbers["tokens"], "token"))
    if numbers.get("tools"):
        about.append(many(numbers["tools"], "tool"))
    if "total_s" in numbers:
        about.append(duration(numbers["total_s"] * 1000))
    return {
        "repeat": "?" if entry.repeat is None else entry.repeat,
        "href": links.rollout(entry.number),
        "state": entry.state,
        "reward": entry.reward,
        "about": " · ".join(about) or "no numbers",
        "problem": row if isinstance(row, str) else None,
        "steps": list(steps[:_MOST_STEPS]),
        "failure": entry.error if entry.state == "failed" else None,
    }
