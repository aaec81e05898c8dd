"""The pooled HTTP client: `shared()` for a program, `owned()` for a call that leaves nothing behind.

A name is loaded when it is first used: `velodrome.http.limiter` alone does not load aiohttp.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from velodrome.errors import CallError
    from velodrome.http.client import SETTLED, Http, Reply
    from velodrome.http.pools import close_shared, configure, owned, shared
    from velodrome.http.retry import Retry, retry_after_s
    from velodrome.http.streamed import Stream
    from velodrome.http.target import Replicas, Target, excerpt

__all__ = [
    "SETTLED",
    "CallError",
    "Http",
    "Replicas",
    "Reply",
    "Retry",
    "Stream",
    "Target",
    "close_shared",
    "configure",
    "excerpt",
    "owned",
    "retry_after_s",
    "shared",
]

_HOMES = {
    "CallError": "velodrome.errors",
    "Http": "velodrome.http.client",
    "Replicas": "velodrome.http.target",
    "Reply": "velodrome.http.client",
    "Retry": "velodrome.http.retry",
    "SETTLED": "velodrome.http.client",
    "Stream": "velodrome.http.streamed",
    "Target": "velodrome.http.target",
    "close_shared": "velodrome.http.pools",
    "configure": "velodrome.http.pools",
    "excerpt": "velodrome.http.target",
    "owned": "velodrome.http.pools",
    "retry_after_s": "velodrome.http.retry",
    "shared": "velodrome.http.pools",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
