"""The viewer as a web app: one address per view, rendered on the server from the index of the file.

An error in a file or an address becomes a short page, never a stack trace.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from velodrome.errors import InputError, describe
from velodrome.serving.callers import Callers
from velodrome.viewer.access import AccessCheck
from velodrome.viewer.handlers import Handlers
from velodrome.viewer.judging import Judging
from velodrome.viewer.measurements import Measurements
from velodrome.viewer.pages.frame import message
from velodrome.viewer.parts.render import environment
from velodrome.viewer.runs.known_runs import KnownRuns

_STATIC = Path(__file__).parent / "static"
_TYPES = {".js": "text/javascript", ".svg": "image/svg+xml", ".css": "text/css"}
_log = logging.getLogger(__name__)


def make_app(
    files: Sequence[Path],
    *,
    token: str | None = None,
    host: str = "",
    edit: bool = False,
    person: str = "",
    measurements: Measurements | None = None,
) -> Starlette:
    """The app over some rollouts files and folders. With a token, requests with it are answered from anywhere.

    `edit` allows judgements from beyond loopback; `person` is the name for browsers that have none.
    """
    measurements = measurements or Measurements()
    runs = KnownRuns(files, measurements)
    judging = Judging(runs.file, host=host, edit=edit, person=person)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        runs.start()
        yield
        measurements.close()
        runs.close()

    return Starlette(
        routes=[*Handlers(runs, judging).routes(), *_OWN_FILES],
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


_OWN_FILES = [
    Route("/static/{name}", lambda request: _static(request.path_params["name"])),
    Route("/favicon.ico", lambda request: _static("mark.svg")),
]
