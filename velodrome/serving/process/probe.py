"""One bounded GET without a client library: for health checks and for finding the head server."""

from __future__ import annotations

import asyncio

MAX_BYTES = 16 * 1024 * 1024


async def fetch(
    host: str, port: int, path: str, *, timeout_s: float, token: str | None = None
) -> tuple[int, bytes] | None:
    """Status and body, or None without an answer in time. An answer that is not HTTP has the status 0."""
    try:
        async with asyncio.timeout(timeout_s):
            return await _fetch(host, port, path, token)
    except (ValueError, asyncio.LimitOverrunError):
        return 0, b""
    except (TimeoutError, OSError, asyncio.IncompleteReadError):
        return None


async def listens(host: str, port: int, *, timeout_s: float) -> bool:
    """Whether a program accepts connections at this address."""
    try:
        async with asyncio.timeout(timeout_s):
            _, writer = await asyncio.open_connection(host, port)
    except (TimeoutError, OSError):
        return False
    writer.close()
    return True


async def _fetch(host: str, port: int, path: str, token: str | None) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection(host, port, limit=64 * 1024)
    try:
        lines = [f"GET {path} HTTP/1.1", f"Host: {host}:{port}", "Connection: close"]
        if token is not None:
            lines.append(f"Authorization: Bearer {token}")
        writer.write("\r\n".join([*lines, "", ""]).encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        version, status = head[0].split(" ", 2)[:2]
        if not version.startswith("HTTP/"):
            raise ValueError("not HTTP")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        size = int(headers.get("content-length", "0"))
        if not 0 <= size <= MAX_BYTES:
            raise ValueError("the answer is too large")
        return int(status), await reader.readexactly(size)
    finally:
        writer.close()
