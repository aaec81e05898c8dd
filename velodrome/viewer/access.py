"""Access to the pages: from this machine under its own name, or with the token. And what a browser may do.

The host in a request is checked, so that a web page cannot reach the viewer through a name that resolves to loopback.
A page runs and loads only the viewer's own files.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from hashlib import sha256
from urllib.parse import parse_qs

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from velodrome.serving.callers import Callers

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # "no-referrer" would make the origin of the viewer's own forms "null"
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
SIGN_IN = "/sign-in"
FORMS = ("/judgement", "/person")  # ends of the addresses that receive forms
_COOKIE = "velodrome_viewer"
_MOST_FORM_BYTES = 8192

Message_ = Callable[..., str]  # makes a page with a short text


def local_address(to: str) -> str:
    """The address if it is of this viewer, else the start page."""
    return "/" if not to.startswith("/") or to.startswith(("//", "/\\")) else to


async def form_fields(request: Request, most: int) -> dict[str, str]:
    """The fields of a form of at most `most` bytes. Null characters are removed."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise HTTPException(413, f"More than {most // 1024} KB.")
    try:
        fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=50)
    except ValueError:
        raise HTTPException(400, "Too many fields.") from None
    return {name: values[-1].replace("\x00", "") for name, values in fields.items()}


class AccessCheck:
    """Middleware before every page. Without a token, only requests to loopback by its own name are accepted."""

    def __init__(self, app: ASGIApp, *, token: str | None, message: Message_, callers: Callers) -> None:
        self._app = app
        self._callers = callers
        self._token = token
        self._message = message
        self._cookie_value = "" if token is None else hmac.new(token.encode(), b"velodrome viewer", sha256).hexdigest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                names = {name for name, _ in message["headers"]}
                defaults = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *(each for each in defaults if each[0] not in names)]
            await send(message)

        refusal = await self._refusal(Request(scope, receive))
        await (refusal or self._app)(scope, receive, send_with_headers)

    async def _refusal(self, request: Request) -> Response | None:
        """The answer to a request that is refused, or None."""
        if self._token is None:
            is_form = request.url.path.endswith(FORMS)  # forms are checked where they are read
            refusal = self._callers.refusal("GET" if is_form else request.method, request.scope["headers"])
            if refusal is None:
                return None
            text = "The viewer answers to 127.0.0.1 and localhost only; give it a token to reach it by another name."
            return HTMLResponse(self._message("Wrong host", text), refusal.status)
        if request.url.path.startswith("/static/") or self._has_token(request):
            return None
        if request.url.path == SIGN_IN and request.method == "POST":
            return await self._sign_in(request)
        to = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        page = self._message("A token is needed", "It is the one the viewer was started with.", sign_in=to)
        return HTMLResponse(page, 401, {"WWW-Authenticate": "Bearer"})

    def _has_token(self, request: Request) -> bool:
        header = request.headers.get("authorization", "").encode()
        cookie = request.cookies.get(_COOKIE, "").encode()
        return hmac.compare_digest(header, f"Bearer {self._token}".encode()) or hmac.compare_digest(
            cookie, self._cookie_value.encode()
        )

    async def _sign_in(self, request: Request) -> Response:
        try:
            form = await form_fields(request, _MOST_FORM_BYTES)
        except HTTPException as error:
            return HTMLResponse(self._message("Not a token", error.detail), error.status_code)
        to = local_address(form.get("to", "/"))
        if not hmac.compare_digest(form.get("token", "").encode(), (self._token or "").encode()):
            page = self._message("That is not the token", "It is the one the viewer was started with.", sign_in=to)
            return HTMLResponse(page, 401)
        answer = RedirectResponse(to, 303)
        answer.set_cookie(_COOKIE, self._cookie_value, httponly=True, samesite="strict", path="/")
        return answer
