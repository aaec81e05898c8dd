"""Asking the other workers of a server: a request reaches one of them, and its answer is about all.

A question to a peer carries `ALONE`, so that it answers for itself alone. A peer that is silent for
too long is left out: one that hangs must not hide the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from velodrome import http
from velodrome.errors import CallError

ALONE = "x-velodrome-alone"


async def ask_peers(
    peers: Sequence[str],
    own: int,
    path: str,
    token: str | None,
    headers: Mapping[str, str] | None = None,
    *,
    patience_s: float = 1.0,
) -> dict[int, bytes | None]:
    """What every other worker answers to a GET, by its number; None of one that gives no answer."""
    once = http.Retry(max_retries=0, timeout_s=patience_s, total_timeout_s=patience_s)
    others = [number for number in range(len(peers)) if number != own]
    sent = {**(headers or {}), ALONE: "yes"} | ({"Authorization": f"Bearer {token}"} if token is not None else {})
    targets = [http.Target(peers[number].rstrip("/") + path, sent) for number in others]
    answers = await asyncio.gather(*(_ask(target, once) for target in targets))
    return dict(zip(others, answers, strict=True))


async def _ask(peer: http.Target, once: http.Retry) -> bytes | None:
    try:
        return (await http.shared().get(peer, once)).body
    except CallError:
        return None
