"""The list of tasks: how often each was tried and passed, the hardest or the easiest first.

With a filter: the tasks that have a matching rollout, and the number of these rollouts.
"""

from __future__ import annotations

from typing import Any

from velodrome.errors import InputError
from velodrome.index import Index, Query, Sort
from velodrome.index.lists import count_tasks
from velodrome.index.pictures import quoted
from velodrome.index.query import typed
from velodrome.viewer.pages.links import Address, Links
from velodrome.viewer.pages.rollouts_page import PAGE, Column, order_by, parse_query
from velodrome.viewer.parts.render import many
from velodrome.viewer.viewed_file import ViewedFile

Json = dict[str, Any]
_FIRST = Sort("pass_rate")


def tasks_page(source: ViewedFile, links: Links, address: Address) -> Json:
    """The values of the template."""
    index = source.index()
    query, sort, problems = parse_query(index, address)
    q = address.q.strip() if query.terms else ""
    sort = sort if address.sort else _FIRST
    try:
        page = index.tasks(sort, query, since=address.since, limit=PAGE)
    except InputError as error:
        problems, sort = [*problems, *error.problems], _FIRST
        page = index.tasks(sort, query, limit=PAGE)
    here: Json = {"q": q, "sort": str(sort)}
    return {
        "q": typed(address.q),
        "sort_text": "" if sort == _FIRST else typed(str(sort)),
        "problems": problems,
        "instead": "Shown from the start, by pass rate." if query.terms else "All tasks are shown.",
        "names": index.names(),
        "filtered": bool(query.terms),
        "tally": "counting" if page.waiting else _tally(index, query, page.total),
        "note": page.note,
        "rows": page.entries,
        "columns": _columns(links, q, sort, filtered=bool(query.terms)),
        "matches": lambda task: links.rollouts(q=f"{q} task={quoted(task)}"),
        "previous": links.tasks(**here, since=page.previous) if page.previous is not None else None,
        "next": links.tasks(**here, since=page.next) if page.next else None,
    }


def _tally(index: Index, query: Query, total: int) -> str:
    if query.terms:
        return f"{many(total, 'task')} {'has' if total == 1 else 'have'} a matching rollout"
    count = index.picture(count_tasks)
    others = [f"{count.only_failed:,} with failed attempts alone"] if count.only_failed else []
    others += [f"{many(count.without_key, 'rollout')} without a task in the key"] if count.without_key else []
    tasks, counted = many(total, "task"), total - count.only_failed - count.without_key
    return f"{tasks}: {counted:,} that metrics count, {', '.join(others)}" if others else tasks


def _columns(links: Links, q: str, sort: Sort, *, filtered: bool) -> list[Column]:
    def heading(label: str, field: str, kind: str = "num") -> Column:
        order = order_by(sort, field)
        return Column(label, kind, links.tasks(q=q, sort=f"-{field}" if order == "ascending" else field), order)

    matching = [Column("matching", "num")] if filtered else []
    repeats, reward = heading("repeats", "n"), heading("mean reward", "mean_reward")
    return [heading("pass rate", "pass_rate", ""), Column("task"), *matching, repeats, reward]
