"""The page of failures: grouped by boundary and by message, the most frequent first."""

from __future__ import annotations

from typing import Any

from velodrome.index import FailureGroup
from velodrome.index.pictures import quoted
from velodrome.viewer.pages.links import Address, Links
from velodrome.viewer.parts.render import count, many
from velodrome.viewer.viewed_file import ViewedFile

Json = dict[str, Any]

_MOST_GROUPS = 100  # of one boundary
_ABOUT = {
    "model": "The model server answered with an error, garbage, or not at all.",
    "tool": "A tool's own code failed in a way that cannot be reported to the model.",
    "verify": "The verifier raised, hung, or returned something that is not a score.",
    "agent": "The agent itself failed, or ran out of its time.",
    "input": "The task row turned out to be unusable.",
}


def failures_page(source: ViewedFile, links: Links, address: Address) -> Json:
    """The values of the template."""
    boundaries: dict[str, list[FailureGroup]] = {}
    for group in source.index().failures():
        boundaries.setdefault(group.boundary, []).append(group)
    total = sum(group.count for groups in boundaries.values() for group in groups)
    order = sorted(boundaries.items(), key=lambda each: -sum(group.count for group in each[1]))
    return {
        "tally": f"{count(total)} failed, in {many(sum(map(len, boundaries.values())), 'kind')}" if total else "",
        "boundaries": [(_boundary(name, groups), _groups(groups, links)) for name, groups in order],
    }


def _boundary(name: str, groups: list[FailureGroup]) -> Json:
    about = _ABOUT.get(name, "Not a known boundary.")
    return {"title": name.capitalize() or "?", "about": about, "count": sum(group.count for group in groups)}


def _groups(groups: list[FailureGroup], links: Links) -> list[Json]:
    return [
        {
            "count": group.count,
            "message": group.example.removeprefix(f"{group.boundary}: "),
            "href": links.rollouts(q=filter_of(group)),
            "examples": [
                (place, links.rollout(each, q=filter_of(group))) for place, each in enumerate(group.numbers[:5], 1)
            ],
        }
        for group in groups[:_MOST_GROUPS]
    ]


def filter_of(group: FailureGroup) -> str:
    """A filter for the failures of a group, by the longest part that their messages share."""
    part = max(group.pattern.split("#"), key=len).strip()
    return f"state:failed error:{quoted(part)}" if len(part) > 3 else "state:failed"
