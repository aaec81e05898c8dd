"""The pooled HTTP client: `shared()` is the pool of the current API call, or of the event loop.

A module is imported when one of its names is first used: `velodrome.http.limiter` alone does not load aiohttp.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from velodrome.errors import CallError as CallError
    from velodrome.http.client import SETTLED as SETTLED
    from velodrome.http.client import Http as Http
    from velodrome.http.client import Reply as Reply
    from velodrome.http.client import close_shared as close_shared
    from velodrome.http.client import shared as shared
    from velodrome.http.replicas import CHECK_S as CHECK_S
    from velodrome.http.replicas import STICKY_MARGIN as STICKY_MARGIN
    from velodrome.http.replicas import Replica as Replica
    from velodrome.http.replicas import Replicas as Replicas
    from velodrome.http.retry import Retry as Retry
    from velodrome.http.retry import Unusable as Unusable
    from velodrome.http.streamed import Stream as Stream
    from velodrome.http.target import Target as Target
    from velodrome.http.target import excerpt as excerpt


_NAMES = {
    "errors": "CallError",
    "http.client": "SETTLED Http Reply close_shared shared",
    "http.replicas": "CHECK_S Replica Replicas STICKY_MARGIN",
    "http.retry": "Retry Unusable",
    "http.streamed": "Stream",
    "http.target": "Target excerpt",
}
_MODULES = {name: f"velodrome.{module}" for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value
