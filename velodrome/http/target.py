"""The address that calls are sent to, parsed once, with its headers.

An excerpt of an answer never contains the target's secrets.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from http import HTTPStatus

from multidict import CIMultiDict
from yarl import URL

_EXCERPT_CHARS = 300
_EXCERPT_BYTES = 64 * 1024  # longer than an excerpt, so that keys are masked before the cut
# Sent with every call: all headers that aiohttp would add itself, which costs more than passing them.
HEADERS = {
    "Accept": "application/json",
    "Accept-Encoding": "identity",
    "Content-Type": "application/json",
    "User-Agent": "velodrome",
}
_PLAIN_HEADERS = frozenset(("accept", "accept-encoding", "content-type", "user-agent"))  # any other may hold a secret
_KEY_LIKE = re.compile(r"(?:\bsk-|\bbearer\s+)[\w.~+/=*-]{6,}", re.IGNORECASE)


class Target:
    """One address, parsed once: its URL, its headers, and its calls in flight."""

    __slots__ = ("headers", "host", "in_flight", "label", "secrets", "url")

    def __init__(self, url: str | URL, headers: Mapping[str, str] | None = None) -> None:
        parsed = URL(url)
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise ValueError("expected a URL that starts with http:// or https://")
        self.headers = CIMultiDict(headers or {})
        if parsed.user is not None and "Authorization" not in self.headers:
            pair = f"{parsed.user}:{parsed.password or ''}".encode()
            self.headers["Authorization"] = f"Basic {b64encode(pair).decode()}"
        self.url = parsed.with_user(None)
        self.host = str(self.url.origin())  # calls to the same host share connections
        self.label = str(self.url.with_query(None).with_fragment(None))
        self.secrets = _secrets(self.headers, parsed)
        self.in_flight = 0

    def excerpt(self, body: bytes) -> str:
        """The start of an answer as one line, without this target's secrets."""
        return excerpt(body, self.secrets)

    def choose(self, avoid: Target | None = None) -> Target:
        """The target of the next call: always this one. `Replicas` choose among several."""
        return self


def excerpt(body: bytes, secrets: Sequence[str] = ()) -> str:
    """The start of a body as one line, fit for a log: control characters escaped, keys masked."""
    text = " ".join(body[:_EXCERPT_BYTES].decode("utf-8", "replace").split())
    for secret in secrets:
        text = text.replace(secret, "***")
    text = _KEY_LIKE.sub("***", text)
    text = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    return text if len(text) <= _EXCERPT_CHARS else text[: _EXCERPT_CHARS - 1] + "…"


def status_line(status: int) -> str:
    """A status with its standard phrase."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _secrets(headers: Mapping[str, str], url: URL) -> tuple[str, ...]:
    values = [value.rpartition(" ")[2] for name, value in headers.items() if name.lower() not in _PLAIN_HEADERS]
    values += [url.password or "", *url.query.values()]
    return tuple(secret for secret in values if len(secret) >= 4)
