"""The page of one task: its repeats side by side, how many passed, and where they diverge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from velodrome.errors import InputError
from velodrome.index import Entry, Index, Repeats
from velodrome.stats.metrics import PASS_REWARD
from velodrome.timing.figures import duration
from velodrome.viewer.pages.links import Address, Links, short
from velodrome.viewer.parts.comparing import compared_text, message_label, shared_messages
from velodrome.viewer.parts.dialogue import ShownMessage, conversation, final_answer, pretty
from velodrome.viewer.parts.render import count, many, number
from velodrome.viewer.parts.safe_text import folded
from velodrome.viewer.parts.strip import expected_answer
from velodrome.viewer.viewed_file import ViewedFile

Json = dict[str, Any]

AT_ONCE = 12  # repeats on one page
_MOST_ANSWERS = 12
_MOST_STEPS = 40
_SHOWN, _SAME_SHOWN = 700, 240  # characters of a message, and of a message shared by all repeats


def task_page(source: ViewedFile, links: Links, address: Address) -> Json:
    """The values of the template. A missing task is an `InputError`."""
    index, task, since = source.index(), address.id, address.since
    repeats = index.repeats(task, since=since, limit=AT_ONCE)
    if repeats is not None and not repeats.entries and since:
        return task_page(source, links, Address(id=task))
    if repeats is None:
        raise InputError(f'no task "{task:.100}" in this file')
    shown, total = repeats.entries, repeats.task.n + repeats.task.failed
    rows = [_row(index, entry) for entry in shown]
    talks = [conversation(row) if isinstance(row, dict) else [] for row in rows]
    outputs = [[message for message in talk if not message.in_prompt] for talk in talks]
    shared = shared_messages(outputs)
    is_same = all(len(each) == shared for each in outputs)
    first = next((row for row in rows if isinstance(row, dict)), {})
    prompts = ([message for message in talk if message.in_prompt] for talk in talks)
    return {
        "task": task,
        "figures": _figures(repeats),
        "prompt": [_prompt(message) for message in next(filter(None, prompts), [])],
        "expected": expected_answer(first),
        "answers": _answers(shown, rows),
        "divergence": _described(shared, len(outputs), total, is_same=is_same),
        "repeats": [
            _repeat(entry, row, _steps(output, shared, alone=len(outputs) < 2), links)
            for entry, row, output in zip(shown, rows, outputs, strict=True)
        ],
        "pairs": _pairs(source, shown) if links.pair(0, 0) and len(shown) > 1 else None,
        "previous": links.task(task, since=max(since - AT_ONCE, 0)) if since else None,
        "next": links.task(task, since=since + AT_ONCE) if since + AT_ONCE < total else None,
    }


def _pairs(source: ViewedFile, entries: Sequence[Entry]) -> list[Json]:
    """Two lists of the repeats to choose a pair from. The default pair has one that failed and one that passed."""
    options = [(f"{source.slug}:{short(each.number)}", _name(each), each) for each in entries]
    passed = [at for at, each in enumerate(entries) if each.reward is not None and each.reward >= PASS_REWARD]
    failed = [at for at in range(len(entries)) if at not in passed]
    chosen = (failed[0], passed[0]) if passed and failed else (0, 1)
    return [
        {
            "name": name,
            "options": [(value, label, at == chosen[side]) for at, (value, label, _) in enumerate(options)],
        }
        for side, name in enumerate("ab")
    ]


def _name(entry: Entry) -> str:
    repeat = "?" if entry.repeat is None else entry.repeat
    return f"repeat {repeat} · {'failed' if entry.state == 'failed' else number(entry.reward)}"


def _row(index: Index, entry: Entry) -> Json | str:
    """The row, or why it cannot be shown. A file may change while it is read."""
    try:
        return index.row(entry.number)
    except InputError as error:
        return error.problems[0]


def _figures(repeats: Repeats) -> list[tuple[str, str]]:
    """The numbers of all repeats, also of those on other pages."""
    task = repeats.task
    figures = [
        ("pass rate", f"{task.pass_rate:.0%}" if task.pass_rate is not None else "–"),
        ("passed", f"{count(task.passed)} of {count(task.scored)}"),
        ("mean reward", number(task.mean_reward)),
        ("mean time", duration(1000 * repeats.mean_s) if repeats.mean_s is not None else "–"),
    ]
    if task.failed:
        figures.append(("failed", count(task.failed)))
    return figures


def _prompt(message: ShownMessage) -> Json:
    text = message.text or pretty([[call.name, call.result] for call in message.calls])
    shown = folded(text, over=1500, head=1000, tail=300)
    return {"role": message.role, "label": message.role.capitalize(), "text": shown}


def _answers(entries: Sequence[Entry], rows: Sequence[Json | str]) -> list[Json]:
    """The answers with their counts, the most common first; empty if all differ."""
    groups: dict[str, list[float | None]] = {}
    for entry, row in zip(entries, rows, strict=True):
        if isinstance(row, dict) and entry.state != "failed":
            groups.setdefault(" ".join(final_answer(row).split())[:2000], []).append(entry.reward)
    if not groups or len(groups) == len(entries) > 1:
        return []
    order = sorted(groups.items(), key=lambda each: -len(each[1]))[:_MOST_ANSWERS]
    return [{"text": text or "(no answer)", "count": len(rewards), "reward": _mean(rewards)} for text, rewards in order]


def _mean(rewards: list[float | None]) -> float | None:
    scored = [reward for reward in rewards if reward is not None]
    return sum(scored) / len(scored) if scored else None


def _described(shared: int, shown: int, total: int, *, is_same: bool) -> str:
    if shown < 2:
        return "This task has one rollout." if total < 2 else "One repeat is shown here; the others are on other pages."
    if is_same:
        return "Word for word the same, from the first message to the last."
    where = f"begin with {many(shared, 'equal message')} and diverge in the next" if shared else "diverge in the first"
    return f"These {shown} repeats {where}. Two transcripts show every word that differs."


def _steps(output: Sequence[ShownMessage], shared: int, *, alone: bool) -> list[Json]:
    """The messages of a repeat: the ones that all repeats share, the first that differs, and the rest."""
    steps = []
    for at, message in enumerate(output[:_MOST_STEPS]):
        kind = "same" if at < shared else "diverging" if at == shared else "after"
        text, longest = compared_text(message), _SAME_SHOWN if at < shared and not alone else _SHOWN
        hidden = max(len(text) - longest, 0)
        kind = "after" if alone else kind
        steps.append({"label": message_label(message), "kind": kind, "text": text[:longest], "more": hidden})
    return steps


def _repeat(entry: Entry, row: Json | str, steps: list[Json], links: Links) -> Json:
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
        "steps": steps,
        "failure": entry.error if entry.state == "failed" else None,
    }
