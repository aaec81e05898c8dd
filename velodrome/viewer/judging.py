"""The form for judgements on a rollout's page, and the two addresses of the viewer that write.

A change is a POST of a form with a token that only pages of this process have, from a page of the same origin. A viewer
that other machines can reach accepts changes only with `--edit`. A refused form is returned with the reason and the
text, so nothing typed is lost.
"""

from __future__ import annotations

import getpass
import hmac
import secrets
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, unquote

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from velodrome.errors import InputError
from velodrome.index import Entry
from velodrome.index.judgements import LONGEST_NAME, RATINGS, make_judgement, save_judgement
from velodrome.records.task import hashed
from velodrome.serving.callers import host_name, is_loopback
from velodrome.viewer.access import form_fields, local_address
from velodrome.viewer.pages.frame import render_page
from velodrome.viewer.pages.links import Links, long
from velodrome.viewer.parts.judgement_part import judgement_part, judgements_of
from velodrome.viewer.viewed_file import ViewedFile

Json = dict[str, Any]

_COOKIE = "velodrome_person"
_YEAR_S = 365 * 24 * 3600
_MOST_FORM_BYTES = 128 * 1024
_MOST_KNOWN_TAGS = 200
_RATINGS = {"": None, "0": None, **{str(value): value for value in RATINGS}}  # by their text in a form
_FORM = "application/x-www-form-urlencoded"
_REFUSED = "not saved: this is not a page of this viewer"


class Judging:
    """Judging is allowed on loopback, or with `edit`. `person` is the name for browsers without one."""

    def __init__(
        self, source: Callable[[str], ViewedFile], *, host: str = "", edit: bool = False, person: str = ""
    ) -> None:
        is_local = not host or is_loopback(host_name(host))
        self.allowed = edit or is_local
        self._person = person or (_login() if is_local else "")
        self._source = source
        self._token = secrets.token_urlsafe(24)

    def routes(self) -> list[Route]:
        """The routes of the form and of the person's name."""
        form = "/run/{slug}/rollout/{name}/judgement"
        return [
            Route(form, self.panel),
            Route(form, self.save, methods=["POST"]),
            Route("/person", self.name, methods=["POST"]),
        ]

    def form(self, request: Request, source: ViewedFile, entry: Entry) -> Json | None:
        """The form with this person's judgement of a rollout; None if judging is not allowed."""
        if not self.allowed:
            return None
        person = self._who(request)
        own = next((each for each in judgements_of(source, entry)[0] if each.by == person), None)
        links = Links(source.slug)
        query = {name: request.query_params.get(name, "") for name in ("q", "sort")}
        return {
            "action": links.judgement(entry.number),
            "token": self._token,
            "to": links.rollout(entry.number, **query),
            "by": person,
            "of": _identity(entry),
            "tags": ", ".join(own.tags) if own else "",
            "note": own.note if own else "",
            "rating": own.rating if own else None,
            "ratings": RATINGS,
            "known": source.judgements.tags()[:_MOST_KNOWN_TAGS],
            "error": "",
        }

    def panel(self, request: Request) -> Response:
        """The judgements of a rollout as part of a page, to update an open page."""
        source, entry = self._place(request)
        return HTMLResponse(self._page(source, entry, self.form(request, source, entry)))

    async def save(self, request: Request) -> Response:
        """Save a judgement, and return to the rollout."""
        form = await _form(request)
        return await run_in_threadpool(self._handle_form, request, form)

    def _handle_form(self, request: Request, form: Mapping[str, str]) -> Response:
        source, entry = self._place(request)
        problem = self._refusal(request, form)
        if problem is None:
            try:
                _save_form(source, entry, form)
            except InputError as error:
                problem = error.problems[0]
        if problem is None and "part" not in form:
            return RedirectResponse(_back(form), 303)
        shown = self.form(request, source, entry)
        if problem is None:
            return HTMLResponse(self._page(source, entry, shown))
        if shown is not None:
            shown |= {name: form[name] for name in ("tags", "note", "to") if name in form}
            shown |= {"rating": _RATINGS.get(form.get("rating", "")), "error": problem}
        return HTMLResponse(self._page(source, entry, shown), 403 if shown is None else 400)

    async def name(self, request: Request) -> Response:
        """Store the name of the person in this browser."""
        form = await _form(request)
        problem, person = self._refusal(request, form), " ".join(form.get("by", "").split())
        if problem is None and not 0 < len(person) <= LONGEST_NAME:
            problem = f"a name has 1 to {LONGEST_NAME} characters"
        if problem is not None:
            raise HTTPException(403, problem)
        answer = RedirectResponse(_back(form), 303)
        answer.set_cookie(_COOKIE, quote(person), max_age=_YEAR_S, httponly=True, samesite="strict", path="/")
        return answer

    def _page(self, source: ViewedFile, entry: Entry, form: Json | None) -> str:
        values: Json = {"entry": entry, "judgement": judgement_part(source, entry), "judging": form}
        return render_page("judgement_page.html", "judgement", Links(source.slug), source=source, **values)

    def _place(self, request: Request) -> tuple[ViewedFile, Entry]:
        source, number = self._source(request.path_params["slug"]), long(request.path_params["name"])
        if number is None:
            raise InputError(f"{request.path_params['name']!r:.60} is not the number of a rollout.")
        return source, source.index().entry(number)

    def _who(self, request: Request) -> str:
        return unquote(request.cookies.get(_COOKIE, ""))[:LONGEST_NAME].strip() or self._person

    def _refusal(self, request: Request, form: Mapping[str, str]) -> str | None:
        """Why a form is refused, or None."""
        headers = request.headers
        if not self.allowed:
            return "not saved: this viewer only shows; velo view --edit lets people judge"
        if headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return _REFUSED
        if any(each.partition("://")[2] != headers.get("host") for each in headers.getlist("origin")):
            return _REFUSED
        if not hmac.compare_digest(form.get("token", "").encode(), self._token.encode()):
            return "not saved: the viewer was started again since this page was made; save once more"
        return None


def _back(form: Mapping[str, str]) -> str:
    return f"{local_address(form.get('to', ''))}#judgement"


def _save_form(source: ViewedFile, entry: Entry, form: Mapping[str, str]) -> None:
    if form.get("of") != _identity(entry):
        raise InputError("not saved: the file has changed, and another rollout is here now; open yours by its key")
    rating = form.get("rating", "")
    judgement = make_judgement(
        entry.key,
        form.get("by", ""),
        tags=form.get("tags", ""),
        note=form.get("note", ""),
        rating=_RATINGS.get(rating, rating),
        finished_at=entry.numbers.get("finished_at"),
    )
    save_judgement(source.path, judgement)


def _identity(entry: Entry) -> str:
    """A hash of the rollout of a page, because its key may have characters that a form cannot send."""
    return str(hashed(f"{entry.key} {entry.numbers.get('finished_at')}"))


async def _form(request: Request) -> dict[str, str]:
    """The fields of a posted form."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        raise HTTPException(415, "Not saved: not a form.")
    return await form_fields(request, _MOST_FORM_BYTES)


def _login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "me"
