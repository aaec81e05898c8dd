"""What every page has around its own: the name of the run, the way to the other pages, notes about the file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from velodrome.viewer.access import SIGN_IN
from velodrome.viewer.pages.links import Links, Served
from velodrome.viewer.parts.render import count, page
from velodrome.viewer.viewed_file import ViewedFile

Json = dict[str, Any]


def page_frame(sources: Sequence[ViewedFile], source: ViewedFile | None = None, *, several: bool | None = None) -> Json:
    """The frame of a page about some runs, shown among the pages of one of them or of none.

    It is made before the page, so that news that arrives while the page is made counts as a new version.
    """
    slug = sources[0].slug if len(sources) == 1 else ""
    several = len(sources) > 1 if several is None else several
    return {"source": source, "several": several, "version": version_of(sources), "pulse": Served(slug).pulse()}


def version_of(sources: Sequence[ViewedFile]) -> str:
    """Changes whenever the version of one of them does."""
    return "-".join(source.version for source in sources)


def rendered(
    template: str,
    here: str,
    links: Links,
    *,
    source: ViewedFile | None = None,
    several: bool = False,
    version: str = "",
    pulse: str = "",
    frame: Any = None,
    **told: Any,
) -> str:
    """A page with its frame. `frame` holds what a static copy carries with it."""
    run = None
    values: Json = {"tabs": [], "notes": [], "alarm": None, "state": None}
    if source is not None:
        run = {"name": source.name, "path": str(source.path), "slug": source.slug}
        state = source.state
        values = {
            "tabs": _tabs(links, state, several),
            "notes": source.notes,
            "alarm": source.problem,
            "state": state,
        }
    values |= {"version": version, "pulse": pulse}
    return page(template, here=here, links=links, run=run, frame=frame, **values, **told)


def _tabs(links: Links, state: Any, several: bool) -> list[tuple[str, str, str, str]]:
    every = [
        ("run", "Overview", links.run(), ""),
        ("rollouts", "Rollouts", links.rollouts(), count(state.entries)),
        ("tasks", "Tasks", links.tasks(), ""),
        ("failures", "Failures", links.failures(), count(state.failed) if state.failed else ""),
        ("compare", "Compare", links.compare() if several else None, ""),
    ]
    return [(name, label, href, told) for name, label, href, told in every if href]


def message(heading: str, told: str, *, sign_in: str | None = None) -> str:
    """A page with a few words on it."""
    way: Json = {"sign_in": SIGN_IN if sign_in else None, "sign_in_to": sign_in or ""}
    way |= {"back": None if sign_in else "/", "back_label": "Back to the start"}
    return rendered("message.html", "message", Served(""), heading=heading, told=told, **way)
