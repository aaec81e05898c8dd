"""Two rollouts side by side: of one task in two runs, or two repeats in one run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from velodrome.errors import InputError
from velodrome.index import Entry, Repeats
from velodrome.stats.metrics import PASS_REWARD
from velodrome.timing.figures import duration
from velodrome.viewer.pages.links import Links, pair_address, task_pair_address
from velodrome.viewer.parts.comparing import MOST_MESSAGES, pair_messages
from velodrome.viewer.parts.dialogue import conversation, final_answer
from velodrome.viewer.parts.render import many
from velodrome.viewer.parts.safe_text import folded
from velodrome.viewer.parts.strip import expected_answer
from velodrome.viewer.viewed_file import ViewedFile

Json = dict[str, Any]
Side = tuple[ViewedFile, int]

_MOST_REPEATS = 24  # of a task, to choose a pair from


def pair_page(a: Side, b: Side) -> Json:
    """The values of the template. A missing rollout is an `InputError`."""
    entries = [source.index().entry(number) for source, number in (a, b)]
    rows = [source.index().row(number) for source, number in (a, b)]
    talks = [conversation(row) for row in rows]
    lines = pair_messages(*talks)
    previous, following = _neighbours(a[0], b[0], entries[0].task)
    return {
        "sides": [
            _side(letter, source, entry, row)
            for letter, (source, _), entry, row in zip("AB", (a, b), entries, rows, strict=True)
        ],
        "same_run": a[0] is b[0],
        "task": entries[0].task if entries[0].task == entries[1].task else None,
        "task_href": Links(b[0].slug).task(entries[1].task),
        "up": Links(b[0].slug).task(entries[1].task) if a[0] is b[0] else Links("").compare(a=a[0].slug, b=b[0].slug),
        "expected": next(filter(None, map(expected_answer, rows)), None),
        "lines": lines,
        "described": _described(lines),
        "left_out": max(max(map(len, talks)) - MOST_MESSAGES, 0),
        "previous": previous,
        "next": following,
    }


def _side(letter: str, source: ViewedFile, entry: Entry, row: Json) -> Json:
    numbers = entry.numbers
    about = [
        many(numbers[name], noun) for name, noun in (("tokens", "token"), ("tools", "tool call")) if numbers.get(name)
    ]
    if "total_s" in numbers:
        about.append(duration(numbers["total_s"] * 1000))
    failed = entry.state == "failed"
    return {
        "letter": letter,
        "run": source.name,
        "run_href": Links(source.slug).run(),
        "href": Links(source.slug).rollout(entry.number),
        "key": entry.key,
        "state": entry.state,
        "reward": entry.reward,
        "about": about,
        "answer": folded(entry.error or "" if failed else final_answer(row).strip(), over=900, head=300, tail=500),
        "failed": failed,
    }


def _described(lines: Sequence[Any]) -> str:
    """A sentence about how far the two are equal."""
    same = sum(line.same for line in lines)
    if same == len(lines):
        return "Word for word the same, from the first message to the last."
    equal = next(at for at, line in enumerate(lines) if not line.same)
    begins = f"They begin with {many(equal, 'equal message')}" if equal else "They differ from the first message"
    return f"{begins}; {same} of {many(len(lines), 'line')} are the same. What differs is marked."


def _neighbours(a: ViewedFile, b: ViewedFile, task: str) -> tuple[str | None, str | None]:
    """The pairs of the flipped tasks before and after this one."""
    compared = a.measurements.read("compare", a, b).value if a is not b else None
    tasks = [flip["task"] for flip in compared["flips"]] if compared else []
    if task not in tasks:
        return None, None
    addresses = [None, *(task_pair_address(a.slug, b.slug, each) for each in tasks), None]
    return addresses[tasks.index(task)], addresses[tasks.index(task) + 2]


def pair_of_task(a: ViewedFile, b: ViewedFile, task: str, a_number: int | None, b_number: int | None) -> str:
    """The address of two rollouts of a task: one that passed and one that did not, if there is such a pair."""
    families = [source.index().repeats(task, limit=_MOST_REPEATS) for source in (a, b)]
    if families[0] is None or families[1] is None:
        raise InputError(f'no task "{task:.100}" in both of these runs')
    left = _candidates(families[0], a_number)
    right = [each for each in _candidates(families[1], b_number) if a is not b or len(left) > 1 or each not in left]
    pairs = [(x, y) for x in left for y in right if a is not b or x.number != y.number]
    if not pairs:
        raise InputError(f'the task "{task:.100}" has one rollout here; two are needed')
    x, y = min(pairs, key=lambda pair: (_passed(pair[0]) == _passed(pair[1]), pair[0].repeat != pair[1].repeat))
    return pair_address(a.slug, x.number, b.slug, y.number)


def _candidates(family: Repeats, number: int | None) -> list[Entry]:
    return [entry for entry in family.entries if number in (None, entry.number)] or list(family.entries)


def _passed(entry: Entry) -> bool:
    return entry.reward is not None and entry.reward >= PASS_REWARD
