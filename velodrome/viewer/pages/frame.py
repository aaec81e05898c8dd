"""The frame of every page: the name of the run, the tabs, notes about the file."""

from __future__ import annotations

from typing import Any

from velodrome.index import State
from velodrome.viewer.access import SIGN_IN
from velodrome.viewer.pages.links import Links
from velodrome.viewer.parts.render import count, page
from velodrome.viewer.viewed_file import ViewedFile

Json = dict[str, Any]


def render_page(
    template: str, here: str, links: Links, *, source: ViewedFile | None = None, several: bool = False, **values: Any
) -> str:
    """A page with its frame. A static copy passes `frame`: the mark and the policy of its pages."""
    frame_values: Json = {"version": "", "pulse": "", "frame": None, "run": None}
    frame_values |= {"tabs": [], "notes": [], "alarm": None, "state": None}
    if source is not None:
        state = source.state
        frame_values |= {
            "run": {"name": source.name, "path": str(source.path), "slug": source.slug},
            "tabs": _tabs(links, state, several),
            "notes": source.notes,
            "alarm": source.problem,
            "state": state,
        }
    return page(template, here=here, links=links, **{**frame_values, **values})


def _tabs(links: Links, state: State, several: bool) -> list[tuple[str, str, str, str]]:
    tabs = [
        ("run", "Overview", links.run(), ""),
        ("rollouts", "Rollouts", links.rollouts(), count(state.entries)),
        ("tasks", "Tasks", links.tasks(), ""),
        ("failures", "Failures", links.failures(), count(state.failed) if state.failed else ""),
        ("compare", "Compare", links.compare_with() if several else None, ""),
    ]
    return [(name, label, href, badge) for name, label, href, badge in tabs if href]


def message(heading: str, text: str, *, sign_in: str | None = None) -> str:
    """A page with a short text. `sign_in` is the address to continue to after signing in."""
    way: Json = {"sign_in": SIGN_IN if sign_in else None, "sign_in_to": sign_in or ""}
    way |= {"back": None if sign_in else "/", "back_label": "Back to the start"}
    return render_page("message.html", "message", Links(""), heading=heading, text=text, **way)
