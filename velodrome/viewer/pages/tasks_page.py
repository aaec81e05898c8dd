"""The list of tasks: how often each was tried, how often it passed; the hardest or the easiest first."""

from __future__ import annotations

from typing import Any

from velodrome.errors import InputError
from velodrome.index import Index, Sort
from velodrome.viewer.pages.links import Links
from velodrome.viewer.pages.rollouts_page import PAGE, Column, ListRequest, order_by

Json = dict[str, Any]


def tasks_page(index: Index, links: Links, request: ListRequest) -> Json:
    """What the template needs."""
    problem = ""
    sort = Sort("pass_rate")
    try:
        sort = Sort.parse(request.sort) if request.sort else sort
        page = index.tasks(sort, after=request.after or None, before=request.before or None, limit=PAGE)
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
