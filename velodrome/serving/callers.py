"""Who may call a server without a token: programs on this machine, and web pages of the server itself.

Loopback keeps other machines out, but a browser on this machine runs the code of other web sites. A page whose name
resolves to loopback is refused because of its `Host`, any other page because of its `Origin`. A form can send neither,
but it cannot send JSON.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

_AUTHORITY = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\[\]:@/\s]+))(?::\d*)?")
_JSON = re.compile(rb"application/(?:[\w.-]{1,100}\+)?json")
_WITH_BODY = frozenset(("POST", "PUT", "PATCH"))


class Refusal(NamedTuple):
    """The status and message for a refused request."""

    status: int
    message: str


class Callers:
    """Allows the names of loopback, the `hosts` of the config by name, and its web `origins` in full."""

    def __init__(self, hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> None:
        self._hosts = frozenset(filter(None, (host_name(host) for host in hosts)))
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)
        self._cached_refusal = lru_cache(256)(self._refusal)  # callers send the same three headers every time

    def refusal(self, method: str, headers: Iterable[tuple[bytes, bytes]]) -> Refusal | None:
        """The refusal of this request, or None. Header names are in lower case."""
        hosts: tuple[bytes, ...] = ()
        origins: tuple[bytes, ...] = ()
        kind = b""
        for name, value in headers:
            if name == b"host":
                hosts += (value,)
            elif name == b"origin":
                origins += (value,)
            elif name == b"content-type":
                kind = value
        return self._cached_refusal(hosts, origins, kind if method in _WITH_BODY else None)

    def _refusal(self, hosts: tuple[bytes, ...], origins: tuple[bytes, ...], kind: bytes | None) -> Refusal | None:
        host = hosts[0].decode("latin-1").lower() if len(hosts) == 1 else ""
        if not self._is_allowed(host):
            return Refusal(
                421,
                f"the Host {host!r:.100} is not this server's: it answers to 127.0.0.1 and localhost; "
                "allowed_hosts names others, or set a token (docs/serving.md#callers)",
            )
        for each in origins:
            origin = each.decode("latin-1").lower()
            if origin not in self._origins and origin.partition("://")[2] != host:
                return Refusal(
                    403,
                    f"a web page of {origin!r:.100} may not call this server; "
                    "cors_origins names those that may (docs/serving.md#callers)",
                )
        if kind is not None and not _JSON.fullmatch(kind.partition(b";")[0].strip().lower()):
            return Refusal(415, "the body must be JSON: send it with Content-Type: application/json (curl --json)")
        return None

    def _is_allowed(self, host: str) -> bool:
        name = host_name(host)
        return bool(name) and (name in self._hosts or is_loopback(name))


def host_name(host: str) -> str:
    """The name or address in a Host header, without its port; empty if it is not one."""
    match = _AUTHORITY.fullmatch(host.lower())
    if match is None:
        return host.lower() if _is_address(host) else ""  # `host: ::1` in a config has no brackets
    return (match[1] or match[2]).rstrip(".")


def is_loopback(name: str) -> bool:
    """Whether a name or an address always means this machine."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    if not _is_address(name):
        return False
    address = ipaddress.ip_address(name)
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
