"""The viewer as a web app: one address per view, rendered on the server from the index of the file.

An error in a file or an address becomes a short page, never a stack trace.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from velodrome.errors import InputError, describe
from velodrome.serving.callers import Callers
from velodrome.viewer.access import AccessCheck
from velodrome.viewer.measurements import Measurements
from velodrome.viewer.pages.compare_page import compare_page
from velodrome.viewer.pages.failures_page import failures_page
from velodrome.viewer.pages.frame import message, page_frame, rendered, version_of
from velodrome.viewer.pages.links import Address, Links, Served, long
from velodrome.viewer.pages.rollout_page import rollout_page
from velodrome.viewer.pages.rollouts_page import rollouts_page
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
) -> Starlette:
    """The app over some rollouts files. With a token, requests from any machine that carry it are answered."""
    measurements = measurements or Measurements()
    sources = open_files(files, measurements)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        for source in sources:
            source.follow()
        yield
        measurements.close()
        for source in sources:
            source.close()

    return Starlette(
        routes=Pages(sources).routes(),
        middleware=[Middleware(AccessCheck, token=token, message=message, callers=Callers([host]))],
        exception_handlers=dict.fromkeys((HTTPException, InputError, Exception), _error_page),
        lifespan=lifespan,
    )


def _error_page(request: Request, error: Exception) -> Response:
    if isinstance(error, InputError):
        return HTMLResponse(message("Not found", error.problems[0]), 404)
    if isinstance(error, HTTPException):
        if error.status_code == 404:
            return HTMLResponse(message("Not found", f"{request.url.path}: there is no such page."), 404)
        return HTMLResponse(message("Request refused", error.detail), error.status_code)
    _log.error("%s: %s", request.url.path, describe(error), exc_info=error)
    return HTMLResponse(message("Error in the viewer", describe(error)), 500)


class Pages:
    """The handlers. They are plain functions, so each request has its own thread."""

    def __init__(self, sources: Sequence[ViewedFile]) -> None:
        self._sources = list(sources)
        self._by_slug = {source.slug: source for source in sources}

    def routes(self) -> list[Route]:
        """Every address of the viewer."""
        handlers: dict[str, Callable[[Request], Response]] = {
            "/": self.home,
            "/compare": self.compare,
            "/pulse": lambda request: _pulse(self._sources),
            "/static/{name}": lambda request: _static(request.path_params["name"]),
            "/favicon.ico": lambda request: _static("mark.svg"),
            "/run/{slug}/pulse": lambda request: _pulse([self._source(request)]),
            "/run/{slug}/rollout/{name}.json": self.raw,
            "/run/{slug}/key/{key:path}": self.key,
            **{f"/run/{{slug}}{path}": partial(self.run_page, name) for name, (path, _) in _RUN_PAGES.items()},
        }
        return [Route(path, handler) for path, handler in handlers.items()]

    def home(self, request: Request) -> Response:
        """The list of runs; with one run, that run's page."""
        if len(self._sources) == 1:
            return RedirectResponse(Served(self._sources[0].slug).run())
        frame = page_frame(self._sources)
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

    def compare(self, request: Request) -> Response:
        """Two runs side by side."""
        if len(self._sources) < 2:
            raise InputError("Two runs are needed: velo view a.jsonl b.jsonl")
        query = request.query_params
        a = self._named(query["a"]) if query.get("a") else self._sources[0]
        b = self._named(query["b"]) if query.get("b") else next(each for each in self._sources if each is not a)
        frame = page_frame(self._sources, b)
        values = compare_page(self._sources, a, b, _address(request))
        return HTMLResponse(rendered("compare.html", "compare", Served(b.slug), **frame, **values))

    def run_page(self, name: str, request: Request) -> Response:
        """A page about one run."""
        source, (_, make) = self._source(request), _RUN_PAGES[name]
        address = _address(request)
        links = Served(source.slug, cols=address.cols)
        frame = page_frame([source], source, several=len(self._sources) > 1)
        return HTMLResponse(rendered(f"{name}.html", name, links, **frame, **make(source, links, address)))

    def raw(self, request: Request) -> Response:
        """A rollout as its JSON."""
        row = self._source(request).index().row(_address(request).number)
        return Response(pretty(row), media_type="application/json")

    def key(self, request: Request) -> Response:
        """To the rollout with a key."""
        source, key = self._source(request), request.path_params["key"]
        number = source.index().find(key)
        if number is None:
            raise InputError(f"{source.name} has no rollout with the key {key!r:.100}.")
        return RedirectResponse(Served(source.slug).rollout(number))

    def _source(self, request: Request) -> ViewedFile:
        return self._named(request.path_params["slug"])

    def _named(self, slug: str) -> ViewedFile:
        if slug not in self._by_slug:
            raise InputError(f"There is no run {slug!r:.100} here.")
        return self._by_slug[slug]


_RUN_PAGES: dict[str, tuple[str, Callable[[ViewedFile, Links, Address], Json]]] = {  # by the name of the template
    "run": ("", run_page),
    "rollouts": ("/rollouts", rollouts_page),
    "rollout": ("/rollout/{name}", rollout_page),
    "tasks": ("/tasks", tasks_page),
    "task": ("/task", task_page),
    "failures": ("/failures", failures_page),
}


def _address(request: Request) -> Address:
    """What the address says. An offset that is not a number is the start of the list."""
    query, name = request.query_params, request.path_params.get("name")
    names = ("q", "sort", "after", "before", "show", "id", "only", "at", "raw", "find", "by")
    texts = {each: query.get(each, "") for each in names}
    texts["cols"] = ",".join(filter(None, query.getlist("cols")))  # a form sends each by itself
    since = query.get("since", "")
    number = 0 if name is None else long(name)
    if number is None:
        raise InputError(f"{name!r:.60} is not the number of a rollout.")
    return Address(
        **texts, since=int(since) if since.isascii() and since.isdecimal() and len(since) < 10 else 0, number=number
    )


def _pulse(sources: Sequence[ViewedFile]) -> Response:
    """Whether a page about these files would look different now."""
    states = [source.index().state for source in sources]
    values = {
        "version": version_of(sources),
        "live": any(state.live for state in states),
        "rows": sum(state.rows for state in states),
        "failed": sum(state.failed for state in states),
        "complete": all(state.complete and state.searchable >= state.entries for state in states),
    }
    return Response(orjson.dumps(values), media_type="application/json")


def _static(name: str) -> Response:
    if name == "viewer.css":
        return Response(_style(), media_type="text/css", headers={"Cache-Control": "no-cache"})
    if name not in {path.name for path in _STATIC.iterdir()}:
        raise HTTPException(404)
    path = _STATIC / name
    return Response(path.read_bytes(), media_type=_TYPES[path.suffix], headers={"Cache-Control": "no-cache"})


@cache
def _style() -> str:
    return environment().get_template("viewer.css").render()
