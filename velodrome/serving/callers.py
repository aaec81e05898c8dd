"""Who may call a server that has no token: programs of this machine, by its own name, and no web page but its own.

Loopback keeps other machines out, not other web sites: a browser on this machine runs their code. A page that makes its
own name resolve to loopback is refused by the `Host` it names, any other page by its `Origin`, and what a form can
send without either is not JSON.
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
    """Why a request is not answered."""

    status: int
    message: str


class Callers:
    """Loopback by its own names, and what the config allows: `hosts` by name, web `origins` in full."""

    def __init__(self, hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> None:
        self._hosts = frozenset(filter(None, (host_name(host) for host in hosts)))
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)
        self._judged = lru_cache(256)(self._judge)  # callers send the same three headers every time

    def refusal(self, method: str, headers: Iterable[tuple[bytes, bytes]]) -> Refusal | None:
        """Why this request may not come in, or None. Header names are in lower case."""
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
        return self._judged(hosts, origins, kind if method in _WITH_BODY else None)

    def _judge(self, hosts: tuple[bytes, ...], origins: tuple[bytes, ...], kind: bytes | None) -> Refusal | None:
        host = hosts[0].decode("latin-1").lower() if len(hosts) == 1 else ""
        if not self._is_ours(host):
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

    def _is_ours(self, host: str) -> bool:
        name = host_name(host)
        return bool(name) and (name in self._hosts or is_loopback(name))


def host_name(host: str) -> str:
    """The name or address in a Host header, without its port; empty if it is not one."""
    match = _AUTHORITY.fullmatch(host.lower())
    if match is None:
        return host.lower() if _is_address(host) else ""  # `host: ::1` in a config has no brackets
    return (match[1] or match[2]).rstrip(".")


def is_loopback(name: str) -> bool:
    """Whether a name or an address means this machine, wherever it is resolved."""
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
