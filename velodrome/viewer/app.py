"""The viewer as a web app: one address a view, rendered here, from the index of the file it is about.

Whatever goes wrong with a file or an address is a page with a few words on it, never a stack trace.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import orjson
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from velodrome.errors import InputError, describe
from velodrome.serving.callers import Callers
from velodrome.viewer.access import AccessCheck
from velodrome.viewer.measurements import Measurements
from velodrome.viewer.pages.compare_page import compare_page
from velodrome.viewer.pages.failures_page import failures_page
from velodrome.viewer.pages.frame import message, rendered, run_frame, version_of, whole_frame
from velodrome.viewer.pages.links import Served, long
from velodrome.viewer.pages.rollout_page import rollout_page
from velodrome.viewer.pages.rollouts_page import Asked, rollouts_page
from velodrome.viewer.pages.run_page import run_page
from velodrome.viewer.pages.task_page import task_page
from velodrome.viewer.pages.tasks_page import tasks_page
from velodrome.viewer.parts.dialogue import pretty
from velodrome.viewer.parts.render import environment
from velodrome.viewer.viewed_file import ViewedFile, open_files

Json = dict[str, Any]

_STATIC = Path(__file__).parent / "static"
_TYPES = {".js": "text/javascript", ".svg": "image/svg+xml", ".css": "text/css"}
_log = logging.getLogger(__name__)


def make_app(
    files: Sequence[Path], *, token: str | None = None, host: str = "", measurements: Measurements | None = None
) -> FastAPI:
    """The app over some rollouts files. With a token, requests from anywhere are answered that bring it."""
    measurements = measurements or Measurements()
    sources = open_files(files, measurements)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        for source in sources:
            source.follow()
        yield
        measurements.close()
        for source in sources:
            source.close()

    app = FastAPI(title="velodrome viewer", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    pages = Pages(sources)
    for path, handle in pages.routes().items():
        app.add_api_route(path, handle, methods=["GET", "HEAD"], response_model=None)
    app.add_middleware(AccessCheck, token=token, message=message, callers=Callers([host]))
    for kind in (HTTPException, RequestValidationError, InputError, Exception):
        app.add_exception_handler(kind, _told)
    return app


def _told(request: Request, error: Exception) -> Response:
    """An error as a page."""
    if isinstance(error, InputError):
        return HTMLResponse(message("Not there", error.problems[0]), 404)
    if isinstance(error, HTTPException | RequestValidationError):
        status = getattr(error, "status_code", 404)
        told = f"{request.url.path}: there is no such page." if status == 404 else str(getattr(error, "detail", ""))
        return HTMLResponse(message("Not there" if status == 404 else "That does not work", told), status)
    _log.error("%s: %s", request.url.path, describe(error), exc_info=error)
    return HTMLResponse(message("A fault of the viewer's own", describe(error)), 500)


class Pages:
    """The handlers. They are plain functions, so that each request has a thread of its own."""

    def __init__(self, sources: Sequence[ViewedFile]) -> None:
        self._sources = list(sources)
        self._by_slug = {source.slug: source for source in sources}

    def routes(self) -> dict[str, Callable[..., Response]]:
        """Every address there is."""
        return {
            "/": self.home,
            "/compare": self.compare,
            "/pulse": self.pulse_of_all,
            "/static/{name}": self.static,
            "/favicon.ico": self.icon,
            "/run/{slug}": self.run,
            "/run/{slug}/pulse": self.pulse,
            "/run/{slug}/rollouts": self.rollouts,
            "/run/{slug}/rollout/{name}": self.rollout,
            "/run/{slug}/key/{key:path}": self.key,
            "/run/{slug}/tasks": self.tasks,
            "/run/{slug}/task": self.task,
            "/run/{slug}/failures": self.failures,
        }

    def home(self) -> Response:
        if len(self._sources) == 1:
            return RedirectResponse(Served(self._sources[0].slug).run())
        frame = whole_frame(self._sources)
        runs = [
            {
                "name": each.name,
                "path": str(each.path),
                "href": Served(each.slug).run(),
                "state": each.index().state,
                "note": next(iter(filter(None, (each.problem, *each.notes))), ""),
            }
            for each in self._sources
        ]
        return HTMLResponse(rendered("runs.html", "runs", Served(""), **frame, runs=runs))

    def run(self, slug: str) -> Response:
        return self._page(slug, "run", lambda source, links: run_page(source, source.index(), links))

    def rollouts(
        self, slug: str, q: str = "", sort: str = "", after: str | None = None, before: str | None = None
    ) -> Response:
        asked = Asked(q, sort, after, before)
        return self._page(slug, "rollouts", lambda source, links: rollouts_page(source, source.index(), links, asked))

    def rollout(self, slug: str, name: str, q: str = "", sort: str = "", show: str = "") -> Response:
        number = long(name.removesuffix(".json"))
        if number is None:
            raise InputError(f"{name!r:.60} is no number of a rollout.")
        if name.endswith(".json"):
            return Response(pretty(self._found(slug).index().row(number)), media_type="application/json")
        asked = Asked(q, sort)
        return self._page(
            slug, "rollout", lambda source, links: rollout_page(source.index(), links, number, asked, show)
        )

    def key(self, slug: str, key: str) -> Response:
        source = self._found(slug)
        number = source.index().find(key)
        if number is None:
            raise InputError(f"{source.name} has no rollout with the key {key!r:.100}.")
        return RedirectResponse(Served(slug).rollout(number))

    def tasks(self, slug: str, sort: str = "", after: str | None = None, before: str | None = None) -> Response:
        return self._page(slug, "tasks", lambda source, links: tasks_page(source.index(), links, sort, after, before))

    def task(self, slug: str, id: str = "", since: str = "0") -> Response:
        return self._page(slug, "task", lambda source, links: task_page(source.index(), links, id, _whole(since)))

    def failures(self, slug: str) -> Response:
        return self._page(slug, "failures", lambda source, links: failures_page(source.index(), links))

    def compare(self, a: str = "", b: str = "", only: str = "", since: str = "0") -> Response:
        if len(self._sources) < 2:
            raise InputError("Two runs are needed: velo view a.jsonl b.jsonl")
        left = self._found(a) if a else self._sources[0]
        right = self._found(b) if b else next(each for each in self._sources if each is not left)
        frame = whole_frame(self._sources, right)
        told = compare_page(self._sources, left, right, only, _whole(since))
        return HTMLResponse(rendered("compare.html", "compare", Served(right.slug), **frame, **told))

    def pulse(self, slug: str) -> Response:
        """A word on whether a page about this file would be another now."""
        return _pulse([self._found(slug)])

    def pulse_of_all(self) -> Response:
        """The same of all files."""
        return _pulse(self._sources)

    def static(self, name: str) -> Response:
        if name == "viewer.css":
            return Response(_style(), media_type="text/css", headers={"Cache-Control": "no-cache"})
        if name not in {path.name for path in _STATIC.iterdir()}:
            raise HTTPException(404)
        path = _STATIC / name
        return Response(path.read_bytes(), media_type=_TYPES[path.suffix], headers={"Cache-Control": "no-cache"})

    def icon(self) -> Response:
        return self.static("mark.svg")

    def _found(self, slug: str) -> ViewedFile:
        found = self._by_slug.get(slug)
        if found is None:
            raise InputError(f"There is no run {slug!r:.100} here.")
        return found

    def _page(self, slug: str, here: str, tell: Callable[[ViewedFile, Served], Json]) -> Response:
        source = self._found(slug)
        links = Served(slug)
        frame = run_frame(source, self._sources)
        told = tell(source, links)
        return HTMLResponse(rendered(f"{here}.html", here, links, **frame, **told))


def _pulse(sources: Sequence[ViewedFile]) -> Response:
    states = [source.index().state for source in sources]
    told = {
        "version": version_of(sources),
        "live": any(state.live for state in states),
        "rows": sum(state.rows for state in states),
        "failed": sum(state.failed for state in states),
        "complete": all(state.complete and state.searchable >= state.entries for state in states),
    }
    return Response(orjson.dumps(told), media_type="application/json")


def _whole(text: str) -> int:
    """A place in a list; what is none is its start."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


@cache
def _style() -> str:
    return environment().get_template("viewer.css").render()
