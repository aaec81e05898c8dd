"""Listening sockets; other machines may reach them only with a token.

The sockets belong to the supervisor and outlive the workers, so an address stays the same over restarts, and
connections made during a restart wait.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Mapping
from typing import Any

from velodrome.errors import InputError

BACKLOG = 4096
TOKEN_VARIABLE = "VELODROME_TOKEN"
HEAD_HOST = "127.0.0.1"
HEAD_PORT = 11000
LOOPBACK = "127.0.0.1"
# Settings of uvicorn: no logging, no server header, no trusted proxies.
UVICORN: dict[str, Any] = {
    "ws": "none",
    "lifespan": "on",
    "access_log": False,
    "log_config": None,
    "server_header": False,
    "proxy_headers": False,
}


def server_token(settings: Mapping[str, Any]) -> str | None:
    """The token that servers require and clients send: the setting, else the environment variable."""
    token = settings.get("server_token") or os.environ.get(TOKEN_VARIABLE) or None
    if token is None:
        return None
    text = str(token)
    if not (text.isascii() and text.isprintable()) or " " in text:
        raise InputError("server_token (or VELODROME_TOKEN): a token is printable ASCII without spaces")
    return text


def head_address(settings: Mapping[str, Any]) -> tuple[str, int]:
    """Host and port of the head server."""
    address = settings.get("head_server") or {}
    if not isinstance(address, Mapping):
        raise InputError("head_server is {host, port}; for example +head_server.port=11001")
    host = address.get("host") or HEAD_HOST
    return checked_address("head_server", host, address.get("port"), HEAD_PORT)


def checked_address(what: str, host: Any, port: Any, default_port: int) -> tuple[str, int]:
    """The address in a config, with the default port. Raises `InputError` if it is wrong. Port 0 is any free one."""
    if not isinstance(host, str):
        raise InputError(f"{what}: host is a name or an address, not {host!r:.80}")
    port = default_port if port is None else port
    if not isinstance(port, int) or isinstance(port, bool) or not 0 <= port <= 65535:
        raise InputError(f"{what}: port is a whole number up to 65535, not {port!r:.80}")
    return host, port


def listening(
    what: str,
    host: str,
    port: int,
    token: str | None,
    *,
    way: str = f"set server_token (env.yaml), or {TOKEN_VARIABLE} in the environment",
) -> socket.socket:
    """Open a listening socket. A host other than loopback requires a token; `way` is how to set one."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (OSError, UnicodeError) as error:
        raise InputError(f"{what}: no address for the host {host!r} ({error})") from error
    if token is None and not ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback:
        raise InputError(
            f"{what}: {host} can be reached from other machines, which requires a token: {way}; or listen on {LOOPBACK}"
        )
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Connections inherit it: asyncio sets it only for an explicit protocol number, and without it an answer in two
        # writes is delayed by 40 ms.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise InputError(
            f"{what}: cannot listen on {host}:{port} ({error.strerror or error}); give it another port"
        ) from error
    return sock


def reachable(host: str) -> str:
    """The host, for a URL, to connect to a socket that listens on `host`."""
    host = {"0.0.0.0": LOOPBACK, "::": "::1", "": LOOPBACK}.get(host, host)
    return f"[{host}]" if ":" in host else host


def is_wildcard(host: str) -> bool:
    """Whether a host means every address of its machine."""
    return host in ("0.0.0.0", "::", "")
