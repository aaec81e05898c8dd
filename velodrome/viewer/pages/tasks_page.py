"""The list of tasks: how often each was tried, how often it passed; the hardest or the easiest first."""

from __future__ import annotations

from typing import Any

from velodrome.errors import InputError
from velodrome.index import Sort
from velodrome.viewer.pages.links import Address, Links
from velodrome.viewer.pages.rollouts_page import PAGE, Column, order_by
from velodrome.viewer.viewed_file import ViewedFile

Json = dict[str, Any]


def tasks_page(source: ViewedFile, links: Links, address: Address) -> Json:
    """What the template needs."""
    index = source.index()
    problem = ""
    sort = Sort("pass_rate")
    try:
        sort = Sort.parse(address.sort) if address.sort else sort
        page = index.tasks(sort, after=address.after or None, before=address.before or None, limit=PAGE)
    except InputError as error:
        problem, sort = error.problems[0], Sort("pass_rate")
        page = index.tasks(sort, limit=PAGE)
    return {
        "problem": problem,
        "rows": page.entries,
        "columns": _columns(links, sort),
        "previous": links.tasks(sort=str(sort), before=page.previous) if page.previous else None,
        "next": links.tasks(sort=str(sort), after=page.next) if page.next else None,
    }


def _columns(links: Links, sort: Sort) -> list[Column]:
    def heading(label: str, field: str, kind: str = "num") -> Column:
        order = order_by(sort, field)
        return Column(label, kind, links.tasks(sort=f"-{field}" if order == "ascending" else field), order)

    repeats, reward = heading("repeats", "n"), heading("mean reward", "mean_reward")
    return [heading("pass rate", "pass_rate", ""), Column("task"), repeats, reward]
