"""Two rollouts side by side: of one task in two runs, or two repeats in one run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from velodrome.errors import InputError
from velodrome.index import Entry, Repeats
from velodrome.stats.metrics import PASS_REWARD
from velodrome.timing.figures import duration
from velodrome.viewer.pages.links import Links, pair_address, task_pair_address
from velodrome.viewer.parts.comparing import MOST_MESSAGES, paired
from velodrome.viewer.parts.dialogue import conversation, final_answer
from velodrome.viewer.parts.render import many
from velodrome.viewer.parts.safe_text import folded
from velodrome.viewer.parts.strip import expected_answer
from velodrome.viewer.viewed_file import ViewedFile

Json = dict[str, Any]
Side = tuple[ViewedFile, int]

_MOST_REPEATS = 24  # to choose from, of either side


def pair_page(a: Side, b: Side) -> Json:
    """What the template needs. A rollout that is not there is an `InputError`."""
    entries = [source.index().entry(number) for source, number in (a, b)]
    rows = [source.index().row(number) for source, number in (a, b)]
    talks = [conversation(row) for row in rows]
    lines = paired(*talks)
    previous, following = _neighbours(a, b, entries)
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
        "repeats": list(_choices(a, b, entries)),
        "swapped": pair_address(b[0].slug, b[1], a[0].slug, a[1]),
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
    """How far the two go together, in a sentence."""
    same = sum(line.same for line in lines)
    if same == len(lines):
        return "Word for word the same, from the first message to the last."
    first = next(at for at, line in enumerate(lines) if not line.same)
    begins = f"They begin with {many(first, 'equal message')}" if first else "They differ from the first message"
    return f"{begins}; {same} of {many(len(lines), 'line')} are the same. What differs is marked."


def _choices(a: Side, b: Side, entries: Sequence[Entry]) -> Iterator[Json]:
    """The repeats of the task on either side, each to be put in the place of the one that is shown."""
    for at, (source, number) in enumerate((a, b)):
        family = source.index().repeats(entries[at].task, limit=_MOST_REPEATS)
        other, theirs = (b, a)[at]
        options = []
        for entry in family.entries if family else ():
            ways = (entry.number, theirs) if at == 0 else (theirs, entry.number)
            slugs = (source.slug, other.slug) if at == 0 else (other.slug, source.slug)
            label = "f" if entry.state == "failed" else "?" if entry.repeat is None else entry.repeat
            href = pair_address(slugs[0], ways[0], slugs[1], ways[1])
            current = entry.number == number
            options.append(
                {"label": label, "href": href, "current": current, "reward": entry.reward, "state": entry.state}
            )
        yield {"letter": "AB"[at], "options": options}


def _neighbours(a: Side, b: Side, entries: Sequence[Entry]) -> tuple[str | None, str | None]:
    """The pair before and the one after: of two repeats, the next repeat; of two runs, the next task that flipped."""
    if a[0] is b[0]:
        return _other_repeats(a, b, entries[1])
    flips = a[0].measurements.read("compare", a[0], b[0]).value
    tasks = [flip["task"] for flip in flips["flips"]] if flips else []
    if entries[0].task in tasks:
        at = tasks.index(entries[0].task)
        near = tasks[at - 1] if at else None, tasks[at + 1] if at + 1 < len(tasks) else None
        return tuple(task and task_pair_address(a[0].slug, b[0].slug, task) for task in near)  # type: ignore[return-value]
    return None, None


def _other_repeats(a: Side, b: Side, entry: Entry) -> tuple[str | None, str | None]:
    family = a[0].index().repeats(entry.task)
    numbers = [each.number for each in family.entries if each.number != a[1]] if family else []
    at = numbers.index(b[1]) if b[1] in numbers else -1

    def to(place: int) -> str | None:
        return Links(a[0].slug).pair(a[1], numbers[place]) if 0 <= place < len(numbers) else None

    return (to(at - 1), to(at + 1)) if at >= 0 else (None, to(0))


def pair_of_task(a: ViewedFile, b: ViewedFile, task: str, first: int | None, second: int | None) -> str:
    """The address of two rollouts of a task: a pair of which one passed and one did not, if there is such a pair."""
    families = [source.index().repeats(task, limit=_MOST_REPEATS) for source in (a, b)]
    if families[0] is None or families[1] is None:
        raise InputError(f'no task "{task:.100}" in both of these runs')
    left = _candidates(families[0], first)
    right = [each for each in _candidates(families[1], second) if a is not b or len(left) > 1 or each not in left]
    pairs = [(x, y) for x in left for y in right if a is not b or x.number != y.number]
    if not pairs:
        raise InputError(f'the task "{task:.100}" has one rollout here; two are needed')
    x, y = min(pairs, key=lambda pair: (_passed(pair[0]) == _passed(pair[1]), pair[0].repeat != pair[1].repeat))
    return pair_address(a.slug, x.number, b.slug, y.number)


def _candidates(family: Repeats, number: int | None) -> list[Entry]:
    return [entry for entry in family.entries if number in (None, entry.number)] or list(family.entries)


def _passed(entry: Entry) -> bool:
    return entry.reward is not None and entry.reward >= PASS_REWARD
